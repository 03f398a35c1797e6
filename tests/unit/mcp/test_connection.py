"""A connection is made once, shared, and made again after a pause that grows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.clock import SYSTEM
from holdfast.errors import McpAuthFailed, McpFailed, PermissionDenied
from holdfast.mcp.connection import Connection
from holdfast.mcp.failures import Lost, NoAnswer
from holdfast.mcp.opening import Opening
from holdfast.policy import PolicyBundle
from holdfast.runs.confinement import Confinement
from holdfast.runtime import ProcessEnvironment
from holdfast.settings.mcp import McpEndpoint
from holdfast.testing import FakeClock


class Session:
    protocol, server = "2025", "fake 1"

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.meeting: asyncio.Barrier | None = None

    async def list_tools(self) -> list[Any]:
        if self.fails:
            raise self.fails
        return [{"name": "a"}]

    async def call_tool(self, name: str, arguments: Any, **_: Any) -> Any:
        if self.meeting:
            await self.meeting.wait()
        if self.fails:
            raise self.fails
        return {"content": []}


class World:
    """Where connections come from."""

    def __init__(self) -> None:
        self.made = self.ended = 0
        self.refusal: BaseException | None = None
        self.session = Session()
        self.hang_up: Callable[[], None] = lambda: None
        self.clock = FakeClock()
        self.lost: list[tuple[str, float]] = []
        self.is_lost = asyncio.Event()

    def on_lost(self, reason: str, pause_s: float) -> None:
        self.lost.append((reason, pause_s))
        self.is_lost.set()

    @contextlib.asynccontextmanager
    async def connect(self, _opening: Opening, on_end: Callable[[], None]) -> AsyncIterator[Any]:
        if self.refusal is not None:
            raise self.refusal
        self.made += 1
        self.hang_up = on_end
        try:
            yield self.session
        finally:
            self.ended += 1

    def connection(self, **said: Any) -> Connection:
        endpoint = McpEndpoint(transport="http", url="http://127.0.0.1:1/", **said)
        opening = Opening(
            name="far",
            endpoint=endpoint,
            workspace="/",
            token=lambda name: "",
            policies=PolicyBundle,
            open_process=ProcessEnvironment(Confinement(), SYSTEM).open_process,
        )
        return Connection(
            "far",
            opening,
            self.connect,
            clock=self.clock,
            on_lost=self.on_lost,
        )


@pytest.fixture
def world() -> World:
    return World()


async def call(session: Any) -> Any:
    """Send a call."""
    return await session.call_tool("a", {})


async def test_everybody_shares_one_session(world: World) -> None:
    connection = world.connection()
    await asyncio.gather(*(connection.ask(call) for _ in range(5)))
    assert (world.made, connection.is_connected) == (1, True)
    await connection.aclose()
    await connection.aclose()
    assert (world.ended, connection.is_connected) == (1, False)
    with pytest.raises(McpFailed):
        await connection.session()


async def test_pause_after_failures_grows_and_is_kept(world: World) -> None:
    world.refusal = OSError("nobody there")
    connection = world.connection()
    for pause_s in (1, 2, 4, 8):
        with pytest.raises(McpFailed):
            await connection.session()
        assert connection.pause_s == pause_s
        with pytest.raises(McpFailed):
            await connection.session()
        world.clock.advance(pause_s)
    assert [pause for _, pause in world.lost] == [1, 2, 4, 8]
    world.clock.advance(60)
    world.refusal = None
    await connection.ask(call)
    world.refusal = OSError("gone again")
    await connection.aclose()


async def test_person_who_asks_need_not_wait(world: World) -> None:
    world.refusal = OSError("nobody there")
    connection = world.connection()
    with pytest.raises(McpFailed):
        await connection.session()
    world.refusal = None
    connection.hurry()
    await connection.session()
    await connection.aclose()


async def test_refusal_of_ours_is_no_failure_of_the_server(world: World) -> None:
    world.refusal = PermissionDenied(permission="network", target="x", because="y")
    connection = world.connection()
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            await connection.session()
    assert (connection.pause_s, world.lost) == (0, [])


async def test_first_failure_of_a_group_is_told(world: World) -> None:
    world.refusal = BaseExceptionGroup("", [asyncio.CancelledError(), OSError("the reason")])
    connection = world.connection()
    with pytest.raises(McpFailed) as raised:
        await connection.session()
    assert "the reason" in str(raised.value)


async def test_lost_session_is_replaced(world: World) -> None:
    connection = world.connection()
    await connection.session()
    world.session.fails = Lost("it broke")
    with pytest.raises(Lost):
        await connection.ask(call)
    assert world.ended == 1
    with pytest.raises(Lost):
        await connection.ask(call)
    assert [pause for _, pause in world.lost] == [0, 1]
    world.session.fails = None
    world.clock.advance(1)
    await connection.ask(call)
    assert world.made == 3
    await connection.aclose()


async def test_session_that_several_calls_lose_is_given_up_once(world: World) -> None:
    connection = world.connection()
    await connection.session()
    world.session.fails, world.session.meeting = Lost("it broke"), asyncio.Barrier(5)
    calls = [connection.ask(call) for _ in range(5)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in ended} == {Lost}
    assert (world.made, world.ended, len(world.lost)) == (1, 1, 1)
    await connection.aclose()


async def test_refusal_in_the_middle_is_told_as_such(world: World) -> None:
    connection = world.connection()
    await connection.session()
    world.session.fails = Lost("closed")
    because = PermissionDenied(permission="network", target="x", because="the policies changed")
    connection.opening.refusal = because
    with pytest.raises(PermissionDenied):
        await connection.ask(call)
    await connection.aclose()


async def test_server_that_hangs_up_is_noticed(world: World) -> None:
    connection = world.connection()
    await connection.session()
    world.hang_up()
    async with asyncio.timeout(10):
        await world.is_lost.wait()
    assert not connection.is_connected
    assert world.lost == [("it has ended", 0.0)]
    await connection.aclose()


async def test_second_silence_in_a_row_makes_a_new_connection(world: World) -> None:
    connection = world.connection()
    world.session.fails = NoAnswer("nothing")
    for is_kept in (True, False):
        with pytest.raises(NoAnswer):
            await connection.ask(call)
        assert connection.is_connected is is_kept
    await connection.aclose()


async def test_listing_that_fails_ends_the_session(world: World) -> None:
    connection = world.connection()
    world.session.fails = NoAnswer("nothing")
    with pytest.raises(McpFailed):
        await connection.list_tools()
    assert not connection.is_connected
    await connection.aclose()


async def test_missing_token_is_told_before_anything_is_sent(world: World) -> None:
    connection = world.connection(auth_token_env="NO_SUCH_TOKEN")
    with pytest.raises(McpAuthFailed):
        connection.opening.read_token()
