"""The history of tool calls, as it follows from the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import get_args

import msgspec

from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import UsageError
from holdfast.ids import is_id
from holdfast.journal import Event, Payload
from holdfast.messages import Message, ToolPart, ToolState
from holdfast.sessions import Session, SessionManager
from holdfast.tools.events import NestedCallEnded, ToolStarted

_PAGE = 100


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: what was asked, what came back, when, and from which version of the tool.

    `state` goes from `pending` (asked for) to `running` (its intent is in the journal; a tool
    that only reads has none) to `completed` or `error`. Times are seconds since 1970.
    """

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

    @property
    def duration_s(self) -> float | None:
        """How long it took; `None` unless it has ended."""
        if self.time_start is None or self.time_end is None:
            return None
        return self.time_end - self.time_start


class ToolExecutionTracker:
    """Reads and keeps tool executions; nothing of it lives in memory only."""

    def __init__(self, sessions: SessionManager) -> None:
        """Track the calls of these sessions."""
        self._sessions = sessions

    async def persist_execution(
        self, session_id: str, message_id: str, tool_id: str, execution: ToolExecution
    ) -> None:
        """Keep the state of a call that was executed elsewhere, as a part of its message.

        Raises:
            NotFound: there is no such session or message.
        """
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
        """Return the newest calls of a session, newest first; calls of a batch are among them.

        Raises:
            NotFound: there is no such session.
        """
        if limit < 1:
            raise UsageError(detail="limit is at least 1.")
        if state is not None and state not in get_args(ToolState):
            raise UsageError(
                detail=f"The state of a call is one of {', '.join(get_args(ToolState))}."
            )
        session = await self._sessions.get_session(session_id)
        found: list[ToolExecution] = []
        async for execution in self.executions(session):
            if tool in (None, execution.tool) and state in (None, execution.state):
                found.append(execution)
                if len(found) == limit:
                    break
        return found

    async def executions(self, session: Session) -> AsyncIterator[ToolExecution]:
        """Yield every call of a session, newest first."""
        notes: _Notes | None = None
        cursor = ""
        while True:
            page = await self._sessions.messages.page(
                session, limit=_PAGE, cursor=cursor, newest_first=True
            )
            for message in page.items:
                for part in reversed(message.tool_calls):
                    if notes is None:
                        notes = await self._read_notes(session.id)
                    for inner in reversed(notes.nested.get(part.call_id, [])):
                        yield _make_execution(message, inner, notes)
                    yield _make_execution(message, part, notes)
            cursor = page.next_cursor
            if not cursor:
                return

    async def _read_notes(self, session_id: str) -> _Notes:
        notes = _Notes()
        after, kinds = 0, frozenset({ToolStarted.kind, NestedCallEnded.kind})
        journal = self._sessions.journal
        while events := await journal.read(session_id, after=after, limit=_PAGE, kinds=kinds):
            after = events[-1].session_seq
            for event in events:
                notes.take(event, event.decode())
        return notes


class _Notes:
    """What the journal knows about calls beside the conversation."""

    def __init__(self) -> None:
        self.begun: dict[str, tuple[float, ToolStarted]] = {}
        self.nested: dict[str, list[ToolPart]] = {}

    def take(self, event: Event, fact: Payload) -> None:
        if isinstance(fact, ToolStarted):
            self.begun[fact.intent.call_id] = (event.time, fact)
        elif isinstance(fact, NestedCallEnded) and fact.part is not None:
            outer = fact.call_id.rpartition(".")[0]
            self.nested.setdefault(outer, []).append(fact.part)


def _make_execution(message: Message, part: ToolPart, notes: _Notes) -> ToolExecution:
    metadata = dict(part.metadata)
    state, time_start = part.state, part.time_start
    version, source = str(metadata.pop("tool_version", "")), str(metadata.pop("source_hash", ""))
    if part.state == "pending" and part.call_id in notes.begun:
        time_start, started = notes.begun[part.call_id]
        state, version, source = "running", started.intent.version, started.source_hash
    return ToolExecution(
        id=part.call_id,
        session_id=message.session_id,
        message_id=message.id,
        tool=part.tool,
        state=state,
        args=part.input,
        output=part.output,
        error=part.error,
        time_start=time_start,
        time_end=part.time_end,
        tool_version=version,
        source_hash=source,
        metadata=metadata,
    )


async def export_execution_files(sessions: SessionManager) -> AsyncIterator[tuple[str, bytes]]:
    """Yield `storage/tool_execution/{session}/{id}.json` of every call, for the layout export."""
    tracker = ToolExecutionTracker(sessions)
    cursor = ""
    while True:
        page = await sessions.list_sessions(sort="time_created", limit=_PAGE, cursor=cursor)
        for session in page.items:
            async for execution in tracker.executions(session):
                path = f"storage/tool_execution/{session.id}/{_format_file_name(execution.id)}.json"
                data = msgspec.json.format(msgspec.json.encode(execution), indent=2)
                yield path, data + b"\n"
        cursor = page.next_cursor
        if not cursor:
            return


def _format_file_name(call_id: str) -> str:
    """A call id comes from a model: what is no plain name gets a name of its own."""
    if is_id(call_id.replace(".", "_")):
        return call_id
    return f"call-{hash_sha256(call_id.encode(errors='replace'))[:32]}"
