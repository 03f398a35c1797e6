"""Which run started which: a table that follows from the queued runs.

A child's facts are kept once, in the child's own session. Who wants to see a whole tree, or
has to add up what it spent, finds the runs of it here.
"""

from __future__ import annotations

import msgspec

from holdfast.agents import Starter
from holdfast.journal import Condition, Event, Journal, Payload, Projection, RowQuery
from holdfast.sessions import RunQueued

_PAGE = 1_000


class ChildRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that another one started, and where to find both."""

    id: str
    session_id: str
    agent: str
    parent_session: str
    parent_run: str = ""
    parent_call: str = ""
    root: str = ""
    path: tuple[str, ...] = ()
    """The agents from the first one down to this run's own."""
    queued_at: int = 0


class _Options(msgspec.Struct):
    starter: Starter | None = None


class ChildrenTable(Projection[ChildRun]):
    """One row per run that another one started."""

    name = "child_runs"
    version = 1
    row_type = ChildRun
    columns = ("id", "session_id", "parent_session", "parent_run", "root")
    indexes = (("parent_run",), ("parent_session",), ("root",))
    kinds = frozenset({RunQueued.kind})
    beginnings = kinds

    def key(self, event: Event, payload: Payload) -> str:
        """A child has one row, under the id of its run; other runs have none."""
        assert isinstance(payload, RunQueued)
        return payload.run_id if "starter" in payload.options else ""

    def apply(self, row: ChildRun | None, event: Event, payload: Payload) -> ChildRun | None:
        """Note who started the run."""
        assert isinstance(payload, RunQueued)
        try:
            starter = msgspec.convert(payload.options, _Options).starter
        except msgspec.ValidationError:
            return row
        if starter is None:
            return row
        return ChildRun(
            id=payload.run_id,
            session_id=event.session_id,
            agent=payload.agent,
            parent_session=starter.session_id,
            parent_run=starter.run_id,
            parent_call=starter.call_id,
            root=starter.root,
            path=(*starter.path, payload.agent) if payload.agent else starter.path,
            queued_at=event.session_seq,
        )


CHILDREN = ChildrenTable()


async def list_children_of(
    journal: Journal, column: str, values: tuple[str, ...]
) -> list[ChildRun]:
    """Return the runs whose `parent_run`, `parent_session` or `root` is one of the values."""
    if not values:
        return []
    found: list[ChildRun] = []
    after: tuple[str, str] | None = None
    while True:
        query = RowQuery(
            projection=CHILDREN,
            where=(Condition(column, "in", values),),
            order="id",
            after=after,
            limit=_PAGE,
        )
        page = await journal.rows(query)
        found += [keyed.row for keyed in page]
        if len(page) < _PAGE:
            return found
        after = (page[-1].row.id, page[-1].key)


async def list_runs_below(journal: Journal, run_id: str) -> list[ChildRun]:
    """Return every run that a run started, directly or through others."""
    return await _list_all_below(journal, "parent_run", run_id)


async def list_runs_below_session(journal: Journal, session_id: str) -> list[ChildRun]:
    """Return every run that was started from a session, directly or through others."""
    return await _list_all_below(journal, "parent_session", session_id)


async def _list_all_below(journal: Journal, column: str, start: str) -> list[ChildRun]:
    found: list[ChildRun] = []
    seen = {start}
    level: tuple[str, ...] = (start,)
    while level:
        page = await list_children_of(journal, column, level)
        found += page
        ids = [row.id if column == "parent_run" else row.session_id for row in page]
        level = tuple(dict.fromkeys(one for one in ids if one not in seen))
        seen.update(level)
    return found


__all__ = [
    "CHILDREN",
    "ChildRun",
    "ChildrenTable",
    "list_children_of",
    "list_runs_below",
    "list_runs_below_session",
]
