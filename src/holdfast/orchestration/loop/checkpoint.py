"""`run-<id>.jsonl`: everything that a loop has recorded, in one file that grows with it.

The first line says what the file is; each further line is one event of the loop's session or of
a session below it, as an export writes it, with the session's id in front. Lines are only ever
added, so a file that a crash cut short is still good up to its last whole line, and the caller that
imports it, on whichever machine, has the run as it was then, hash chains and all.

Beside it `audit/run-<id>.jsonl` holds what the run did to the world: calls, consents, refusals.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.clock import Clock
from holdfast.errors import InvalidImport, StorageError
from holdfast.ids import is_id
from holdfast.journal import Condition, Event, RowQuery
from holdfast.messages import ToolPart
from holdfast.orchestration.loop.report import LoopReport
from holdfast.private_files import open_whole_file
from holdfast.runs import list_runs_below_session
from holdfast.sessions import (
    SESSIONS,
    ExportedEvent,
    MessagePartUpdated,
    SessionManager,
    check_events,
    export_event,
    import_event,
    iterate_bounded_lines,
)

FORMAT = "holdfast-run"
_PAGE = 500
_MOST_ROWS = 10_000
_LARGEST_HEADER = 4096
_AUDITED = re.compile(r"(tool|permission|approval|policy|hook|network|provider|model)\.")
_NETWORK = frozenset({"webfetch", "websearch", "codesearch"})


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: what follows, and of which run."""

    format: str = FORMAT
    version: int = 1
    run_id: str
    session_id: str


class RunLine(
    ExportedEvent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One event of one of the run's sessions."""

    session: str


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to the world, or was kept from happening."""

    time: float
    kind: str
    session_id: str
    run_id: str = ""
    agent_path: str = ""
    tool: str = ""
    state: str = ""
    is_network: bool = False
    detail: JsonObject = msgspec.field(default_factory=dict)


class RunRecords(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file: the events of every session, the loop's own last."""

    run_id: str
    session_id: str
    sessions: tuple[tuple[Event, ...], ...]


class RunFiles:
    """The files of one loop in the state directory; copies, of which the journal is the truth."""

    def __init__(
        self, base_dir: Path, sessions: SessionManager, run_id: str, session_id: str, clock: Clock
    ) -> None:
        """Write for one run."""
        self.path = base_dir / f"run-{run_id}.jsonl"
        self.audit_path = base_dir / "audit" / f"run-{run_id}.jsonl"
        self.marks_path = base_dir / "runs" / f"{run_id}.marks"
        self._reports = base_dir / "reports"
        self._sessions = sessions
        self._run_id = run_id
        self._session_id = session_id
        self._clock = clock
        self._written: dict[str, int] = {}
        self._unread: deque[str] = deque()
        self._seen = 0
        self._one_at_a_time = asyncio.Lock()
        self._streams: dict[Path, IO[bytes]] = {}
        self._soon: asyncio.Task[None] | None = None

    def track(self, session_id: str) -> None:
        """Write the events of this session too, from its first one."""
        if session_id not in self._written:
            self._written[session_id] = 0
            self._unread.append(session_id)

    async def track_below(self, session_id: str) -> None:
        """Write the sessions too in which something ran below this one, however deep."""
        for run in await list_runs_below_session(self._sessions.journal, session_id):
            self.track(run.session_id)

    async def track_all(self) -> None:
        """Write the loop's session, and all below it."""
        found = [self._session_id]
        place = 0
        while place < len(found):
            # As many parents as one question may name: each one looks at all sessions there are.
            parents = tuple(found[place : place + _PAGE])
            place += len(parents)
            found += await self._list_children(parents)
        for session_id in found:
            self.track(session_id)

    async def _list_children(self, parents: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        after: tuple[str, str] | None = None
        while True:
            query = RowQuery(
                projection=SESSIONS,
                where=(Condition("parent_id", "in", parents),),
                order="id",
                after=after,
                limit=_MOST_ROWS,
            )
            rows = await self._sessions.journal.rows(query)
            found += [keyed.row.id for keyed in rows]
            if len(rows) < _MOST_ROWS:
                return found
            after = (rows[-1].row.id, rows[-1].key)

    async def open(self) -> None:
        """Write everything that is known so far, whatever the files held before."""
        await self.track_all()
        await self.write_all()

    async def write_all(self, target: Path | None = None) -> int:
        """Write the whole file anew, seen complete or not at all; returns its lines."""
        async with self._one_at_a_time:
            self._written = dict.fromkeys(self._written, 0)
            self._unread = deque(self._written)
            self._seen = await self._sessions.journal.read_last_seq()
            lines, audit = await self._read_news()
            header = RunHeader(run_id=self._run_id, session_id=self._session_id)
            whole = [msgspec.json.encode(header) + b"\n", *lines]
            self._close_streams()
            await asyncio.to_thread(_replace, target or self.path, whole)
            if target is None:
                await asyncio.to_thread(_replace, self.audit_path, audit)
            return len(whole)

    async def write(self) -> None:
        """Add what was recorded since."""
        async with self._one_at_a_time:
            lines, audit = await self._read_news()
            if lines:
                await asyncio.to_thread(self._append, self.path, lines)
            if audit:
                await asyncio.to_thread(self._append, self.audit_path, audit)

    def write_soon(self) -> None:
        """Add what was recorded since, in the background; many calls become one."""
        if self._soon is None or self._soon.done():
            self._soon = asyncio.create_task(self.write())

    async def close(self) -> None:
        """Write the rest."""
        if self._soon is not None:
            await asyncio.gather(self._soon, return_exceptions=True)
        await self.write()
        self._close_streams()

    async def keep_report(self, report: LoopReport) -> None:
        """Write the report as `reports/run-<id>.md` and `.json`."""
        stem = f"run-{self._run_id}"
        page = msgspec.json.format(msgspec.json.encode(report), indent=2)
        markdown = report.to_markdown().encode()
        await asyncio.to_thread(_replace, self._reports / f"{stem}.md", [markdown])
        await asyncio.to_thread(_replace, self._reports / f"{stem}.json", [page + b"\n"])

    def remove(self) -> None:
        """Remove every file of the run."""
        stem = f"run-{self._run_id}"
        reports = [self._reports / f"{stem}.md", self._reports / f"{stem}.json"]
        for path in (self.path, self.audit_path, self.marks_path, *reports):
            path.unlink(missing_ok=True)

    def _append(self, path: Path, lines: list[bytes]) -> None:
        try:
            stream = self._streams.get(path)
            if stream is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
                stream = self._streams[path] = open(os.open(path, flags, 0o600), "ab")
            stream.write(b"".join(lines))
            stream.flush()
        except OSError as error:
            raise StorageError(path=str(path), detail=error.strerror or str(error)) from error

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    async def _read_news(self) -> tuple[list[bytes], list[bytes]]:
        """Return the lines of what was recorded since: new sessions whole, others by the feed.

        One look at the feed finds the news of all sessions, however many there are.
        """
        journal = self._sessions.journal
        news: list[Event] = []
        up_to = await journal.read_last_seq()
        while self._unread:
            session_id = self._unread.popleft()
            while page := await journal.read(
                session_id, after=self._written[session_id], limit=_PAGE
            ):
                news += self._take(page)
        while self._seen < up_to:
            page = await journal.store.feed(after=self._seen, limit=_PAGE)
            if not page:
                break
            self._seen = page[-1].seq
            news += self._take(page)
        lines = [_format_line(event) for event in news]
        audit = [msgspec.json.encode(found) + b"\n" for e in news if (found := _find_audited(e))]
        return lines, audit

    def _take(self, events: Iterable[Event]) -> list[Event]:
        """Return those events of our sessions that were not written yet."""
        taken = []
        for event in events:
            if event.session_seq > self._written.get(event.session_id, event.session_seq):
                self._written[event.session_id] = event.session_seq
                taken.append(event)
        return taken


def parse_run_file(source: IO[bytes]) -> RunRecords:
    """Read and check a `run-<id>.jsonl`; a last line that was cut short does not count.

    Raises:
        InvalidImport: it is no such file, is damaged, or was changed.
    """
    header = _make_header(source.readline(_LARGEST_HEADER))
    found: dict[str, list[Event]] = {}
    for number, line in enumerate(iterate_bounded_lines(source), 2):
        if not line.endswith(b"\n"):
            break
        row = _make_row(line, number)
        events = found.setdefault(row.session, [])
        events.append(import_event(row, len(events) + 1, row.session))
    if header.session_id not in found:
        raise InvalidImport(detail="it does not hold the run's own session")
    for events in found.values():
        check_events(events)
    own = found.pop(header.session_id)
    if not any(event.run_id == header.run_id for event in own):
        raise InvalidImport(detail=f"it does not hold the run {header.run_id}")
    return RunRecords(
        run_id=header.run_id,
        session_id=header.session_id,
        sessions=(*[tuple(events) for events in found.values()], tuple(own)),
    )


def _make_header(line: bytes) -> RunHeader:
    try:
        header = msgspec.json.decode(line, type=RunHeader)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail="its first line is not that of a run file") from error
    if (header.format, header.version) != (FORMAT, 1):
        raise InvalidImport(detail=f"it is {header.format!r} version {header.version}")
    if not (is_id(header.run_id) and is_id(header.session_id)):
        raise InvalidImport(detail="its ids are not ones that Holdfast makes")
    return header


def _make_row(line: bytes, number: int) -> RunLine:
    try:
        row = msgspec.json.decode(line, type=RunLine)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail=f"line {number} is no event ({error})") from error
    if not is_id(row.session) or row.session == "system":
        raise InvalidImport(detail=f"line {number} names no session")
    return row


def _format_line(event: Event) -> bytes:
    values: dict[str, Any] = msgspec.structs.asdict(export_event(event))
    return msgspec.json.encode(RunLine(session=event.session_id, **values)) + b"\n"


def _find_audited(event: Event) -> AuditLine | None:
    """Return what an event says about the world, `None` if it says nothing."""
    if event.is_redacted:
        return None
    part: ToolPart | None = None
    detail: JsonObject = {}
    if event.kind == MessagePartUpdated.kind:
        updated = event.expect(MessagePartUpdated).part
        if not isinstance(updated, ToolPart) or updated.state == "pending":
            return None
        part = updated
        detail = {"input": part.input, "title": part.title, "error": part.error[:2_000]}
        detail = {key: value for key, value in detail.items() if value}
    elif _AUDITED.match(event.kind):
        detail = msgspec.json.decode(event.payload)
    else:
        return None
    return AuditLine(
        time=event.time,
        kind="tool.ended" if part is not None else event.kind,
        session_id=event.session_id,
        run_id=event.run_id,
        agent_path=event.agent_path,
        tool=part.tool if part is not None else str(detail.get("tool", "")),
        state=part.state if part is not None else "",
        is_network=part is not None and part.tool in _NETWORK,
        detail=detail,
    )


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    try:
        # Not synced: the journal holds every line of it as well.
        with open_whole_file(path, is_durable=False) as file:
            file.writelines(lines)
    except OSError as error:
        raise StorageError(path=str(path), detail=error.strerror or str(error)) from error
