"""Tables that follow from the facts, also from facts that come in an odd order."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.journal import Condition, Event, Journal, Payload, RowQuery, SqliteStore
from holdfast.journal.stores._sqlite_rows import RowTables
from holdfast.messages import Message
from holdfast.sessions import (
    MESSAGES,
    RUNS,
    SESSION_PROJECTIONS,
    SESSIONS,
    SIGNALS,
    PermissionRule,
    Session,
    SessionManager,
)
from holdfast.sessions import events as facts
from holdfast.turns import Lease, LeaseKeeper, Outcome, Turn, TurnCompleted, TurnQueue


def event(fact: Payload) -> Event:
    return Event(
        seq=5,
        session_id="ses_1",
        session_seq=5,
        run_id="",
        agent_path="",
        kind=fact.kind,
        version=1,
        time=1.0,
        correlation_id="",
        causation_id="",
        epoch=0,
        payload_digest="",
        hash="",
        payload=b"",
    )


@pytest.mark.parametrize("parents", [("ses_1",), ("ses_1", "ses_2")])
async def test_children_are_looked_up_and_not_searched_for(
    tmp_path: Path, parents: tuple[str, ...]
) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SESSION_PROJECTIONS)):
        pass
    query = RowQuery(projection=SESSIONS, where=(Condition("parent_id", "in", parents),))
    sql, values = RowTables(SESSION_PROJECTIONS)._select_sql(query)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    assert any("SEARCH p USING INDEX" in row[-1] and "c_parent_id=?" in row[-1] for row in plan)


@pytest.mark.parametrize(
    ("table", "fact"),
    [
        (SESSIONS, facts.SessionArchived()),
        (MESSAGES, facts.MessageDeleted(message_id="m")),
        (RUNS, facts.RunStarted(run_id="r")),
        (SIGNALS, facts.SignalMoved(signal_id="s")),
    ],
)
def test_a_fact_about_nothing_makes_no_row(table: Any, fact: Payload) -> None:
    assert table.apply(None, event(fact), fact) is None


def test_every_kind_that_a_table_folds_exists() -> None:
    from holdfast.journal import list_known_kinds  # noqa: PLC0415

    for table in SESSION_PROJECTIONS:
        assert table.kinds <= set(list_known_kinds())
        assert set(table.columns) <= set(table.row_type.__struct_fields__)


def test_the_end_of_a_run_is_final() -> None:
    queued = facts.RunQueued(run_id="r", message=Message(id="m", session_id="", role="user"))
    row = RUNS.apply(None, event(queued), queued)
    cancel = facts.RunCancelRequested(run_id="r", reason="no")
    ended = RUNS.apply(row, event(cancel), cancel)
    assert ended is not None
    assert ended.status == "cancelled"
    for fact in (
        queued,
        facts.RunStarted(run_id="r"),
        facts.RunWoken(run_id="r", cause="c"),
        facts.RunCompleted(run_id="r"),
    ):
        assert RUNS.apply(ended, event(fact), fact) == ended


class LateKeeper(LeaseKeeper):
    """Lets somebody else go first, once."""

    first: Callable[[], Awaitable[object]] | None = None

    async def acquire(self, session_id: str) -> Lease | None:
        if self.first is not None:
            first, self.first = self.first, None
            await first()
        return await super().acquire(session_id)


@pytest.fixture
async def late(journal: Journal) -> Any:
    keeper = LateKeeper(journal)
    queue = TurnQueue(SessionManager(journal, keeper), keeper)
    yield keeper, queue
    await queue.close()
    keeper.close()


class Crashed(BaseException):
    pass


async def crash(turn: Turn) -> Outcome:
    raise Crashed


async def complete(turn: Turn) -> Outcome:
    return TurnCompleted()


async def test_a_run_that_ended_elsewhere_is_not_ended_again(
    late: Any, queue: TurnQueue, session: Session, journal: Journal
) -> None:
    keeper, slow = late
    run = await slow.submit(session.id)
    with pytest.raises(Crashed):
        await slow.run(run.id, crash)
    keeper.first = lambda: queue.run(run.id, complete)
    # The one that was faster saw the request and ended the run; once is enough.
    assert (await asyncio.wait_for(slow.cancel(run.id), 10)).status == "cancelled"
    kinds = [event.kind for event in await journal.read_all(session.id)]
    assert kinds.count("run.cancelled") == 1


async def test_a_run_that_was_taken_meanwhile_is_left_alone(
    late: Any, queue: TurnQueue, session: Session
) -> None:
    keeper, slow = late
    run = await slow.submit(session.id, is_for_any_process=True)
    keeper.first = lambda: queue.run(run.id, complete)
    assert await asyncio.wait_for(slow.drain(session.id, crash), 10) == 0
    assert (await queue.get(run.id)).status == "completed"


async def test_added_rules_come_after_those_that_are_there(session: Session) -> None:
    rule = PermissionRule(permission="bash", action="allow")
    fact = facts.SessionRulesAdded(rules=(rule,))
    once = SESSIONS.apply(session, event(fact), fact)
    twice = SESSIONS.apply(once, event(fact), fact)
    assert twice is not None
    assert twice.permission == (rule, rule)
