"""Events, audit and upkeep of the store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from holdfast.canonical import JsonObject
from holdfast.client.base import JOURNAL_FILE, ClientBase
from holdfast.errors import StorageReadOnly
from holdfast.journal import Chains, Event, Finding, export_heads, parse_heads, verify
from holdfast.journal.stores import SqliteAtRest
from holdfast.sessions import RetentionPolicy, RetentionReport, Run, clean_up


class UpkeepMethods(ClientBase):
    """What the client can do with the records themselves."""

    async def list_events(
        self, session_id: str, *, after: int = 0, limit: int = 1000
    ) -> list[Event]:
        """Return the events of a session after a number, in order."""
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        return await self._journal.read(session.id, after=after, limit=limit)

    async def count_events(self, session_id: str) -> int:
        """Return the number of events of a session."""
        session = await (await self._ready()).get_session(session_id)
        return await self._sessions.last_number(session.id)

    async def watch(
        self,
        *,
        after: int | None = None,
        patterns: str | Sequence[str] = ("*",),
        session_id: str = "",
        until: Callable[[Event], bool] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they are stored, here or in another process, without gaps."""
        await self._ready()
        feed = self._journal.subscribe(
            after=after, patterns=patterns, session_id=session_id, until=until
        )
        async with contextlib.aclosing(feed):
            async for event in feed:
                yield event

    async def verify(
        self,
        *,
        session_id: str | None = None,
        heads: bytes | None = None,
        progress: Callable[[str, int], None] = lambda session_id, events: None,
    ) -> list[Finding]:
        """Check the hash chains, against exported heads if given; [] means all is well.

        Also works where nothing can be written, such as on a mounted backup; there a session
        is named by its whole id.
        """
        known = parse_heads(heads) if heads is not None else None
        chains = await self._chains()
        if session_id is not None and self._is_open:
            session_id = (await self._sessions.get_session(session_id)).id
        return await verify(chains, session_id=session_id, heads=known, progress=progress)

    async def export_heads(self) -> bytes:
        """Return the ends of all chains as JSON, to be kept elsewhere for `verify`."""
        return await export_heads(await self._chains(), self._journal.clock)

    async def _chains(self) -> Chains:
        """Return the store, or the file alone where nothing can be written."""
        try:
            await self._ready()
        except StorageReadOnly:
            path = self.base_dir / JOURNAL_FILE
            if not path.exists():
                raise
            return SqliteAtRest(path)
        return self._journal.store

    async def clean_up(self, policy: RetentionPolicy | None = None) -> RetentionReport:
        """Remove what the retention settings, or the given policy, no longer want."""
        sessions = await self._ready()
        kept = self.settings.storage.retention.model_dump()
        return await clean_up(sessions, policy or RetentionPolicy(**kept))

    async def rebuild(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Rebuild all tables from the log; returns the number of events folded."""
        return await (await self._ready()).journal.rebuild(progress)

    async def storage_stats(self) -> JsonObject:
        """Count sessions, events, blobs and bytes."""
        return await (await self._ready()).journal.store.stats()

    async def interrupted_runs(self) -> list[Run]:
        """Return runs that were under way when their process ended."""
        return await (await self._ready()).interrupted_runs()
