"""Proof that records were not changed: walk the chains and compare.

Without help from outside, `verify` finds events that were edited, removed from the middle
or reordered. With heads that were exported earlier and kept elsewhere, by hand or as anchors, it
also finds a chain that was cut short, rewritten as a whole, or removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, InvalidImport, NotFound
from holdfast.journal.envelope import (
    GENESIS,
    SYSTEM_SESSION,
    Event,
    Payload,
    digest_payload,
    hash_chain,
    is_bare,
    make_header,
)
from holdfast.journal.events import (
    EventsRedacted,
    ExportedHead,
    HeadsAnchored,
    SessionDeleted,
)
from holdfast.journal.store import Chains, Finding, Store

P = TypeVar("P", bound=Payload)
_PAGE = 1000
_FORMAT = "holdfast-heads"
_LARGEST_HEADS_FILE = 256 * 1024 * 1024


class HeadsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ends of all chains at one moment; keep it where the journal's owner cannot write."""

    format: str
    version: int
    time: float
    heads: dict[str, ExportedHead]


async def export_heads(store: Chains, clock: Clock) -> bytes:
    """Return the ends of all chains as JSON, to be kept elsewhere."""
    heads = {
        head.session_id: ExportedHead(session_seq=head.session_seq, hash=head.hash)
        for head in await store.heads()
    }
    content = HeadsFile(format=_FORMAT, version=1, time=clock.now(), heads=heads)
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def parse_heads(data: bytes) -> HeadsFile:
    """Read exported heads.

    Raises:
        InvalidImport: it is no such file.
    """
    if len(data) > _LARGEST_HEADS_FILE:
        raise InvalidImport(detail="a file of heads is never that large")
    try:
        found = msgspec.json.decode(data, type=HeadsFile)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail=f"it holds no exported heads ({error})") from error
    if (found.format, found.version) != (_FORMAT, 1):
        raise InvalidImport(detail=f"it is {found.format} version {found.version}")
    return found


async def make_anchor(
    store: Store, clock: Clock, *, name: str, last: HeadsAnchored | None
) -> HeadsAnchored | None:
    """Return the ends of the chains that have grown since the last anchor; `None` if none has.

    Without a last one, and where the store has gone back behind it, those of all chains.
    """
    time, seq = clock.now(), await store.read_last_seq()
    if last is not None and seq == last.seq:
        return None
    grown: set[str] | None = None
    if last is not None and seq > last.seq:
        grown, after = set(), last.seq
        while page := await store.feed(after=after, limit=_PAGE):
            grown.update(event.session_id for event in page)
            after = page[-1].seq
    ends = {head.session_id: head for head in await store.heads()}
    system = ends.get(SYSTEM_SESSION)
    return HeadsAnchored(
        store=name,
        time=time,
        seq=seq,
        system_seq=system.session_seq if system is not None else 0,
        heads={
            head.session_id: ExportedHead(session_seq=head.session_seq, hash=head.hash)
            for head in ends.values()
            if grown is None or head.session_id in grown
        },
    )


class _Point(msgspec.Struct, frozen=True):
    """Where a chain ended once, as is known from outside."""

    head: ExportedHead
    system_seq: int
    when: str


async def verify(
    store: Chains,
    *,
    session_id: str | None = None,
    heads: HeadsFile | None = None,
    anchors: Sequence[HeadsAnchored] = (),
    progress: Callable[[str, int], None] = lambda session_id, events: None,
) -> list[Finding]:
    """Check the chains of all sessions, or of one, and return what is wrong.

    Raises:
        NotFound: there is no session `session_id`, nor was there one when heads were exported.
    """
    known = {head.session_id for head in await store.heads()}
    points = _list_points(heads, anchors)
    if session_id is not None:
        if session_id not in known and session_id not in points:
            raise NotFound(kind="session", value=session_id)
        known &= {session_id}
    findings = [found for found in await store.examine() if session_id in (None, found.session_id)]
    hashes: dict[str, dict[int, str]] = {}
    for name in sorted(known):
        check = _ChainCheck(name, {point.head.session_seq for point in points.get(name, ())})
        async for event in _walk(store, name):
            check.take(event)
        findings += check.finish()
        hashes[name] = check.remembered
        progress(name, check.count)
    if points:
        deletions = await _list_deletions(store)
        for name, of_session in points.items():
            if session_id in (None, name):
                findings += _compare_all(name, of_session, hashes.get(name), deletions)
    return findings


def check_chain(events: Sequence[Event]) -> list[Finding]:
    """Check one whole chain that is already in memory."""
    check = _ChainCheck(events[0].session_id if events else "", set(), is_stored=False)
    for event in events:
        check.take(event)
    return check.finish()


def _list_points(
    heads: HeadsFile | None, anchors: Sequence[HeadsAnchored]
) -> dict[str, list[_Point]]:
    """Return what is known from outside of each session, in the order of its chain."""
    points: dict[str, list[_Point]] = {}
    if heads is not None:
        end = heads.heads.get(SYSTEM_SESSION)
        system_seq = end.session_seq if end is not None else 0
        for name, head in heads.heads.items():
            point = _Point(head, system_seq, "when the heads were exported")
            points.setdefault(name, []).append(point)
    for anchor in anchors:
        when = f"when it was anchored, {datetime.fromtimestamp(anchor.time, UTC).isoformat()}"
        for name, head in anchor.heads.items():
            points.setdefault(name, []).append(_Point(head, anchor.system_seq, when))
    for of_session in points.values():
        of_session.sort(key=lambda point: point.head.session_seq)
    return points


async def _list_deletions(store: Chains) -> dict[str, list[tuple[int, ExportedHead]]]:
    """Return, for each session, where deletions of it were recorded and how it ended then."""
    deletions: dict[str, list[tuple[int, ExportedHead]]] = {}
    async for event in _walk(store, SYSTEM_SESSION):
        note = _make_readable(event, SessionDeleted)
        if note is not None:
            end = ExportedHead(session_seq=note.last, hash=note.hash)
            deletions.setdefault(note.session_id, []).append((event.session_seq, end))
    return deletions


def _compare_all(
    name: str,
    points: Sequence[_Point],
    seen: dict[int, str] | None,
    deletions: dict[str, list[tuple[int, ExportedHead]]],
) -> list[Finding]:
    """Return the first point of a session that its chain does not pass any more."""
    for point in points:
        # A deletion before it says nothing about a chain that existed then.
        later = [end for number, end in deletions.get(name, ()) if number > point.system_seq]
        found = _compare(name, point, seen, later[-1] if later else None)
        if found:
            return found
    return []


def _compare(
    name: str, point: _Point, seen: dict[int, str] | None, erased: ExportedHead | None
) -> list[Finding]:
    head = point.head
    if erased is not None and erased.session_seq >= head.session_seq:
        if erased.session_seq > head.session_seq or erased.hash == head.hash:
            return []
        problem = "the chain was rewritten before it was deleted"
        return [Finding(session_id=name, session_seq=head.session_seq, problem=problem)]
    if seen is None:
        problem = (
            f"the session is missing, and no deletion of it was recorded; it existed {point.when}"
        )
        return [Finding(session_id=name, session_seq=0, problem=problem)]
    found = seen.get(head.session_seq, GENESIS if head.session_seq == 0 else None)
    if found is None:
        problem = f"the chain was cut or rolled back: this event existed {point.when}"
    elif found != head.hash:
        problem = f"the chain was rewritten: its hash was another one {point.when}"
    else:
        return []
    return [Finding(session_id=name, session_seq=head.session_seq, problem=problem)]


async def _walk(store: Chains, session_id: str, after: int = 0) -> AsyncIterator[Event]:
    while page := await store.read(session_id, after=after, limit=_PAGE):
        for event in page:
            yield event
        if page[-1].session_seq <= after:
            # A number that was tampered with must not send us round in circles.
            return
        after = page[-1].session_seq


class _ChainCheck:
    """Follows one chain event by event."""

    def __init__(self, session_id: str, remember: set[int], *, is_stored: bool = True) -> None:
        self.count = 0
        self._is_stored = is_stored
        """Only in a store do events have store-wide numbers."""
        self.remembered: dict[int, str] = {}
        self._session_id = session_id
        self._remember = remember
        self._previous = GENESIS
        self._seq = 0
        self._findings: list[Finding] = []
        self._redacted: dict[int, Event] = {}
        self._allowed: dict[int, str] = {}

    def take(self, event: Event) -> None:
        """Check the next event as it stands in the store."""
        self.count += 1
        if event.session_seq != self.count:
            self._report(self.count, f"events are missing before {event.session_seq}")
            self.count = event.session_seq
            self._previous = ""
        if event.is_redacted:
            self._redacted[event.session_seq] = event
        elif digest_payload(event.payload) != event.payload_digest:
            self._report(event.session_seq, "the payload was edited")
        if self._previous and hash_chain(self._previous, make_header(event)) != event.hash:
            self._report(event.session_seq, "the header or the order was changed")
        if self._is_stored and event.seq <= self._seq:
            self._report(event.session_seq, "its store-wide number is not behind the one before")
        self._seq = event.seq
        if event.session_seq in self._remember:
            self.remembered[event.session_seq] = event.hash
        note = _make_readable(event, EventsRedacted)
        if note is not None:
            left = zip_longest(note.numbers, note.digests, fillvalue="")
            self._allowed.update((int(number), digest) for number, digest in left if number)
        self._previous = event.hash

    def finish(self) -> list[Finding]:
        """Return all findings; redactions must have been recorded and hold no content."""
        for number, event in self._redacted.items():
            if number not in self._allowed:
                self._report(number, "the payload was removed, and no redaction was recorded")
            elif self._allowed[number] not in ("", digest_payload(event.payload)):
                self._report(number, "what a redaction left was edited")
            elif not _is_left_bare(event):
                self._report(number, "a redacted payload holds content")
        return self._findings

    def _report(self, session_seq: int, problem: str) -> None:
        self._findings.append(
            Finding(session_id=self._session_id, session_seq=session_seq, problem=problem)
        )


def _make_readable(event: Event, wanted: type[P]) -> P | None:
    """Return the payload of an event of the wanted kind; `None` if it cannot be trusted."""
    if event.kind != wanted.kind or digest_payload(event.payload) != event.payload_digest:
        return None
    try:
        return event.expect(wanted)
    except HoldfastError:
        return None


def _is_left_bare(event: Event) -> bool:
    try:
        return is_bare(event.kind, event.payload)
    except HoldfastError:
        return False
