"""Take back what a session did: its messages, and the files that its calls changed.

A file is restored only where that loses nothing: what lies there now is what the last of these
calls wrote, and what lay there before the first is known to the byte. Everything else stays as
it is, and the report says why. Commands and other effects are never taken back.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.canonical import hash_sha256
from holdfast.errors import FileMissing, HoldfastError, UsageError
from holdfast.runs import Confinement, list_runs_below
from holdfast.sessions import Session, SessionManager, get_run, is_hidden
from holdfast.tools import FilesRestored, ToolStarted, Workspace

_PAGE: Final = 1_000
_KINDS: Final = frozenset({ToolStarted.kind})
_CHANGED: Final = "it was changed by something else since"
_NOT_KEPT: Final = "its earlier content was not kept: too long, no text, or it held a secret"


class UndoReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo did: the session as it is now, files restored, and files left by reason."""

    session: Session
    message: str
    """The message that was taken back, the newest if there were several."""
    restored: tuple[str, ...] = ()
    left: dict[str, str] = msgspec.field(default_factory=dict)


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """One call that was about to change a file; hashes, empty where there was no file."""

    before: str
    after: str
    text: str | None = None


class UndoService:
    """Takes back the newest part of a session."""

    def __init__(self, sessions: SessionManager, confinement: Confinement) -> None:
        """Restore files inside what confines the session's own calls."""
        self._sessions = sessions
        self._journal = sessions.journal
        self._confinement = confinement

    async def undo(self, session_id: str, to: int | None) -> UndoReport:
        """Take back everything after event `to`; see `operations.sessions.undo`."""
        sessions = self._sessions
        session = await sessions.get_session(session_id)
        asked = [
            one for one in await sessions.messages.all(session) if one.role == "user" and one.run_id
        ]
        back: list[str] = []
        newest = ""
        for message in reversed(asked):
            begun = (await get_run(self._journal, message.run_id)).queued_at
            to = begun - 1 if to is None else to
            if begun <= to:
                break
            back.append(message.run_id)
            newest = newest or message.text
        if to is None:
            raise UsageError(detail="There is nothing to take back.")
        changes = await self._list_changes(session, to, back)
        restored: tuple[str, ...] = ()
        left: dict[str, str] = {}
        if changes:
            # A crash in between leaves files restored and messages there: the same call again
            # finds nothing left to restore, and takes the messages back.
            async with sessions.writing(session.id) as hold:
                await sessions.check_idle(session.id)
                restored, left = await self._restore(session.directory, changes)
                await hold.append(FilesRestored(to=to, restored=restored, left=left), is_last=True)
        after = await sessions.revert_session(session.id, to=to)
        return UndoReport(session=after, message=newest, restored=restored, left=left)

    async def _list_changes(
        self, session: Session, to: int, runs: list[str]
    ) -> dict[str, list[_Change]]:
        """Return what calls after an event were about to do to files, in order, by path."""
        found: dict[str, list[tuple[int, _Change]]] = {}
        await self._collect(session, None, found, after=to)
        for run_id in runs:
            below = await list_runs_below(self._journal, run_id)
            for place in dict.fromkeys(child.session_id for child in below):
                child = await self._sessions.get_session(place)
                if child.directory == session.directory:
                    await self._collect(child, {one.id for one in below}, found)
        return {
            path: [change for _, change in sorted(changes, key=lambda one: one[0])]
            for path, changes in found.items()
        }

    async def _collect(
        self,
        session: Session,
        runs: set[str] | None,
        found: dict[str, list[tuple[int, _Change]]],
        *,
        after: int = 0,
    ) -> None:
        seen: set[str] = set()
        while True:
            page = await self._journal.read(session.id, after=after, kinds=_KINDS, limit=_PAGE)
            for event in page:
                after = event.session_seq
                fact = event.expect(ToolStarted)
                intent, noted = fact.intent, fact.intent.noted
                path = intent.arguments.get("file_path")
                if "before" not in noted or not isinstance(path, str) or intent.call_id in seen:
                    continue
                if is_hidden(session.hidden, after) or (
                    runs is not None and event.run_id not in runs
                ):
                    continue
                seen.add(intent.call_id)
                change = _Change(
                    before=noted["before"], after=noted["after"], text=noted.get("text")
                )
                found.setdefault(path, []).append((event.seq, change))
            if len(page) < _PAGE:
                return

    async def _restore(
        self, directory: str, changes: dict[str, list[_Change]]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        workspace = self._confinement.workspace(directory)
        restored, left = [], {}
        for path, steps in sorted(changes.items()):
            try:
                why = await asyncio.to_thread(_restore_file, workspace, path, steps)
            except HoldfastError as error:
                why = str(error)
            if why is None:
                restored.append(path)
            elif why:
                left[path] = why
        return tuple(restored), left


def _restore_file(workspace: Workspace, path: str, steps: list[_Change]) -> str | None:
    """Bring a file back to before the first step: `None`, or why not; empty: it is so already."""
    try:
        current: bytes | None = workspace.read(path)
    except FileMissing:
        current = None
    state = hash_sha256(current) if current is not None else ""
    wanted = state
    for step in reversed(steps):
        if wanted == step.after:
            wanted = step.before
        elif wanted != step.before:  # else this step did not happen, or changed nothing
            return _CHANGED
    if wanted == state:
        return ""
    if not wanted:
        assert current is not None
        workspace.remove(path, current)
        return None
    text = next((step.text for step in steps if step.before == wanted), None)
    content = text.encode() if text is not None else b""
    if text is None or hash_sha256(content) != wanted:
        return _NOT_KEPT

    def change(now: bytes | None) -> bytes:
        if now != current:
            raise UsageError(detail=_CHANGED)
        return content

    workspace.update(path, change)
    return None


__all__ = ["UndoReport", "UndoService"]
