"""Sessions: create, find, change, archive, fork, revert, export, import."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO

from holdfast.canonical import JsonObject
from holdfast.client.base import ClientBase
from holdfast.client.files import read_export, whole_file
from holdfast.sessions import (
    Page,
    PermissionRule,
    Session,
    SessionFilter,
    SessionState,
    export_lines,
)
from holdfast.sessions.manager import SortField


class SessionMethods(ClientBase):
    """What the client can do with sessions."""

    async def create_session(
        self,
        title: str,
        *,
        project_id: str = "",
        directory: str | os.PathLike[str] | None = None,
        parent_id: str = "",
        permission: Sequence[PermissionRule] = (),
        metadata: JsonObject | None = None,
        ttl_s: float | None = None,
    ) -> Session:
        """Begin a session and return it; without a directory it belongs to the workspace."""
        sessions = await self._ready()
        return await sessions.create_session(
            title,
            project_id=project_id,
            directory=self.settings.workspace if directory is None else directory,
            parent_id=parent_id,
            permission=permission,
            metadata=metadata,
            ttl_s=ttl_s,
        )

    async def get_session(self, session_id: str) -> Session:
        """Return a session by id or slug; raises NotFound."""
        return await (await self._ready()).get_session(session_id)

    async def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        sort: SortField = "time_updated",
        descending: bool = True,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Session]:
        """Return a page of sessions, most recently used first unless asked otherwise."""
        sessions = await self._ready()
        return await sessions.list_sessions(
            where, sort=sort, descending=descending, limit=limit, cursor=cursor
        )

    async def most_recent_session(self, where: SessionFilter | None = None) -> Session | None:
        """Return the session that was used last, to go on with it."""
        return await (await self._ready()).most_recent(where)

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        summary: str | None = None,
        permission: Sequence[PermissionRule] | None = None,
        metadata: JsonObject | None = None,
        ttl_s: float | None = None,
    ) -> Session:
        """Change what is given; metadata is merged key by key."""
        sessions = await self._ready()
        return await sessions.update_session(
            session_id,
            title=title,
            summary=summary,
            permission=permission,
            metadata=metadata,
            ttl_s=ttl_s,
        )

    async def change_session_state(
        self, session_id: str, state: SessionState, *, reason: str = ""
    ) -> Session:
        """Bring a session to another state; raises InvalidTransition if that is not legal."""
        sessions = await self._ready()
        return await sessions.change_state(session_id, state, reason=reason)

    async def archive_session(self, session_id: str, *, reason: str = "") -> Session:
        """Put a session away; `restore_session` brings it back."""
        return await (await self._ready()).archive_session(session_id, reason=reason)

    async def restore_session(self, session_id: str, *, reason: str = "") -> Session:
        """Make a session active again."""
        return await (await self._ready()).restore_session(session_id, reason=reason)

    async def delete_session(self, session_id: str, *, reason: str = "") -> None:
        """Remove a session for good; only the fact that it existed remains."""
        await (await self._ready()).delete_session(session_id, reason=reason)

    async def fork_session(
        self, session_id: str, *, at: int | None = None, title: str = ""
    ) -> Session:
        """Begin a new session with everything up to event `at` taken over."""
        return await (await self._ready()).fork_session(session_id, at=at, title=title)

    async def revert_session(self, session_id: str, *, to: int) -> Session:
        """Make the conversation what it was at event `to`; the log keeps what came after."""
        return await (await self._ready()).revert_session(session_id, to=to)

    async def export_session(self, session_id: str, target: str | os.PathLike[str]) -> int:
        """Write a whole session to one file and return the number of events.

        The file appears complete or not at all, readable by its owner only.
        """
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        count = -1
        with whole_file(Path(target)) as file:
            async for line in export_lines(self._journal, session.id):
                file.write(line)
                count += 1
        return count

    async def session_lines(self, session_id: str) -> AsyncIterator[bytes]:
        """Yield the lines of an export, in bounded memory."""
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        async for line in export_lines(self._journal, session.id):
            yield line

    async def import_session(
        self, source: str | os.PathLike[str] | IO[bytes], *, as_new: bool = False
    ) -> Session:
        """Bring in an exported session, hashes and all; `as_new` makes a copy without runs.

        The whole file is checked before anything is changed.

        Raises:
            InvalidImport: the file is no export, is damaged, cut short or was changed.
            AlreadyExists: the session is already here; import it `as_new`.
        """
        sessions = await self._ready()
        events = await asyncio.to_thread(read_export, source)
        return await sessions.import_events(events, as_new=as_new)
