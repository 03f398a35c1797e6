"""Shared pieces of the wire tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from wire_kit import KEY, WIRES

from holdfast.providers.wire import Endpoint, HttpTransport, Secret, Timeouts, WireModel
from holdfast.testing.fake_server import FakeServer


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer(key=KEY) as server:
        yield server


@pytest.fixture
def make_model(wire: str, server: FakeServer, transport: HttpTransport) -> Callable[..., WireModel]:
    def make(**changes: Any) -> WireModel:
        given = {
            "provider": "fake",
            "base_url": server.base_url,
            "api": wire,
            "key": Secret(KEY),
            "timeouts": Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=10),
            **changes,
        }
        return WireModel(Endpoint(**given), "fake-model", transport)

    return make


@pytest.fixture
def model(make_model: Callable[..., WireModel]) -> WireModel:
    return make_model()
