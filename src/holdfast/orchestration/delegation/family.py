"""The events of a session and of all that were started from it, each under its path.

They are stored once, in the session in which they happened; here they are read together.
"""

from __future__ import annotations

import heapq

import msgspec

from holdfast.agents import KeptRequest
from holdfast.errors import NotFound
from holdfast.journal import Condition, Event, RowQuery
from holdfast.runs import list_runs_below_session, read_lineage
from holdfast.sessions import SESSIONS, RunQueued, SessionManager

_PAGE = 500


class FamilyEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and the agents in whose run it happened, from the first one down.

    `depth` is 0 for the session itself, 1 for those that it started, and so on.
    """

    path: str
    depth: int
    event: Event


class Family:
    """A session and all that were started from it."""

    def __init__(self, sessions: SessionManager, session_id: str) -> None:
        """Look at the family of this session."""
        self._sessions = sessions
        self._session_id = session_id
        self._depths: dict[str, int | None] = {session_id: 0}
        self._paths: dict[str, str] = {}

    async def has(self, session_id: str) -> bool:
        """Say whether a session belongs to it, as soon as that session exists."""
        return await self._measure_depth(session_id) is not None

    async def view(self, event: Event) -> FamilyEvent | None:
        """Return an event under its path; `None` if it belongs to another run."""
        depth = await self._measure_depth(event.session_id)
        if depth is None:
            return None
        if event.kind == RunQueued.kind and depth:
            self._note_path(event)
        path = event.agent_path or self._paths.get(event.session_id, "")
        return FamilyEvent(path=path, depth=depth, event=event)

    async def events(self, *, after: int = 0, limit: int = 1_000) -> list[FamilyEvent]:
        """Return stored events after a `seq`, in the order in which they happened."""
        journal = self._sessions.journal
        for row in await list_runs_below_session(journal, self._session_id):
            self._paths.setdefault(row.session_id, "/".join(row.path))
        chains = [await self._read_chain(one, after, limit) for one in await self._list_members()]
        merged = list(heapq.merge(*chains, key=lambda event: event.seq))[:limit]
        views = [await self.view(event) for event in merged]
        return [view for view in views if view is not None]

    async def _list_members(self) -> list[str]:
        """The session and all below it, also those in which nothing has run."""
        found = [self._session_id]
        level: tuple[str, ...] = (self._session_id,)
        while level:
            query = RowQuery(
                projection=SESSIONS, where=(Condition("parent_id", "in", level),), limit=10_000
            )
            rows = [keyed.row for keyed in await self._sessions.journal.rows(query)]
            level = tuple(row.id for row in rows if row.id not in found)
            found += level
        return found

    def _note_path(self, event: Event) -> None:
        """Learn who works in a child session from the run that is queued there."""
        queued = event.decode()
        assert isinstance(queued, RunQueued)
        starter = KeptRequest.of(queued.options).starter if "starter" in queued.options else None
        if starter is not None:
            names = (*starter.path, queued.agent) if queued.agent else starter.path
            self._paths[event.session_id] = "/".join(names)

    async def _read_chain(self, session_id: str, after: int, limit: int) -> list[Event]:
        events: list[Event] = []
        place = 0
        while len(events) < limit and (
            page := await self._sessions.journal.read(session_id, after=place, limit=_PAGE)
        ):
            events += [event for event in page if event.seq > after]
            place = page[-1].session_seq
        return events[:limit]

    async def _measure_depth(self, session_id: str) -> int | None:
        if session_id not in self._depths:
            try:
                session = await self._sessions.get_session(session_id)
            except NotFound:
                return None  # the system's chain, or not there yet
            above = read_lineage(session)
            depth = await self._measure_depth(above.session_id) if above is not None else None
            self._depths[session_id] = None if depth is None else depth + 1
            if above is not None and depth is not None:
                self._paths.setdefault(session_id, "/".join(above.path))
        return self._depths[session_id]
