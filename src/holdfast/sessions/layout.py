"""The journal as plain files: one JSON file per thing, for people and other programs.

Files are copies; nothing is ever read back from them. Below the target directory:

    storage/session/{session}.json
    storage/message/{session}/{message}.json
    run-{run}.jsonl
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.canonical import hash_sha256
from holdfast.ids import is_id
from holdfast.messages import Message
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.session import Session

_PAGE = 500


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `run-<id>.jsonl`."""

    session_seq: int
    time: float
    kind: str
    version: int
    agent_path: str
    hash: str
    payload: msgspec.Raw


async def export_layout_files(manager: SessionManager) -> AsyncIterator[tuple[str, bytes]]:
    """Yield relative path and content of every file of the layout."""
    cursor = ""
    while True:
        page = await manager.list_sessions(sort="time_created", limit=_PAGE, cursor=cursor)
        for session in page.items:
            async for file in _iterate_session_files(manager, session):
                yield file
        cursor = page.next_cursor
        if not cursor:
            return


async def _iterate_session_files(
    manager: SessionManager, session: Session
) -> AsyncIterator[tuple[str, bytes]]:
    yield f"storage/session/{session.id}.json", _format_pretty(session)
    cursor = ""
    while True:
        page = await manager.messages.page(session, limit=_PAGE, cursor=cursor, newest_first=False)
        for message in page.items:
            name = _format_file_name(message.id)
            yield f"storage/message/{session.id}/{name}.json", _format_pretty(message)
        cursor = page.next_cursor
        if not cursor:
            break
    lines: dict[str, list[bytes]] = {}
    after = 0
    while events := await manager.journal.read(session.id, after=after, limit=_PAGE):
        after = events[-1].session_seq
        for event in events:
            if event.run_id:
                line = RunEvent(
                    session_seq=event.session_seq,
                    time=event.time,
                    kind=event.kind,
                    version=event.version,
                    agent_path=event.agent_path,
                    hash=event.hash,
                    payload=msgspec.Raw(event.payload),
                )
                lines.setdefault(event.run_id, []).append(msgspec.json.encode(line))
    for name in sorted(lines):
        yield f"run-{_format_file_name(name)}.jsonl", b"\n".join(lines[name]) + b"\n"


def _format_file_name(name: str) -> str:
    """Return an id as it is, anything else (an application may choose) as its digest."""
    return name if is_id(name) else hash_sha256(name.encode())


def _format_pretty(value: Session | Message) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
