"""The audit trail of one state directory: written from the journal, checked against it, sent on.

The journal is the truth and survives any crash; the trail follows it, a second later at most while
a process is open and when it closes, exactly once per event. Sinks have places of their own: each
gets every line at least once, in order, whatever was unreachable meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError, NotFound
from holdfast.journal import SYSTEM_SESSION, Event, SessionDeleted
from holdfast.observability import AuditEntry, AuditTrail, parse_entry
from holdfast.private_files import PrivateJsonFile
from holdfast.runtime.audit_entries import is_audited, is_same, make_bare_entry, make_entry
from holdfast.runtime.audit_sinks import AuditSink, make_sinks
from holdfast.sessions import SessionManager
from holdfast.settings import Settings

_PAGE = 500
_MOST_OWNERS = 10_000
_LOOK_S = 1.0
_BATCH = 200


class TrailFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a line of the audit trail, or that one is missing."""

    place: str
    seq: int
    problem: str


class _Places(msgspec.Struct):
    sent: dict[str, int] = msgspec.field(default_factory=dict)


class AuditService:
    """Writes, shows and checks the trail."""

    def __init__(
        self, settings: Settings, base_dir: Path, sessions: SessionManager, tenant: str
    ) -> None:
        """Write below `base_dir`, in the name of this tenant."""
        chosen = settings.audit
        self.trail = AuditTrail(base_dir / "audit", max_bytes=chosen.max_file_mb * 1024 * 1024)
        self.error = ""
        """Why the trail could not be written, or sent on, when it was last tried."""
        self._sessions = sessions
        self._journal = sessions.journal
        self._tenant = tenant
        self._sinks: list[AuditSink] = make_sinks(settings)
        self._sent = PrivateJsonFile(base_dir / "audit" / "sinks.json", _Places, empty=_Places)
        self._owners: dict[str, str] = {}
        self._seen = -1

    async def follow(self) -> None:
        """Write what happens, once a second; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.write_quietly()

    async def write_quietly(self) -> None:
        """Write what happened; what fails is kept in `error`, and made up for later."""
        try:
            await self.write()
            self.error = ""
        except HoldfastError as error:
            self.error = f"{error.code}: {error}"

    async def write(self) -> int:
        """Add what the journal holds beyond the trail, and send it on; returns the new lines.

        Raises:
            StorageError: the trail cannot be written; nothing is lost.
            AuditSinkFailed: a sink cannot be reached; it is sent again.
        """
        end = await self._journal.read_last_seq()
        if end == self._seen:
            return 0
        added = 0
        with self.trail.lock() as is_held:
            if is_held:
                position = await asyncio.to_thread(self.trail.find_position)
                while page := await self._journal.store.feed(after=position, limit=_PAGE):
                    position = page[-1].seq
                    lines = [
                        (entry.seq, msgspec.json.encode(entry) + b"\n")
                        for event in page
                        if (entry := await self._make(event)) is not None
                    ]
                    await asyncio.to_thread(self.trail.append, lines, position)
                    added += len(lines)
                await self._send()
                self._seen = end
        return added

    def list_entries(
        self, *, after: int = 0, limit: int = 100, match: dict[str, str] | None = None
    ) -> list[AuditEntry]:
        """Return entries behind a `seq`, oldest first; `match` names fields and their values."""
        found: list[AuditEntry] = []
        wanted = (match or {}).items()
        for entry in self.trail.read(after=after):
            if all(str(getattr(entry, name)) == value for name, value in wanted):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    async def verify(self) -> list[TrailFinding]:
        """Compare every line with the journal, and the journal with the lines.

        Finds lines that were changed, added, repeated, moved or removed, up to the last line that
        the journal should have made.
        """
        deleted = await self._list_deleted()
        lines = self._iterate_lines()
        current = next(lines, None)
        findings: list[TrailFinding] = []
        position = 0
        while page := await self._journal.store.feed(after=position, limit=_PAGE):
            position = page[-1].seq
            for event in page:
                made = await self._make(event)
                expected = None if made is None else _pass_through_json(made)
                bound = make_bare_entry(event, tenant=self._tenant)
                while current is not None and current[1].seq < event.seq:
                    findings += _judge_alone(current, deleted)
                    current = next(lines, None)
                if current is None or current[1].seq != event.seq:
                    if expected is not None and not event.is_redacted:
                        findings.append(_make_missing(event))
                    continue
                place, line = current
                wanted = bound if expected is None or event.is_redacted else expected
                is_redacted = event.is_redacted
                if not is_redacted and expected is None:
                    findings.append(_find(place, line, "its event makes no line"))
                elif not is_same(line, wanted, is_redacted=is_redacted):
                    findings.append(_find(place, line, "it is not what its event says"))
                current = next(lines, None)
        while current is not None:
            findings += _judge_alone(current, deleted)
            current = next(lines, None)
        return findings

    # --- inside -----------------------------------------------------------------------

    async def _make(self, event: Event) -> AuditEntry | None:
        if not is_audited(event):
            return None
        owner = await self._find_owner(event.session_id)
        return make_entry(event, tenant=self._tenant, owner=owner)

    async def _find_owner(self, session_id: str) -> str:
        if session_id == SYSTEM_SESSION:
            return ""
        known = self._owners.get(session_id)
        if known is None:
            if len(self._owners) >= _MOST_OWNERS:
                self._owners.clear()
            known = ""
            with contextlib.suppress(NotFound):
                known = (await self._sessions.get_session(session_id)).owner
            self._owners[session_id] = known
        return known

    async def _send(self) -> None:
        """Send each sink what it has not got yet."""
        failed: HoldfastError | None = None
        for sink in self._sinks:
            places = await asyncio.to_thread(self._sent.read)
            after = places.sent.get(sink.name, 0)
            try:
                while batch := self.list_entries(after=after, limit=_BATCH):
                    await sink.send(batch)
                    after = batch[-1].seq
                    await asyncio.to_thread(self._note_sent, sink.name, after)
            except HoldfastError as error:
                failed = error
        if failed is not None:
            raise failed

    def _note_sent(self, name: str, seq: int) -> None:
        def note(places: _Places) -> None:
            places.sent[name] = seq

        self._sent.change(note)

    async def _list_deleted(self) -> frozenset[str]:
        kinds = frozenset({SessionDeleted.kind})
        found: set[str] = set()
        after = 0
        while page := await self._journal.read(
            SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds
        ):
            after = page[-1].session_seq
            found.update(event.expect(SessionDeleted).session_id for event in page)
        return frozenset(found)

    def _iterate_lines(self) -> Iterator[tuple[str, AuditEntry]]:
        for path, number, line in self.trail.iterate():
            place = f"{path.name}:{number}"
            yield place, parse_entry(line, place)


def _pass_through_json(entry: AuditEntry) -> AuditEntry:
    """Return an entry as it is read back, so that both can be compared."""
    return msgspec.json.decode(msgspec.json.encode(entry), type=AuditEntry)


def _judge_alone(current: tuple[str, AuditEntry], deleted: frozenset[str]) -> list[TrailFinding]:
    """Judge a line whose event is not there: only that of a deleted session may be gone."""
    place, line = current
    if line.session_id in deleted:
        return []
    return [_find(place, line, "the journal holds no such event, or it stands out of order")]


def _find(place: str, line: AuditEntry, problem: str) -> TrailFinding:
    return TrailFinding(place=place, seq=line.seq, problem=problem)


def _make_missing(event: Event) -> TrailFinding:
    return TrailFinding(place="", seq=event.seq, problem=f"the line of a {event.kind} is missing")


__all__ = ["AuditService", "TrailFinding"]
