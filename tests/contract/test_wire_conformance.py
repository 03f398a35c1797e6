"""The shipped conformance suite, on all three wires against the fake server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.providers.wire import (
    Endpoint,
    HttpTransport,
    RememberedApis,
    ResponsesOrChat,
    Secret,
    WireModel,
)
from holdfast.testing.fake_server import FakeServer, make_obedient_reply
from holdfast.testing.wire_conformance import CHECKS, Check

KEY = "sk-conformance-0123456789"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer(script=make_obedient_reply, key=KEY) as server:
        yield server


@pytest.mark.parametrize("quiet", ["body", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_every_wire_conforms(check: Check, api: str, quiet: str, server: FakeServer) -> None:
    transport = HttpTransport()
    endpoint = Endpoint(
        provider="fake", base_url=server.base_url, api=api, key=Secret(KEY), quiet=quiet
    )
    await check(WireModel(endpoint, "fake-model", transport))
    await transport.close()


@pytest.mark.parametrize("wires", [("chat",), ("chat", "responses")], ids="+".join)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_detected_api_conforms(check: Check, wires: tuple[str, ...]) -> None:
    transport = HttpTransport()
    async with FakeServer(script=make_obedient_reply, wires=wires) as server:
        endpoint = Endpoint(provider="fake", base_url=server.base_url)
        memory = RememberedApis()
        await check(ResponsesOrChat(endpoint, "fake-model", transport, memory=memory))
        expected = "responses" if "responses" in wires else "chat"
        assert memory.get(server.base_url, "fake-model") == expected
    await transport.close()
