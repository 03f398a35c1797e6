"""What servers offer is kept in a layer of tools that follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.canonical import digest
from holdfast.clock import SYSTEM
from holdfast.errors import NotFound
from holdfast.journal import Origin, Payload
from holdfast.mcp.definitions import read_offer
from holdfast.mcp.grants import GrantBook
from holdfast.mcp.manager import McpManager, _digest_of
from holdfast.mcp.opening import Opening
from holdfast.mcp.pins import PinBook
from holdfast.mcp.server import Keeping
from holdfast.policy import PolicyBundle
from holdfast.runs.confinement import Confinement
from holdfast.runtime import ProcessEnvironment
from holdfast.settings.mcp import McpEndpoint
from holdfast.tools import ToolRegistry, tool

SCHEMA = {"type": "object"}


class Nobody:
    """Has vouched for nothing."""

    def is_trusted(self, project: str, name: str, digest: str) -> bool:
        return False

    def trust(self, project: str, name: str, digest: str) -> None:
        raise AssertionError

    def revoke(self, project: str, name: str) -> None:
        raise AssertionError


async def keep_nothing(fact: Payload, origin: Origin) -> None:
    """Drop a fact."""


@pytest.fixture
def manager(tmp_path: Path) -> McpManager:
    opening = Opening(
        name="far",
        endpoint=McpEndpoint(transport="http", url="http://127.0.0.1:1/"),
        workspace=str(tmp_path),
        token=lambda name: "",
        policies=PolicyBundle,
        open_process=ProcessEnvironment(Confinement(), SYSTEM).open_process,
    )
    keeping = Keeping(note=keep_nothing, pins=PinBook(tmp_path), grants=GrantBook(tmp_path))
    return McpManager([opening], keeping, trust=Nobody(), project=str(tmp_path))


def offer(manager: McpManager, *names: str, **verdicts: Any) -> None:
    server = manager._find_server("far")
    listed = [{"name": name, "inputSchema": SCHEMA} for name in names]
    server.offer = read_offer("far", server.endpoint, listed)
    server.verdicts = {name: verdicts.get(name, "accepted") for name in names}


def test_layer_follows_what_is_offered(manager: McpManager) -> None:
    layer = ToolRegistry(scope="mcp")
    server = manager._find_server("far")
    offer(manager, "a", "b")
    manager._register(server, layer)
    first = layer.get("mcp__far__a")
    offer(manager, "a", "c", c="new")
    manager._register(server, layer)
    assert set(layer.tools) == {"mcp__far__a", "mcp__far__c"}
    assert layer.get("mcp__far__a") is first
    assert "unoffered" in layer.get("mcp__far__c").tags
    offer(manager, "a", "c")
    manager._register(server, layer)
    assert "unoffered" not in layer.get("mcp__far__c").tags


def test_tool_that_was_there_before_keeps_its_name(manager: McpManager) -> None:
    @tool(name="mcp_far_a")
    def mine() -> str:
        """Was here first."""
        return ""

    layer = ToolRegistry([mine], scope="built-in").child(scope="mcp")
    offer(manager, "a")
    manager._register(manager._find_server("far"), layer)
    assert layer.get("mcp__far__a") is mine


def test_unknown_server_is_told(manager: McpManager) -> None:
    with pytest.raises(NotFound):
        manager.trust("near")


def test_trust_given_before_there_were_variables_and_hosts_goes_on_to_hold() -> None:
    endpoint = McpEndpoint(transport="stdio", command="x")
    said = endpoint.model_dump(mode="json")
    before = digest({k: v for k, v in said.items() if k not in ("env", "headers", "hosts")})
    assert _digest_of(endpoint) == before
    other = McpEndpoint(transport="stdio", command="x", sandbox="filtered", hosts=("a.test",))
    more = McpEndpoint(
        transport="stdio", command="x", sandbox="filtered", hosts=("a.test", "b.test")
    )
    assert len({before, _digest_of(other), _digest_of(more)}) == 3
