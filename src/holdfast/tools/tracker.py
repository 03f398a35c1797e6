"""The history of tool calls, as it follows from the conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import Message, ToolPart, ToolState
from holdfast.sessions import Session, SessionManager
from holdfast.tools.ledger import read_records

_PAGE = 100


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: what was asked, what came back, when, and from which version of the tool."""

    id: str
    session_id: str
    message_id: str
    tool: str
    state: ToolState
    args: JsonObject
    output: str = ""
    error: str = ""
    time_start: float | None = None
    time_end: float | None = None
    tool_version: str = ""
    source_hash: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)


class ToolExecutionTracker:
    """Reads and keeps tool executions; nothing of it lives in memory only."""

    def __init__(self, sessions: SessionManager) -> None:
        """Track the calls of these sessions."""
        self._sessions = sessions

    async def persist_execution(
        self, session_id: str, message_id: str, tool_id: str, execution: ToolExecution
    ) -> None:
        """Keep the state of a call that was executed elsewhere, as a part of its message."""
        part = ToolPart(
            id=execution.id,
            call_id=execution.id,
            tool=tool_id,
            state=execution.state,
            input=execution.args,
            output=execution.output,
            error=execution.error,
            time_start=execution.time_start,
            time_end=execution.time_end,
            metadata={
                **execution.metadata,
                "tool_version": execution.tool_version,
                "source_hash": execution.source_hash,
            },
        )
        await self._sessions.update_part(session_id, message_id, part)

    async def get_execution_history(
        self,
        session_id: str,
        limit: int = 100,
        *,
        tool: str | None = None,
        state: ToolState | None = None,
    ) -> list[ToolExecution]:
        """Return the newest calls of a session, newest first."""
        session = await self._sessions.get_session(session_id)
        found: list[ToolExecution] = []
        async for execution in self._newest_first(session):
            if tool in (None, execution.tool) and state in (None, execution.state):
                found.append(execution)
                if len(found) == limit:
                    break
        return found

    async def _newest_first(self, session: Session) -> AsyncIterator[ToolExecution]:
        begun: set[str] | None = None
        cursor = ""
        while True:
            page = await self._sessions.messages.page(
                session, limit=_PAGE, cursor=cursor, newest_first=True
            )
            for message in page.items:
                for part in reversed(message.tool_calls):
                    if part.state == "pending" and begun is None:
                        begun = set(await read_records(self._sessions.journal, session.id))
                    yield _execution(message, part, begun or set())
            cursor = page.next_cursor
            if not cursor:
                return


def _execution(message: Message, part: ToolPart, begun: set[str]) -> ToolExecution:
    is_running = part.state == "pending" and part.call_id in begun
    metadata = dict(part.metadata)
    return ToolExecution(
        id=part.call_id,
        session_id=message.session_id,
        message_id=message.id,
        tool=part.tool,
        state="running" if is_running else part.state,
        args=part.input,
        output=part.output,
        error=part.error,
        time_start=part.time_start,
        time_end=part.time_end,
        tool_version=str(metadata.pop("tool_version", "")),
        source_hash=str(metadata.pop("source_hash", "")),
        metadata=metadata,
    )
