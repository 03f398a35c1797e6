"""Export and import of a whole session as one file, without loss.

The file is JSON lines: a header, then one line per event with its payload byte for byte, so
that the hash chain holds in the store that imports it. An import is checked as a whole
before anything is changed; the file is taken for hostile until then. Only what an export
would write is accepted, to the byte: there is one way to write a session down.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import IO

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, InvalidImport
from holdfast.ids import is_id
from holdfast.journal import SYSTEM_SESSION, Event, Journal, check_chain, list_known_kinds
from holdfast.messages import Message
from holdfast.sessions.events import MessageCreated, SessionCreated

FORMAT = "holdfast-session"
LARGEST_FILE = 2 * 1024**3
LARGEST_LINE = 128 * 1024**2
_LARGEST_HEADER = 4096
_PAGE = 200
_KIND = r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,4}"
_DIGEST = r"[0-9a-f]{64}"
_LARGEST_NUMBER = 2**62
_LATEST_TIME = 1e11
_ID_FIELDS = ("run_id", "message_id", "signal_id")
_LONGEST_TEXT = 1000


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
    [head] = await journal.store.heads(session_id)
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
        limit = min(_PAGE, head.session_seq - after)
        for event in await journal.read(session_id, after=after, limit=limit):
            after = event.session_seq
            yield msgspec.json.encode(export_event(event)) + b"\n"


def parse_export(source: IO[bytes]) -> list[Event]:
    """Read and check an export; returns its events, still without a place in a store.

    Raises:
        InvalidImport: it is no export, is damaged, cut short, or was changed.
    """
    header = _parse_header(source.readline(_LARGEST_HEADER))
    events = [
        _parse_event(line, number, header)
        for number, line in enumerate(iterate_bounded_lines(source), 1)
    ]
    if len(events) != header.events or not events:
        raise InvalidImport(detail=f"{len(events)} of {header.events} events are there")
    check_events(events)
    if events[-1].hash != header.hash:
        raise InvalidImport(detail="its last hash is not the one in its header")
    return events


def check_events(events: list[Event]) -> None:
    """Check the events of one session that came from outside, as a whole.

    Raises:
        InvalidImport: they cannot be read, are in the wrong place, or were changed.
    """
    _check_story(events)
    findings = check_chain(events)
    if findings:
        first = findings[0]
        raise InvalidImport(detail=f"event {first.session_seq}: {first.problem}")


def iterate_bounded_lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that may be hostile.

    Raises:
        InvalidImport: a line, or all of them together, are longer than any export is.
    """
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
    if msgspec.json.encode(header) + b"\n" != line:
        raise InvalidImport(detail="its first line is not as an export writes it")
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
    if msgspec.json.encode(found) + b"\n" != line:
        raise InvalidImport(detail=f"line {number + 1} is not as an export writes it")
    return import_event(found, number, header.session_id)


def import_event(found: ExportedEvent, number: int, session_id: str) -> Event:
    """Return an event, still without a place in a store, from what an export says of it.

    Raises:
        InvalidImport: it is not the event of this number, or none that Holdfast makes.
    """
    event = Event(
        seq=0,
        session_id=session_id,
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
    if not re.fullmatch(_KIND, event.kind) or len(event.kind) > 80:
        raise InvalidImport(detail=f"event {number} has no kind that Holdfast makes")
    is_plausible = (
        1 <= event.version < 10_000
        and 0 <= event.epoch < _LARGEST_NUMBER
        and 0 <= event.time < _LATEST_TIME
    )
    if not is_plausible:
        raise InvalidImport(detail=f"event {number} has numbers that Holdfast never makes")
    if not re.fullmatch(_DIGEST, event.payload_digest):
        raise InvalidImport(detail=f"event {number} has no digest that Holdfast makes")
    texts = (event.agent_path, event.correlation_id, event.causation_id)
    if any(len(text) > _LONGEST_TEXT for text in texts) or not _is_name(event.run_id):
        raise InvalidImport(detail=f"event {number} has an origin that Holdfast never makes")


def _check_story(events: list[Event]) -> None:
    """Refuse facts that cannot be read, are in the wrong place, or name things by no id."""
    known, messages = list_known_kinds(), set()
    for event in events:
        number = event.session_seq
        is_misplaced = event.kind in known and known[event.kind].is_of_store
        if (event.kind == SessionCreated.kind) != (number == 1) or is_misplaced:
            raise InvalidImport(detail=f"event {number} is {event.kind}")
        try:
            value = event.decode() if event.kind in known else _decode_unknown(event)
        except (HoldfastError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidImport(detail=f"event {number} cannot be read: {error}") from error
        names = [getattr(value, name, "") for name in _ID_FIELDS]
        message = getattr(value, "message", None)
        if isinstance(message, Message):
            names.append(message.id or "?")
        if not all(_is_name(name) for name in names):
            raise InvalidImport(detail=f"event {number} holds an id that Holdfast never makes")
        if isinstance(value, MessageCreated):
            if value.message.id in messages:
                raise InvalidImport(detail=f"event {number} repeats a message")
            messages.add(value.message.id)


def _decode_unknown(event: Event) -> JsonObject:
    return msgspec.json.decode(event.payload, type=JsonObject)


def _is_name(value: object) -> bool:
    return value == "" or is_id(value)


def export_event(event: Event) -> ExportedEvent:
    """Return what an export says of an event."""
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
