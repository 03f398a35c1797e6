"""Messages: add, read, change, delete."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.messages import Message, Part, ToolPart, has_file
from holdfast.operations.caller import Caller
from holdfast.operations.operation import operation
from holdfast.runtime import Runtime
from holdfast.sessions import Page, check_open
from holdfast.tools import find_result_labels, keep_labels


@operation("sessions:write")
async def add(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    role: str,
    content: str | Sequence[Part],
    *,
    wait_s: float = 10.0,
) -> Message:
    """Add a message outside a turn; raises SessionBusy if a turn does not end in time.

    Files that it brings inline are kept as artifacts of the session, and named by the message.
    """
    if not isinstance(content, str):
        content = await _keep_files(runtime, session_id, content)
        await _keep_labels(runtime, session_id, content)
    return await runtime.sessions.add_message(session_id, role, content, wait_s=wait_s)


@operation("sessions:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    *,
    limit: int = 50,
    cursor: str = "",
    newest_first: bool = False,
) -> Page[Message]:
    """Return a page of the conversation."""
    session = await runtime.sessions.get_session(session_id)
    return await runtime.sessions.messages.page(
        session, limit=limit, cursor=cursor, newest_first=newest_first
    )


@operation("sessions:read")
async def get(runtime: Runtime, caller: Caller, /, session_id: str, message_id: str) -> Message:
    """Return one message; raises NotFound."""
    session = await runtime.sessions.get_session(session_id)
    return await runtime.sessions.messages.one(session, message_id)


@operation("sessions:write")
async def update_part(
    runtime: Runtime, caller: Caller, /, session_id: str, message_id: str, part: Part
) -> Message:
    """Replace the part with the same id, or add it."""
    [part] = await _keep_files(runtime, session_id, (part,))
    await _keep_labels(runtime, session_id, (part,))
    return await runtime.sessions.update_part(session_id, message_id, part)


@operation("sessions:write")
async def delete(runtime: Runtime, caller: Caller, /, session_id: str, message_id: str) -> None:
    """Take a message out of the conversation."""
    await runtime.sessions.delete_message(session_id, message_id)


async def _keep_files(runtime: Runtime, session_id: str, parts: Sequence[Part]) -> Sequence[Part]:
    """Return parts whose files are artifacts of a session that takes messages."""
    if not isinstance(parts, list | tuple) or not any(map(has_file, parts)):
        return parts
    session = await runtime.sessions.get_session(session_id)
    check_open(session, runtime.journal.clock.now())
    return await runtime.runs.services.files.keep(session, parts)


async def _keep_labels(runtime: Runtime, session_id: str, parts: Sequence[Part]) -> None:
    """Taint a session with results that no call of it has made, before a model can read them."""
    labels = find_result_labels(part for part in parts if isinstance(part, ToolPart))
    if labels:
        session = await runtime.sessions.get_session(session_id)
        await keep_labels(runtime.sessions, session.id, labels)
