"""Sessions and messages under the names of other SDKs, over the one journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic

from holdfast.agents import Agent, AgentResult, OutputT
from holdfast.canonical import JsonObject
from holdfast.client import AsyncClient
from holdfast.messages import Message, Part, UserContent, make_user_content
from holdfast.runs import StreamItem
from holdfast.sessions import Session

_PAGE = 200


class AISession(Generic[OutputT]):
    """One agent in one real session: messages go in, results come out, all of it is kept."""

    def __init__(
        self, client: AsyncClient, session: Session | str, agent: Agent[OutputT, Any] | str = ""
    ) -> None:
        """Work in this session; without an agent, with the session's own."""
        self._client = client
        self._agent = agent
        self.session_id = session if isinstance(session, str) else session.id

    async def process_message(
        self,
        message: UserContent,
        *,
        run_id: str = "",
        options: JsonObject | None = None,
        deps: object = None,
    ) -> AgentResult[OutputT]:
        """Answer a message; tools run, and a failure is a result.

        Raises:
            RunIdReused: the run of this id began with another message.
        """
        content = make_user_content(message)
        return await self._client.execute_agent(
            self._agent, self.session_id, content, options, run_id=run_id, deps=deps
        )

    async def stream_message(
        self, message: UserContent, *, run_id: str = "", deps: object = None
    ) -> AsyncIterator[StreamItem[OutputT]]:
        """Answer a message and yield what happens; the last item is the result."""
        content = make_user_content(message)
        items = self._client.runs.stream(
            self._agent, self.session_id, content, run_id=run_id, deps=deps
        )
        async for item in items:
            yield item

    async def read_messages(self) -> tuple[Message, ...]:
        """Return the whole conversation, oldest first."""
        return await MessageStorage(self._client).list_messages(self.session_id)


class SessionStorage:
    """Sessions of a client: create, find, change, delete."""

    def __init__(self, client: AsyncClient) -> None:
        """Keep sessions where this client does."""
        self._client = client

    async def create_session(self, title: str, *, metadata: JsonObject | None = None) -> Session:
        """Begin a session; it belongs to the workspace of the client."""
        return await self._client.sessions.create(title, metadata=metadata)

    async def get_session(self, session_id: str) -> Session:
        """Return a session; raises NotFound."""
        return await self._client.sessions.get(session_id)

    async def list_sessions(self, *, limit: int = _PAGE) -> tuple[Session, ...]:
        """Return sessions, newest first."""
        return tuple((await self._client.sessions.list(limit=limit)).items)

    async def update_session(self, session_id: str, **changes: Any) -> Session:  # noqa: ANN401
        """Change the fields of a session; raises NotFound."""
        return await self._client.sessions.update(session_id, **changes)

    async def delete_session(self, session_id: str) -> None:
        """Delete a session, and what belongs to it; raises NotFound."""
        await self._client.sessions.delete(session_id)


class MessageStorage:
    """Messages of a client's sessions: add, read, delete."""

    def __init__(self, client: AsyncClient) -> None:
        """Keep messages where this client does."""
        self._client = client

    async def add_message(
        self, session_id: str, role: str, content: str | Sequence[Part]
    ) -> Message:
        """Add a message outside a turn; raises SessionBusy while one is under way."""
        return await self._client.messages.add(session_id, role, content)

    async def list_messages(self, session_id: str) -> tuple[Message, ...]:
        """Return the whole conversation, oldest first."""
        found: list[Message] = []
        cursor = ""
        while True:
            page = await self._client.messages.list(session_id, limit=_PAGE, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if not cursor:
                return tuple(found)

    async def get_message(self, session_id: str, message_id: str) -> Message:
        """Return one message; raises NotFound."""
        return await self._client.messages.get(session_id, message_id)

    async def delete_message(self, session_id: str, message_id: str) -> None:
        """Take a message out of the conversation; raises NotFound."""
        await self._client.messages.delete(session_id, message_id)


__all__ = ["AISession", "MessageStorage", "SessionStorage"]
