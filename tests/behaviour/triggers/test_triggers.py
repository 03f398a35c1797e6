"""Triggers fire exactly once per event or tick, also after a restart and with two processes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.errors import AlreadyExists, NotFound, TriggerInvalid
from holdfast.orchestration.triggers import (
    End,
    Start,
    Timetable,
    TriggerLoop,
    read_trigger,
)
from holdfast.orchestration.triggers.loop import list_due_ticks
from holdfast.orchestration.workflows import Workflow
from holdfast.testing import FakeClock


def on_created(**more: object) -> dict[str, object]:
    return {
        "name": "greet",
        "on": {"kinds": ["session.created"], "where": "'Order' in event.data.title"},
        "agent": "greeter",
        "message": "Greet ${event.data.title}.",
        **more,
    }


class World:
    """Counts what was really started."""

    def __init__(self) -> None:
        self.started: list[tuple[str, object]] = []
        self.under_way: set[str] = set()

    async def start(self, start: Start) -> End:
        self.started.append((start.firing.occurrence, start.given))
        return End(status="completed", error={})


async def loop_of(client: AsyncClient, world: World, clock: FakeClock | None = None) -> TriggerLoop:
    journal = await client.storage.journal()
    return TriggerLoop(
        await client.sessions.manager(),
        world.start,
        clock=clock or FakeClock(journal.clock.now()),
        under_way=world.under_way,
    )


async def test_an_event_that_fits_starts_an_agent_once(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("greeter"))
        await client.triggers.add(on_created())
        await client.create_session("Order 1")
        await client.create_session("Something else")
        await client.triggers.run(once=True)
        await client.triggers.run(once=True)
        [firing] = await client.triggers.firings()
        assert (firing.status, firing.error) == ("completed", {})
        assert (await client.runs.get(firing.run_id)).status == "completed"
        page = await client.list_messages(firing.session_id)
        assert page.items[0].text == "Greet Order 1."


async def test_a_workflow_starts_with_inputs_from_the_event(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        flow = Workflow("hello", inputs={"title": {"type": "string"}}).step(
            "a", value="Hello ${inputs.title}"
        )
        await client.workflows.register(flow)
        changes = {"agent": None, "message": None, "workflow": "hello"}
        given = {k: v for k, v in on_created(**changes).items() if v is not None}
        await client.triggers.add({**given, "with": {"title": "${event.data.title}"}})
        await client.create_session("Order 7")
        await client.triggers.run(once=True)
        [firing] = await client.triggers.firings()
        assert (await client.workflows.get(firing.run_id)).output == "Hello Order 7"


async def test_events_that_came_while_nobody_looked_are_made_up_for(tmp_path: Path) -> None:
    world = World()
    async with AsyncClient(tmp_path) as client:
        await client.create_session("Order 0, before the trigger")
        await client.triggers.add(on_created())
        for number in (1, 2, 3):
            await client.create_session(f"Order {number}")
    for _ in range(3):
        async with AsyncClient(tmp_path) as client:
            loop = await loop_of(client, world)
            await loop.step()
            await loop.settle()
    assert [given for _, given in world.started] == [
        {"message": f"Greet Order {number}."} for number in (1, 2, 3)
    ]


async def test_two_processes_take_each_event_once(tmp_path: Path) -> None:
    world = World()
    async with AsyncClient(tmp_path) as one, AsyncClient(tmp_path) as other:
        await one.triggers.add(on_created())
        elsewhere = World()
        elsewhere.started = world.started
        loops = [await loop_of(one, world), await loop_of(other, elsewhere)]
        for number in range(20):
            await one.create_session(f"Order {number}")
            if number % 5 == 0:
                await asyncio.gather(*(loop.step() for loop in loops))
        await asyncio.gather(*(loop.step() for loop in loops))
        await asyncio.gather(*(loop.settle() for loop in loops))
    assert len(world.started) == len(set(map(str, world.started))) == 20


async def test_a_claim_of_a_process_that_died_is_taken_up(tmp_path: Path) -> None:
    world, never = World(), asyncio.Event()

    async def hang(start: Start) -> End:
        await never.wait()
        raise AssertionError

    async with AsyncClient(tmp_path) as client:
        await client.triggers.add(on_created())
        await client.create_session("Order 1")
        loop = TriggerLoop(await client.sessions.manager(), hang)
        assert await loop.step() == 1
        await loop.close()
    async with AsyncClient(tmp_path) as client:
        loop = await loop_of(client, world)
        await loop.step()
        await loop.settle()
        [firing] = await client.triggers.firings()
        assert firing.status == "completed"
    assert len(world.started) == 1


async def test_a_trigger_never_fires_on_what_it_started_itself(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("greeter"))
        everything = {"name": "all", "on": {"kinds": ["*"]}, "agent": "greeter", "message": "x"}
        await client.triggers.add(everything)
        await client.create_session("One")
        for _ in range(4):
            await client.triggers.run(once=True)
        assert len(await client.triggers.firings()) == 1


async def test_triggers_that_set_one_another_off_come_to_an_end(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("greeter"))
        for number in range(8):
            on = {"kinds": ["trigger.ended"], "where": f"event.data.name == 't{number - 1}'"}
            if number == 0:
                on = {"kinds": ["session.created"], "where": "event.data.title == 'One'"}
            await client.triggers.add(
                {"name": f"t{number}", "on": on, "agent": "greeter", "message": "x"}
            )
        await client.create_session("One")
        for _ in range(9):
            await client.triggers.run(once=True)
        firings = await client.triggers.firings(limit=1000)
        assert sorted((f.name, f.status) for f in firings)[-2:] == [
            ("t4", "completed"),
            ("t5", "refused"),
        ]


async def test_a_tick_fires_once_and_missed_ticks_as_the_trigger_says(tmp_path: Path) -> None:
    clock = FakeClock(datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC).timestamp())
    world = World()
    async with AsyncClient(tmp_path) as client:
        # Ticks count from the moment at which a trigger is made: by the journal's clock.
        client._runtime.journal.clock = clock
        for missed in ("skip", "once", "all"):
            at = {"cron": "*/10 * * * *", "missed": missed, "most_missed": 4}
            await client.triggers.add(
                {"name": missed, "at": at, "agent": "build", "message": "${tick.time}"}
            )
        loops = [await loop_of(client, world, clock) for _ in range(2)]
        for loop in loops:
            assert await loop.step() == 0
        clock.advance(600)
        assert sum([await loop.step() for loop in loops]) == 3
        await loops[0].settle()
        world.started.clear()
        clock.advance(3600 + 300)
        assert sum([await loop.step() for loop in loops]) == 0 + 1 + 4
        for loop in loops:
            await loop.settle()
    ticks = sorted(occurrence for occurrence, _ in world.started)
    assert ticks[-1].startswith("tick 2026-05-01T13:10:00")
    assert len(set(ticks)) == 4


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), ["01:00", "00:30"]),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), ["00:30", "01:30"]),
    ],
)
def test_summer_time_neither_loses_nor_repeats_a_tick(day: datetime, expected: list[str]) -> None:
    at = Timetable(cron="30 2 * * *", zone="Europe/Zurich", missed="all")
    start = day.timestamp()
    ticks, _ = list_due_ticks(at, after=start, now=start + 40 * 3600)
    found = [datetime.fromtimestamp(tick, UTC).strftime("%H:%M") for tick in ticks]
    assert found == expected


def test_a_year_of_missed_ticks_costs_no_more_than_its_bound() -> None:
    at = Timetable(cron="* * * * *", missed="all", most_missed=5)
    ticks, newest = list_due_ticks(at, after=0.0, now=1_800_000_000.0)
    assert (len(ticks), newest) == (5, ticks[-1])


async def test_the_loop_runs_until_told_to_stop(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("greeter"))
        await client.triggers.add(on_created())
        running = asyncio.create_task(client.triggers.run(stop))
        async with asyncio.timeout(20):
            await client.create_session("Order 5")
            async for event in client.events.watch(after=0, patterns=["trigger.ended"]):
                assert event.kind == "trigger.ended"
                break
            stop.set()
            await running
        [firing] = await client.triggers.firings()
        assert firing.status == "completed"


async def test_a_removed_trigger_fires_no_more_and_a_new_one_begins_anew(tmp_path: Path) -> None:
    world = World()
    async with AsyncClient(tmp_path) as client:
        await client.triggers.add(on_created())
        with pytest.raises(AlreadyExists):
            await client.triggers.add(on_created())
        await client.triggers.remove("greet")
        with pytest.raises(NotFound):
            await client.triggers.remove("greet")
        await client.create_session("Order 1")
        await client.triggers.add(on_created())
        loop = await loop_of(client, world)
        assert await loop.step() == 0


async def test_what_cannot_be_filled_in_is_refused_once_with_a_reason(tmp_path: Path) -> None:
    world = World()
    async with AsyncClient(tmp_path) as client:
        await client.triggers.add(on_created(message="${event.data.gone}"))
        await client.create_session("Order 1")
        loop = await loop_of(client, world)
        await loop.step()
        await loop.step()
        [firing] = await client.triggers.firings()
        assert (firing.status, firing.error["code"]) == ("refused", "expression.invalid")
        assert world.started == []


async def test_filters_of_session_and_project_hold(tmp_path: Path) -> None:
    world = World()
    async with AsyncClient(tmp_path) as client:
        kept = await client.create_session("kept", project_id="prj_one")
        other = await client.create_session("other", project_id="prj_two")
        for name, pattern in (("s", {"session": kept.id}), ("p", {"project": "prj_two"})):
            on = {"kinds": ["session.updated"], **pattern}
            await client.triggers.add({"name": name, "on": on, "agent": "a", "message": name})
        for session in (kept, other):
            await client.update_session(session.id, title="new")
        loop = await loop_of(client, world)
        await loop.step()
        await loop.settle()
    assert sorted(given["message"] for _, given in world.started) == ["p", "s"]  # type: ignore[index]


@pytest.mark.parametrize(
    "content",
    [
        {"name": "x", "agent": "a", "message": "m"},
        {"name": "x", "on": {"kinds": []}, "agent": "a", "message": "m"},
        {"name": "x", "on": {"kinds": ["a"]}, "at": {"cron": "* * * * *"}, "agent": "a"},
        {"name": "x", "at": {"cron": "* * * *"}, "agent": "a", "message": "m"},
        {"name": "x", "at": {"cron": "61 * * * *"}, "agent": "a", "message": "m"},
        {"name": "x", "at": {"cron": "* * * * *", "zone": "Mars/X"}, "agent": "a", "message": "m"},
        {"name": "x", "at": {"cron": "* * * * *"}, "agent": "a"},
        {"name": "x", "at": {"cron": "* * * * *"}, "workflow": "w", "message": "m"},
        {"name": "x", "on": {"kinds": ["a"], "where": "1 +"}, "agent": "a", "message": "m"},
        {"name": "x", "on": {"kinds": ["a"]}, "agent": "a", "message": "${steps.x}"},
        {"name": "X y", "on": {"kinds": ["a"]}, "agent": "a", "message": "m"},
    ],
)
def test_what_is_wrong_with_a_trigger_is_said(content: dict[str, object]) -> None:
    with pytest.raises(TriggerInvalid):
        read_trigger(content)
