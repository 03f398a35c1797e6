"""Without the SDK, servers cannot be reached, and the error says what to install."""

from __future__ import annotations

import sys

import pytest

from holdfast.clock import SYSTEM
from holdfast.errors import MissingExtra
from holdfast.mcp.opening import Opening, connect_by_sdk
from holdfast.policy import PolicyBundle
from holdfast.runs.confinement import Confinement
from holdfast.runtime import ProcessEnvironment
from holdfast.settings.mcp import McpEndpoint


def test_missing_sdk_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("holdfast.mcp.wire")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mcp", "mcp_types", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None)
    opening = Opening(
        name="far",
        endpoint=McpEndpoint(transport="http", url="http://127.0.0.1:1/"),
        workspace="/",
        token=lambda name: "",
        policies=PolicyBundle,
        open_process=ProcessEnvironment(Confinement(), SYSTEM).open_process,
    )
    with pytest.raises(MissingExtra) as raised:
        connect_by_sdk(opening, lambda: None, lambda: None)
    assert raised.value.context["extra"] == "mcp"
