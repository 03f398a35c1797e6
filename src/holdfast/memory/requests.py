"""What callers hand over, checked before anything happens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.memory.entry import SCOPES, MemoryOptions
from holdfast.memory.storage import MemoryFilter

MAX_CONTENT_BYTES = 4 * 1024 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_QUERY_CHARACTERS = 20_000
MAX_LIMIT = 1_000
MAX_TURN_CHARACTERS = 1_000_000
"""More than this of a single turn is not remembered."""
_OWN_FILTERS = {
    "type": "kinds",
    "kind": "kinds",
    "speaker": "speakers",
    "since": "since",
    "until": "until",
    "pinned": "pinned",
    "as_of": "as_of",
    "include_superseded": "include_superseded",
}


def check_content(content: object) -> str:
    """Return the content if it can be kept, word for word."""
    if not isinstance(content, str) or not content.strip():
        raise UsageError(detail="A memory needs some text.")
    try:
        length = len(content.encode())
    except UnicodeEncodeError as error:
        raise UsageError(detail="The text holds half of a surrogate pair.") from error
    if length > MAX_CONTENT_BYTES:
        raise UsageError(detail=f"A memory may have {MAX_CONTENT_BYTES} bytes, not {length}.")
    return content


def check_metadata(metadata: Mapping[str, Any] | None) -> JsonObject:
    """Return the metadata as plain JSON."""
    try:
        data = msgspec.json.encode(dict(metadata or {}))
        plain = msgspec.json.decode(data, type=JsonObject)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(detail=f"The metadata cannot be kept as JSON: {error}") from error
    if len(data) > MAX_METADATA_BYTES:
        raise UsageError(detail=f"Metadata may have {MAX_METADATA_BYTES} bytes, not {len(data)}.")
    return plain


def check_query(query: object) -> str:
    """Return the query, cut to what a search looks at."""
    if not isinstance(query, str) or not query.strip():
        raise UsageError(detail="A search needs some words; list_memories shows everything.")
    return query.encode("utf-8", "replace").decode()[:MAX_QUERY_CHARACTERS]


def check_limit(limit: object) -> int:
    """Return the limit if it makes sense."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise UsageError(detail=f"A limit is between 1 and {MAX_LIMIT}.")
    return limit


def check_options(options: MemoryOptions, metadata: JsonObject) -> MemoryOptions:
    """Fill in what the metadata says, and refuse what cannot be meant."""
    if options.scope not in SCOPES:
        raise UsageError(detail=f"There is no scope {options.scope!r}; use {', '.join(SCOPES)}.")
    numbers = [
        options.importance,
        *(n for n in (options.created, options.valid_from, options.valid_to) if n is not None),
        options.ttl_s if options.ttl_s is not None else 1.0,
    ]
    if not all(math.isfinite(number) for number in numbers):
        raise UsageError(detail="Importance and times are finite numbers.")
    if not 0.0 <= options.importance <= 1.0:
        raise UsageError(detail="Importance goes from 0 to 1.")
    if options.ttl_s is not None and options.ttl_s <= 0:
        raise UsageError(detail="A time to live is more than 0 seconds.")
    return msgspec.structs.replace(
        options,
        kind=options.kind or _text(metadata.get("type")) or "fact",
        speaker=options.speaker or _text(metadata.get("speaker")),
    )


def parse_filters(filters: Mapping[str, Any] | MemoryFilter | None) -> MemoryFilter:
    """Turn the filters of a search into their checked form.

    Known names: type, speaker (one or several), since, until, pinned, as_of,
    include_superseded. Every other name is a key of the metadata and its value.

    Raises:
        UsageError: a value cannot be meant.
    """
    if isinstance(filters, MemoryFilter):
        return filters
    known: dict[str, object] = {}
    metadata: dict[str, object] = {}
    for name, value in (filters or {}).items():
        field = _OWN_FILTERS.get(name)
        if field is None:
            metadata[name.removeprefix("metadata.")] = value
        elif field in ("kinds", "speakers"):
            known[field] = (value,) if isinstance(value, str) else _several(value, name)
        else:
            known[field] = value
    try:
        return msgspec.convert({**known, "metadata": metadata}, MemoryFilter, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(detail=f"The filters do not fit: {error}") from error


def _several(value: object, name: str) -> tuple[object, ...]:
    if not isinstance(value, Sequence | set | frozenset):
        raise UsageError(detail=f"The filter {name!r} takes a text or several.")
    return tuple(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


__all__ = [
    "MAX_TURN_CHARACTERS",
    "check_content",
    "check_limit",
    "check_metadata",
    "check_options",
    "check_query",
    "parse_filters",
]
