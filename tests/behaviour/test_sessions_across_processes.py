"""One session, several processes: order, takeover, cancellation, steering. (1.5, 1.6)"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncClient
from holdfast.errors import SessionBusy
from holdfast.messages import Message
from holdfast.sessions import Session, compose
from holdfast.settings import load_settings
from holdfast.turns import Outcome, Turn, TurnCompleted, TurnQueue

WAIT_S = 60
TTL_S = 1.0
"""How soon a session is taken over from a process that is gone."""
LONG_S = 600.0
"""Where nobody is gone, nothing may be taken over, however long a slow disk holds somebody up."""

PRELUDE = """
import asyncio, sys
from holdfast import AsyncClient
from holdfast.errors import LeaseLost
from holdfast.sessions import compose
from holdfast.turns import TurnCancelled, TurnCompleted, TurnParked
from holdfast.settings import load_settings

settings = load_settings(overrides={"sessions.lease_ttl_s": float(sys.argv[3])}).settings
session_id = sys.argv[2]

def say(*words):
    print(*words, flush=True)

async def hear():
    return (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()

async def main():
    async with AsyncClient(sys.argv[1], settings=settings) as client:
        await work(client, await client.runs.turns())
"""


class Child:
    """Another process with its own client, that talks by lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self) -> str:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), WAIT_S)
        return line.decode().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    async def end(self) -> int:
        return await asyncio.wait_for(self.process.wait(), WAIT_S)


@contextlib.asynccontextmanager
async def child(
    state: Path, session: Session, work: str, ttl_s: float = LONG_S
) -> AsyncIterator[Child]:
    code = PRELUDE + textwrap.dedent(work) + "\nasyncio.run(main())\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(state),
        session.id,
        str(ttl_s),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def client(state: Path) -> AsyncIterator[AsyncClient]:
    settings = load_settings(overrides={"sessions.lease_ttl_s": TTL_S}).settings
    async with AsyncClient(state, settings=settings) as client:
        yield client


@pytest.fixture
async def queue(client: AsyncClient) -> TurnQueue:
    return await client.runs.turns()


@pytest.fixture
async def session(client: AsyncClient) -> Session:
    return await client.create_session("Shared")


async def texts(client: AsyncClient, session: Session) -> list[str]:
    found: list[Message] = []
    cursor = ""
    while True:
        page = await client.list_messages(session.id, limit=500, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if not cursor:
            return [message.text for message in found]


async def complete(turn: Turn) -> Outcome:
    return TurnCompleted(result={"resumed": turn.is_resumed})


TURNS = """
async def work(client, queue):
    async def one(number):
        async def handler(turn):
            for word in ("asks", "works", "answers"):
                text = f"{number} {word}"
                await turn.add_message(compose(session_id, "user", text, 0.0))
            return TurnCompleted()
        run = await queue.submit(session_id)
        assert (await queue.run(run.id, handler)).status == "completed"
    for start in range(0, 100, 10):
        await asyncio.gather(*(one(f"{sys.argv[0]}{NAME}-{n}") for n in range(start, start + 10)))
    say("done")
"""


async def test_two_processes_200_turns_every_turn_whole_and_in_order(
    client: AsyncClient, state: Path, session: Session
) -> None:
    """[1.6] Two concurrent writers never lose or interleave a turn."""
    async with (
        child(state, session, TURNS.replace("NAME", "'a'")) as one,
        child(state, session, TURNS.replace("NAME", "'b'")) as two,
    ):
        assert [await one.hear(), await two.hear()] == ["done", "done"]
        assert [await one.end(), await two.end()] == [0, 0]
    said = await texts(client, session)
    assert len(said) == 600
    turns = [said[n : n + 3] for n in range(0, 600, 3)]
    for turn in turns:
        name = turn[0].split()[0]
        assert turn == [f"{name} asks", f"{name} works", f"{name} answers"]
    assert len({turn[0] for turn in turns}) == 200
    events = []
    while page := await client.events.list(session.id, after=len(events)):
        events += page
    queued = [event.run_id for event in events if event.kind == "run.queued"]
    for_each: dict[str, list[str]] = {}
    for event in events:
        if event.run_id:
            for_each.setdefault(event.run_id, []).append(event.kind)
    assert len(queued) == 200
    assert {tuple(kinds) for kinds in for_each.values()} == {
        ("run.queued", "run.started", *("message.created",) * 3, "run.completed")
    }
    assert await client.audit.verify() == []


HOLD = """
async def work(client, queue):
    async def handler(turn):
        await turn.add_message(compose(session_id, "user", "before", 0.0))
        say("begun", turn.run.id)
        heard = ""
        while True:
            try:
                heard = heard or await hear()
                await turn.add_message(compose(session_id, "user", heard, 0.0))
                break
            except asyncio.CancelledError:
                # The loss of the lease stops it; it tries to write all the same.
                heard = "from the grave"
            except LeaseLost:
                say("refused")
                raise
        taken = await turn.take_steering()
        say("steered", *[message.text for message in taken])
        if turn.cancelled.is_set():
            return TurnCancelled()
        return TurnCompleted()
    run = await queue.submit(session_id)
    ended = await queue.run(run.id, handler)
    say(ended.status)
"""


async def test_a_killed_process_is_replaced_by_another(
    client: AsyncClient, queue: TurnQueue, state: Path, session: Session
) -> None:
    """[1.5] Recovery after a crash: the run is found, and goes on from what is stored."""
    async with child(state, session, HOLD, TTL_S) as other:
        _, run_id = (await other.hear()).split()
        waiting = await queue.submit(session.id)
        other.process.kill()
        await other.end()
    ended = await asyncio.wait_for(queue.run(waiting.id, complete), WAIT_S)
    assert ended.result == {"resumed": False}
    assert (await queue.get(run_id)).result == {"resumed": True}
    assert await texts(client, session) == ["before"]
    assert await client.runs.interrupted() == []


async def test_a_stopped_process_that_wakes_up_cannot_write(
    client: AsyncClient, queue: TurnQueue, state: Path, session: Session
) -> None:
    """[1.6] The store refuses a writer whose lease has moved on."""
    async with child(state, session, HOLD, TTL_S) as other:
        _, run_id = (await other.hear()).split()
        other.process.send_signal(signal.SIGSTOP)
        other.tell("from the grave")
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def takes_over(turn: Turn) -> Outcome:
            begun.set()
            await go_on.wait()
            return TurnCompleted()

        mine = asyncio.create_task(queue.run(run_id, takes_over))
        await asyncio.wait_for(begun.wait(), WAIT_S)
        before = await client.events.list(session.id)
        other.process.send_signal(signal.SIGCONT)
        assert await other.hear() == "refused"
        assert await client.events.list(session.id) == before
        go_on.set()
        assert (await asyncio.wait_for(mine, WAIT_S)).status == "completed"
        assert await other.hear() == "completed"
        assert await other.end() == 0
    assert await texts(client, session) == ["before"]
    assert await client.audit.verify() == []


async def test_steering_cancelling_and_rejecting_reach_a_run_in_another_process(
    client: AsyncClient, queue: TurnQueue, state: Path, session: Session
) -> None:
    async with child(state, session, HOLD) as other:
        _, run_id = (await other.hear()).split()
        with pytest.raises(SessionBusy):
            await queue.submit(session.id, on_busy="reject")
        with pytest.raises(SessionBusy):
            await client.add_message(session.id, "user", "me too", wait_s=0)
        steered = await queue.submit(
            session.id, compose(session.id, "user", "left", 0.0), on_busy="steer"
        )
        assert steered.id == run_id
        other.tell("after")
        assert await other.hear() == "steered left"
        assert await other.hear() == "completed"
        assert await other.end() == 0
    assert await texts(client, session) == ["before", "after", "left"]


UNTIL_CANCELLED = """
async def work(client, queue):
    async def handler(turn):
        say("begun", turn.run.id)
        await asyncio.wait_for(turn.cancelled.wait(), 60)
        return TurnCancelled()
    run = await queue.submit(session_id)
    ended = await queue.run(run.id, handler)
    say(ended.status, ended.reason)
"""


async def test_interrupting_a_run_in_another_process_goes_first(
    client: AsyncClient, queue: TurnQueue, state: Path, session: Session
) -> None:
    async with child(state, session, UNTIL_CANCELLED) as other:
        await other.hear()
        behind = await queue.submit(session.id)
        urgent = await queue.submit(session.id, on_busy="interrupt")
        order: list[str] = []

        async def handler(turn: Turn) -> Outcome:
            order.append(turn.run.id)
            return TurnCompleted()

        runs: Any = [queue.run(run.id, handler) for run in (behind, urgent)]
        await asyncio.wait_for(asyncio.gather(*runs), WAIT_S)
        assert order == [urgent.id, behind.id]
        assert await other.hear() == f"cancelled interrupted by {urgent.id}"
        assert await other.end() == 0


PARK = """
async def work(client, queue):
    async def handler(turn):
        return TurnParked(reason="approval")
    run = await queue.submit(session_id)
    say((await queue.run(run.id, handler)).status, run.id)
"""


async def test_a_run_parked_in_one_process_goes_on_in_another(
    client: AsyncClient, queue: TurnQueue, state: Path, session: Session
) -> None:
    async with child(state, session, PARK) as other:
        status, run_id = (await other.hear()).split()
        assert status == "parked"
        assert await other.end() == 0
    assert await queue.drain(session.id, complete) == 0
    await queue.wake(run_id, cause="approved")
    assert (await asyncio.wait_for(queue.run(run_id, complete), WAIT_S)).result == {"resumed": True}
