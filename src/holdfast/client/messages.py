"""Messages: add, read, change, delete."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.client.base import ClientBase
from holdfast.messages import Message, Part
from holdfast.sessions import Page


class MessageMethods(ClientBase):
    """What the client can do with messages."""

    async def add_message(
        self, session_id: str, role: str, content: str | Sequence[Part], *, wait_s: float = 10.0
    ) -> Message:
        """Add a message outside a turn; raises SessionBusy if a turn does not end in time."""
        sessions = await self._ready()
        return await sessions.add_message(session_id, role, content, wait_s=wait_s)

    async def list_messages(
        self,
        session_id: str,
        *,
        limit: int = 50,
        cursor: str = "",
        newest_first: bool = False,
    ) -> Page[Message]:
        """Return a page of the conversation."""
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        return await sessions.messages.page(
            session, limit=limit, cursor=cursor, newest_first=newest_first
        )

    async def get_message(self, session_id: str, message_id: str) -> Message:
        """Return one message; raises NotFound."""
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        return await sessions.messages.one(session, message_id)

    async def update_message_part(self, session_id: str, message_id: str, part: Part) -> Message:
        """Replace the part with the same id, or add it."""
        return await (await self._ready()).update_part(session_id, message_id, part)

    async def delete_message(self, session_id: str, message_id: str) -> None:
        """Take a message out of the conversation."""
        await (await self._ready()).delete_message(session_id, message_id)
