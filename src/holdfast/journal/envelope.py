"""Events: a typed payload in an envelope, bound to the one before it by a hash.

Each room owns its payloads, the journal owns their registry. A payload class is declared once
with its kind and version. Old versions stay readable forever: an upcaster turns the JSON of one
version into the next, step by step, and is never removed.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import SchemaTooNew, StorageDamaged, UsageError

GENESIS = "0" * 64
"""The hash before the first event of a session."""

SYSTEM_SESSION = "system"
"""The chain that holds facts about the store as a whole, such as deletions."""

Upcaster: TypeAlias = Callable[[JsonObject], JsonObject]


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened, without when and where; subclass it in `<room>/events.py`."""

    kind: ClassVar[str] = ""
    schema_version: ClassVar[int] = 1
    is_open: ClassVar[bool] = False
    """Any process may append it, not only the holder of the session's lease."""
    is_inherited: ClassVar[bool] = True
    """A fork takes it along."""
    is_synced: ClassVar[bool] = False
    """Reaches the disk before `append` returns, whatever the store's durability."""
    is_of_store: ClassVar[bool] = False
    """Stands in the chain of the store alone: no session can bring it along from elsewhere."""
    has_content: ClassVar[bool] = False
    """Holds what people wrote or tools returned; retention may remove it by `redacted`."""

    @property
    def wakes_session(self) -> bool:
        """Whether any process may go on with the session now, so that a worker is told."""
        return False

    @property
    def wake_place(self) -> tuple[str, int]:
        """In which queue of workers the session then waits, and before what: a higher number
        comes first."""
        return "", 0

    def redacted(self) -> Payload:
        """Return what may stay when the content has to go: ids and shape, no content."""
        raise UsageError(detail=f"Events of kind {self.kind} hold no content to redact.")


class _Redacted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    left: msgspec.Raw


P = TypeVar("P", bound=Payload)
_types: dict[tuple[str, int], type[Payload]] = {}
_latest: dict[str, type[Payload]] = {}
_unloaded: list[str] = []
_upcasters: dict[tuple[str, int], Upcaster] = {}
_decoders: dict[type[Payload], msgspec.json.Decoder[Payload]] = {}
_encode = msgspec.json.Encoder().encode


def payload(
    kind: str,
    *,
    version: int = 1,
    is_open: bool = False,
    is_inherited: bool = True,
    is_synced: bool = False,
    has_content: bool = False,
    is_of_store: bool = False,
) -> Callable[[type[P]], type[P]]:
    """Declare a payload class as the newest version of a kind of event."""

    def declare(cls: type[P]) -> type[P]:
        known = _types.get((kind, version))
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise UsageError(detail=f"Event kind {kind} version {version} is declared twice.")
        cls.kind, cls.schema_version = kind, version
        cls.is_open, cls.is_inherited = is_open, is_inherited
        cls.is_synced, cls.has_content = is_synced, has_content
        cls.is_of_store = is_of_store
        _types[kind, version] = cls
        if kind not in _latest or _latest[kind].schema_version <= version:
            _latest[kind] = cls
        _decoders[cls] = msgspec.json.Decoder(cls)
        return cls

    return declare


def upcaster(kind: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
    """Declare how the JSON of one version becomes that of the next."""

    def declare(function: Upcaster) -> Upcaster:
        _upcasters[kind, from_version] = function
        return function

    return declare


def declare_payload_modules(*modules: str) -> None:
    """Name modules that declare payloads; each is imported when an unknown kind is met."""
    _unloaded.extend(modules)


def _load_modules() -> None:
    loading = tuple(_unloaded)
    for module in loading:
        importlib.import_module(module)
    # Only now: another thread that reads meanwhile waits for the import, and one that fails
    # is tried again.
    _unloaded[:] = [module for module in _unloaded if module not in loading]


def list_known_kinds() -> dict[str, type[Payload]]:
    """The newest payload class of every declared kind."""
    _load_modules()
    return dict(_latest)


def encode_payload(value: Payload) -> bytes:
    """Encode a payload so that it can certainly be decoded again.

    Raises:
        UsageError: it holds something that JSON cannot carry (a lone surrogate, an object
            of no known type, a NaN in a number field), or that its kind does not allow.
    """
    try:
        data = _encode(value)
        # A field of the wrong type, or a NaN that became null, would be lost for good.
        _decoders[type(value)].decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(detail=f"{value.kind} cannot be stored: {error}") from error
    return data


def decode_payload(kind: str, version: int, data: bytes) -> Payload:
    """Decode a stored payload into the newest class of its kind.

    Raises:
        SchemaTooNew: a newer Holdfast, or a plugin that is not loaded, wrote it.
        StorageDamaged: the bytes are not what the kind promises.
    """
    newest = _latest.get(kind)
    if newest is None:
        _load_modules()
        newest = _latest.get(kind)
    if newest is None or version > newest.schema_version:
        known = newest.schema_version if newest else 0
        raise SchemaTooNew(what=f"event kind {kind}", found=version, known=known)
    try:
        if version == newest.schema_version:
            return _decoders[newest].decode(data)
        value = msgspec.json.decode(data, type=JsonObject)
        for step in range(version, newest.schema_version):
            value = _upcasters[kind, step](value)
        return msgspec.convert(value, newest)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        detail = f"version {version} cannot be read: {error!r}"
        raise StorageDamaged(path=f"an event of kind {kind}", detail=detail) from error


def encode_redacted(value: Payload) -> bytes:
    """Encode what is left of a payload, with the version of its shape.

    A redaction is made by the code of its day, so its shape may be newer than its event.
    """
    return _encode(_Redacted(version=value.schema_version, left=msgspec.Raw(encode_payload(value))))


def decode_redacted(kind: str, data: bytes) -> Payload:
    """Decode what `encode_redacted` made."""
    found = _split_redacted(kind, data)
    return decode_payload(kind, found.version, bytes(found.left))


def is_bare(kind: str, data: bytes) -> bool:
    """Say whether a redacted payload holds nothing beyond what redaction leaves.

    One of an older version is judged by its fields; one of the newest, by every byte.
    """
    found = _split_redacted(kind, data)
    value = decode_payload(kind, found.version, bytes(found.left))
    if found.version == value.schema_version and encode_redacted(value) != data:
        return False
    return value.redacted() == value


def _split_redacted(kind: str, data: bytes) -> _Redacted:
    try:
        return msgspec.json.decode(data, type=_Redacted)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StorageDamaged(path=f"an event of kind {kind}", detail=str(error)) from error


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One kept fact: where it stands, what it says, and how it is bound to the one before.

    `seq` counts the whole store, `session_seq` one session without gaps. `payload` is
    JSON; `is_redacted` says that its content was removed and only its shape is left.
    """

    seq: int
    session_id: str
    session_seq: int
    run_id: str
    agent_path: str
    kind: str
    version: int
    time: float
    correlation_id: str
    causation_id: str
    epoch: int
    payload_digest: str
    hash: str
    payload: bytes
    is_redacted: bool = False

    def decode(self) -> Payload:
        """Return the payload, or what redaction left of it, as the newest class of its kind."""
        if self.is_redacted:
            return decode_redacted(self.kind, self.payload)
        return decode_payload(self.kind, self.version, self.payload)

    def expect(self, wanted: type[P]) -> P:
        """Return the payload, which must be of the given class."""
        value = self.decode()
        if not isinstance(value, wanted):
            raise UsageError(detail=f"Event {self.seq} is {self.kind}, not {wanted.kind}.")
        return value


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who caused a fact: the run, the agent inside it, and the chain of causes."""

    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    causation_id: str = ""


NO_ORIGIN = Origin()


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A fact on its way into the journal, of which it is certain that it can be kept.

    It may still hold secrets; `Journal.batch` takes them out.
    """

    value: Payload
    payload: bytes
    time: float
    origin: Origin


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact as it will be stored, already encoded; `value` is what was encoded."""

    kind: str
    version: int
    time: float
    origin: Origin
    payload: bytes
    payload_digest: str
    value: Payload


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Facts that are stored together, as they will be: encoded, and without secrets."""

    drafts: tuple[Draft, ...]
    was_redacted: bool = False
    """Whether one of them is not what was given."""


def digest_payload(payload: bytes) -> str:
    """Return the digest by which the chain knows a payload; `Journal.batch` makes the same."""
    return hashlib.sha256(payload).hexdigest()


def hash_chain(previous: str, header: tuple[object, ...]) -> str:
    """Return the hash that binds an event to the one before it.

    It covers the header with the payload's digest, not the payload, so that a redacted
    payload leaves the chain valid. The store-wide `seq` is not covered, so that an exported
    session keeps its hashes in another store.
    """
    return hashlib.sha256(_encode((previous, *header))).hexdigest()


def make_header(event: Event) -> tuple[object, ...]:
    """Return what the chain covers of an event, in the order in which it is hashed."""
    return (
        event.session_id,
        event.session_seq,
        event.kind,
        event.version,
        event.time,
        event.run_id,
        event.agent_path,
        event.correlation_id,
        event.causation_id,
        event.epoch,
        event.payload_digest,
    )


class ChainEnd(Protocol):
    """Where a chain ends, and under which lease it is written on."""

    @property
    def epoch(self) -> int:
        """That of the lease."""

    @property
    def hash(self) -> str:
        """That of the last event."""

    @property
    def session_seq(self) -> int:
        """The number of the last event."""


def chain_events(drafts: Sequence[Draft], session_id: str, end: ChainEnd, seq: int) -> list[Event]:
    """Return the events that drafts become at the end of a session's chain, behind `seq`.

    The hash of each is `hash_chain` over its `make_header`.
    """
    epoch, hash, session_seq = end.epoch, end.hash, end.session_seq
    events = []
    for draft in drafts:
        session_seq, seq, origin = session_seq + 1, seq + 1, draft.origin
        covered = (
            hash,
            session_id,
            session_seq,
            draft.kind,
            draft.version,
            draft.time,
            origin.run_id,
            origin.agent_path,
            origin.correlation_id,
            origin.causation_id,
            epoch,
            draft.payload_digest,
        )
        hash = hashlib.sha256(_encode(covered)).hexdigest()
        event = Event(
            seq=seq,
            session_id=session_id,
            session_seq=session_seq,
            run_id=origin.run_id,
            agent_path=origin.agent_path,
            kind=draft.kind,
            version=draft.version,
            time=draft.time,
            correlation_id=origin.correlation_id,
            causation_id=origin.causation_id,
            epoch=epoch,
            payload_digest=draft.payload_digest,
            hash=hash,
            payload=draft.payload,
        )
        events.append(event)
    return events
