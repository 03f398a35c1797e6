"""A turn that is cancelled while it stores: what is stored stays, once; what is not, waits."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.journal import Journal, SqliteStore
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.redaction import Redactor
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.sessions.events import MessageCreated
from holdfast.turns import LeaseKeeper, Outcome, Turn, TurnCompleted, TurnQueue
from holdfast.turns.turn import Handler

WAIT_S = 20


def said(text: str, *parts: ToolPart, role: str = "assistant") -> Message:
    spoken = TextPart(id=f"prt_{text}", text=text)
    return Message(id=f"msg_{text}", session_id="", role=role, parts=(spoken, *parts))


class Busy:
    """A journal in a file, whose lock another process can take."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self.journal = journal
        self._path = path

    async def cancelled_in_the_commit(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin a write, and cancel it while a thread waits for the lock of the file."""
        store = self.journal.store
        assert isinstance(store, SqliteStore) and store._writer is not None
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            task = asyncio.create_task(work)
            for _ in range(3):  # on the loop, in a group on the loop, in a thread
                await asyncio.sleep(0)
            assert store._writer.idle is None
            task.cancel()
            other.execute("COMMIT")
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[Busy]:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SESSION_PROJECTIONS)) as journal:
        yield Busy(journal, path)


async def in_a_turn(busy: Busy, handler: Handler) -> list[Message]:
    """Do something in a turn, and return what the session holds after it."""
    keeper = LeaseKeeper(busy.journal)
    manager = SessionManager(busy.journal, keeper)
    queue = TurnQueue(manager, keeper)
    session = await manager.create_session("s")
    run = await queue.submit(session.id, said("hello", role="user"))
    ended = await asyncio.wait_for(queue.run(run.id, handler), WAIT_S)
    assert ended.status == "completed", ended
    await queue.close()
    keeper.close()
    return list(await manager.messages.all(await manager.get_session(session.id)))


async def test_what_was_deferred_is_stored_once_when_the_cancellation_comes_in_the_commit(busy):
    async def handler(turn: Turn) -> Outcome:
        turn.defer(MessageCreated(message=said("first")))
        await busy.cancelled_in_the_commit(turn.add_message(said("second")))
        await turn.flush()
        return TurnCompleted()

    assert [message.text for message in await in_a_turn(busy, handler)] == ["first", "second"]


async def test_what_was_deferred_with_a_secret_is_stored_once_and_without_it(busy):
    busy.journal.redactor = Redactor({"pin": "correct-horse-battery"})

    async def handler(turn: Turn) -> Outcome:
        turn.defer(MessageCreated(message=said("correct-horse-battery")))
        await busy.cancelled_in_the_commit(turn.add_message(said("second")))
        await turn.flush()
        assert turn.was_redacted
        return TurnCompleted()

    assert [one.text for one in await in_a_turn(busy, handler)] == ["[redacted:pin]", "second"]


async def test_what_was_deferred_waits_on_when_the_cancellation_comes_before_the_commit(busy):
    async def handler(turn: Turn) -> Outcome:
        turn.defer(MessageCreated(message=said("first")))
        # Another write in the same tick, so that both are grouped and wait for the next one.
        other = asyncio.create_task(busy.journal.store.acquire("another", "me", 60))
        adding = asyncio.create_task(turn.add_message(said("second")))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.gather(other, adding, return_exceptions=True)
        assert adding.cancelled()
        await turn.flush()
        return TurnCompleted()

    assert [message.text for message in await in_a_turn(busy, handler)] == ["first"]


async def test_calls_are_closed_of_which_nobody_heard_that_they_are_stored(busy):
    call = ToolPart(id="prt_c", call_id="c", tool="look", state="pending")

    async def handler(turn: Turn) -> Outcome:
        await busy.cancelled_in_the_commit(turn.add_message(said("asks", call)))
        closed = await turn.close_calls("Cut off.")
        assert [(part.call_id, part.error) for part in closed] == [("c", "Cut off.")]
        assert await turn.close_calls("Again.") == ()
        return TurnCompleted()

    [message] = await in_a_turn(busy, handler)
    assert [(part.state, part.error) for part in message.tool_calls] == [("error", "Cut off.")]
