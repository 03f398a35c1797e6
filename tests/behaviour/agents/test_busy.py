"""A session that is busy: wait, be refused, go first, or say it to the run under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import NotFound, SessionBusy
from holdfast.testing import ScriptedModel, tool_call


class Door:
    """A tool that waits behind a door."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def agent(self, *answers: object) -> Agent:
        @tool(effect="read")
        async def wait() -> str:
            """Wait for the door."""
            self.reached.set()
            await self.opened.wait()
            return "open"

        self.model = ScriptedModel(tool_call("wait"), *answers)  # type: ignore[arg-type]
        return Agent("waiter", model=self.model, tools=[wait])

    async def is_reached(self) -> None:
        async with asyncio.timeout(30):
            await self.reached.wait()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path) as opened:
        yield opened


OTHER = Agent("other", model=ScriptedModel("other"))


async def test_a_run_under_way_hears_what_is_said_to_it(client: AsyncClient) -> None:
    session, door = await client.create_session("s"), Door()
    with pytest.raises(NotFound):
        await client.runs.steer(session.id, "too early")
    run = asyncio.create_task(client.execute_agent(door.agent("done"), session.id, "go"))
    await door.is_reached()
    steered = await client.runs.steer(session.id, "and be quick")
    door.opened.set()
    result = await run
    assert (result.response, result.run_id) == ("done", steered.id)
    assert door.model.requests[-1].messages[-1].text == "and be quick"
    with pytest.raises(NotFound):
        await client.runs.steer(session.id, "too late")


async def test_a_turn_on_a_busy_session_can_steer_it_or_be_refused(client: AsyncClient) -> None:
    session, door = await client.create_session("s"), Door()
    run = asyncio.create_task(client.execute_agent(door.agent("done"), session.id, "go"))
    await door.is_reached()
    with pytest.raises(SessionBusy):
        await client.execute_agent(OTHER, session.id, "hello?", on_busy="reject")
    joined = asyncio.create_task(
        client.execute_agent(OTHER, session.id, "and be quick", on_busy="steer")
    )
    async with asyncio.timeout(30):
        async for event in client.events.stream("run.steered", after=0):
            assert event.session_id == session.id
            break
    door.opened.set()
    assert (await run).run_id == (await joined).run_id
    texts = [m.text for m in (await client.list_messages(session.id)).items if m.role == "user"]
    assert texts == ["go", "and be quick"]


async def test_an_interrupting_turn_ends_the_one_before_and_leaves_it_whole(
    client: AsyncClient,
) -> None:
    session, door = await client.create_session("s"), Door()
    run = asyncio.create_task(client.execute_agent(door.agent("never"), session.id, "go"))
    await door.is_reached()
    result = await client.execute_agent(OTHER, session.id, "stop it", on_busy="interrupt")
    assert (result.response, (await run).status) == ("other", "cancelled")
    page = await client.list_messages(session.id)
    assert all(part.state == "error" for m in page.items for part in m.tool_calls)


async def test_the_settings_say_what_a_call_does_not(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        client.settings = client.settings.model_copy(
            update={"sessions": client.settings.sessions.model_copy(update={"on_busy": "reject"})}
        )
        session, door = await client.create_session("s"), Door()
        run = asyncio.create_task(client.execute_agent(door.agent("done"), session.id, "go"))
        await door.is_reached()
        with pytest.raises(SessionBusy):
            await client.execute_agent(OTHER, session.id, "hello?")
        door.opened.set()
        assert (await run).response == "done"
