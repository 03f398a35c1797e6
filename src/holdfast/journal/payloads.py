"""Typed payloads: each room owns its kinds, the journal owns the registry.

A payload class is declared once with its kind and version. Old versions stay readable
forever: an upcaster turns the JSON of one version into the next, step by step, and is
never removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import SchemaTooNew, StorageDamaged, UsageError

Upcaster: TypeAlias = Callable[[JsonObject], JsonObject]


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened, without when and where; subclass it in `<room>/events.py`."""

    kind: ClassVar[str] = ""
    schema_version: ClassVar[int] = 1
    is_open: ClassVar[bool] = False
    """Anyone may append it, not only the holder of the session's lease."""
    is_inherited: ClassVar[bool] = True
    """A fork takes it along."""
    is_synced: ClassVar[bool] = False
    """Reaches the disk before `append` returns, whatever the store's durability."""
    has_content: ClassVar[bool] = False
    """Holds what people wrote or tools returned; retention may remove it by `redacted`."""

    def redacted(self) -> Payload:
        """Return what may stay when the content has to go: ids and shape, no content."""
        raise UsageError(detail=f"Events of kind {self.kind} hold no content to redact.")


class _Redacted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    left: msgspec.Raw


P = TypeVar("P", bound=Payload)
_types: dict[tuple[str, int], type[Payload]] = {}
_latest: dict[str, type[Payload]] = {}
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
) -> Callable[[type[P]], type[P]]:
    """Declare a payload class as the newest version of a kind of event."""

    def declare(cls: type[P]) -> type[P]:
        known = _types.get((kind, version))
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise UsageError(detail=f"Event kind {kind} version {version} is declared twice.")
        cls.kind, cls.schema_version = kind, version
        cls.is_open, cls.is_inherited = is_open, is_inherited
        cls.is_synced, cls.has_content = is_synced, has_content
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


def known_kinds() -> dict[str, type[Payload]]:
    """The newest payload class of every declared kind."""
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


__all__ = [
    "Payload",
    "Upcaster",
    "decode_payload",
    "decode_redacted",
    "encode_payload",
    "encode_redacted",
    "is_bare",
    "known_kinds",
    "payload",
    "upcaster",
]
