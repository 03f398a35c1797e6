"""Export and import of a whole session as one file, without loss.

The file is JSON lines: a header, then one line per event with its payload byte for byte, so
that the hash chain holds in the store that imports it. An import is checked as a whole
before anything is changed; the file is taken for hostile until then.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import IO

import msgspec

from holdfast.errors import HoldfastError, InvalidImport
from holdfast.ids import is_id
from holdfast.journal.audit import check_chain
from holdfast.journal.envelope import SYSTEM_SESSION, Event
from holdfast.journal.journal import Journal
from holdfast.journal.payloads import known_kinds
from holdfast.sessions.events import SessionCreated

FORMAT = "holdfast-session"
LARGEST_FILE = 2 * 1024**3
LARGEST_LINE = 128 * 1024**2
_PAGE = 200
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,4}")
_LARGEST_NUMBER = 2**62


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of an export: what follows, and where its chain ends."""

    format: str
    version: int
    session_id: str
    events: int
    hash: str


class ExportedEvent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One line of an export: an event without its place in the store."""

    n: int
    kind: str
    version: int
    time: float
    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    epoch: int = 0
    digest: str
    hash: str
    is_redacted: bool = False
    payload: msgspec.Raw


_header_decoder = msgspec.json.Decoder(ExportHeader)
_event_decoder = msgspec.json.Decoder(ExportedEvent)


async def export_lines(journal: Journal, session_id: str) -> AsyncIterator[bytes]:
    """Yield the lines of an export, each with its line end, in bounded memory.

    Events that are appended meanwhile are left out; the export ends where the header says.
    """
    head = await journal.head(session_id)
    assert head is not None, "the caller has looked the session up"
    header = ExportHeader(
        format=FORMAT,
        version=1,
        session_id=session_id,
        events=head.session_seq,
        hash=head.hash,
    )
    yield msgspec.json.encode(header) + b"\n"
    after = 0
    while after < head.session_seq:
        for event in await journal.read(session_id, after=after, limit=_PAGE):
            after = event.session_seq
            if after <= head.session_seq:
                yield msgspec.json.encode(_exported(event)) + b"\n"


def parse_export(source: IO[bytes]) -> list[Event]:
    """Read and check an export; returns its events, still without a place in a store.

    Raises:
        InvalidImport: it is no export, is damaged, cut short, or was changed.
    """
    lines = _lines(source)
    header = _parse_header(next(lines, b""))
    events = [_parse_event(line, number, header) for number, line in enumerate(lines, 1)]
    if len(events) != header.events or not events:
        raise InvalidImport(detail=f"{len(events)} of {header.events} events are there")
    if events[0].kind != SessionCreated.kind:
        raise InvalidImport(detail=f"it begins with {events[0].kind}")
    findings = check_chain(events)
    if findings:
        first = findings[0]
        raise InvalidImport(detail=f"event {first.session_seq}: {first.problem}")
    if events[-1].hash != header.hash:
        raise InvalidImport(detail="its last hash is not the one in its header")
    return events


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while line := source.readline(LARGEST_LINE + 1):
        total += len(line)
        if len(line) > LARGEST_LINE:
            raise InvalidImport(detail=f"a line is longer than {LARGEST_LINE} bytes")
        if total > LARGEST_FILE:
            raise InvalidImport(detail=f"it is larger than {LARGEST_FILE} bytes")
        yield line


def _parse_header(line: bytes) -> ExportHeader:
    try:
        header = _header_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail="its first line is no header of an export") from error
    if header.format != FORMAT or header.version != 1:
        raise InvalidImport(detail=f"it is {header.format!r} version {header.version}")
    if not is_id(header.session_id) or header.session_id == SYSTEM_SESSION:
        raise InvalidImport(detail="its session id is not one that Holdfast makes")
    return header


def _parse_event(line: bytes, number: int, header: ExportHeader) -> Event:
    try:
        found = _event_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail=f"line {number + 1} is no event ({error})") from error
    event = Event(
        seq=0,
        session_id=header.session_id,
        session_seq=found.n,
        run_id=found.run_id,
        agent_path=found.agent_path,
        kind=found.kind,
        version=found.version,
        time=found.time,
        correlation_id=found.correlation_id,
        causation_id=found.causation_id,
        epoch=found.epoch,
        payload_digest=found.digest,
        hash=found.hash,
        payload=bytes(found.payload),
        is_redacted=found.is_redacted,
    )
    _check_event(event, number)
    return event


def _check_event(event: Event, number: int) -> None:
    if event.session_seq != number:
        raise InvalidImport(detail=f"event {number} is missing")
    if not _KIND.fullmatch(event.kind) or len(event.kind) > 80:
        raise InvalidImport(detail=f"event {number} has no kind that Holdfast makes")
    if not (1 <= event.version < 10_000 and 0 <= event.epoch < _LARGEST_NUMBER):
        raise InvalidImport(detail=f"event {number} has numbers that Holdfast never makes")
    if event.kind in known_kinds():
        try:
            event.decode()
        except HoldfastError as error:
            raise InvalidImport(detail=f"event {number}: {error}") from error


def _exported(event: Event) -> ExportedEvent:
    return ExportedEvent(
        n=event.session_seq,
        kind=event.kind,
        version=event.version,
        time=event.time,
        run_id=event.run_id,
        agent_path=event.agent_path,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        epoch=event.epoch,
        digest=event.payload_digest,
        hash=event.hash,
        is_redacted=event.is_redacted,
        payload=msgspec.Raw(event.payload),
    )
