"""What callers hand over, checked before anything happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.memory.entry import SCOPES, MemoryOptions, Scope
from holdfast.memory.storage import MemoryFilter

T = TypeVar("T")

MAX_CONTENT_BYTES = 4 * 1024 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_QUERY_CHARACTERS = 20_000
MAX_LIMIT = 1_000
MAX_NAME_CHARACTERS = 1_000
MAX_FILTERS = 100
EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999: what a calendar can show."""
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


def check_name(name: object, what: str) -> str:
    """Return an id or a name if it can be one; it may be empty."""
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS:
        raise UsageError(detail=f"{what} is a text of at most {MAX_NAME_CHARACTERS} characters.")
    return name


def check_time(time: object, what: str) -> float:
    """Return a time as seconds since 1970, if it is one of the years 1 to 9999."""
    is_number = isinstance(time, int | float) and not isinstance(time, bool)
    if not is_number or not EARLIEST <= time <= LATEST:  # type: ignore[operator]
        raise UsageError(detail=f"{what} is a number of seconds since 1970, not {time!r:.80}.")
    return float(time)  # type: ignore[arg-type]


def check_options(options: MemoryOptions, metadata: JsonObject) -> MemoryOptions:
    """Fill in what the metadata says, and refuse what cannot be meant."""
    scope = getattr(options, "scope", None)
    if isinstance(scope, str) and scope not in SCOPES:
        raise UsageError(detail=f"There is no scope {scope!r}; use {', '.join(SCOPES)}.")
    options = _convert(options, MemoryOptions, "options")
    for what in ("created", "valid_from", "valid_to"):
        if getattr(options, what) is not None:
            check_time(getattr(options, what), what)
    if not 0.0 <= options.importance <= 1.0:
        raise UsageError(detail="Importance goes from 0 to 1.")
    if options.ttl_s is not None and not 0 < options.ttl_s <= LATEST:
        raise UsageError(detail="A time to live is more than 0 seconds, and has an end.")
    for what in ("kind", "speaker"):
        check_name(getattr(options, what), what)
    return msgspec.structs.replace(
        options,
        kind=options.kind or _render_text(metadata.get("type")) or "fact",
        speaker=options.speaker or _render_text(metadata.get("speaker")),
    )


def parse_filters(filters: Mapping[str, Any] | MemoryFilter | None) -> MemoryFilter:
    """Turn the filters of a search into their checked form.

    Known names: type, speaker (one or several), since, until, pinned, as_of,
    include_superseded; `narrowed` sees to scope. Every other name is a key of the metadata.

    Raises:
        UsageError: a value cannot be meant.
    """
    if isinstance(filters, MemoryFilter):
        return _convert(filters, MemoryFilter, "filters")
    if filters is not None and not isinstance(filters, Mapping):
        raise UsageError(detail="Filters are names and values.")
    if len(filters or ()) > MAX_FILTERS:
        raise UsageError(detail=f"At most {MAX_FILTERS} filters can be looked at.")
    known: dict[str, object] = {}
    metadata: dict[str, object] = {}
    for name, value in (filters or {}).items():
        check_name(name, "The name of a filter")
        field = _OWN_FILTERS.get(name)
        if field is None:
            metadata[name.removeprefix("metadata.")] = value
        elif field in ("kinds", "speakers"):
            known[field] = (value,) if isinstance(value, str) else _list_several(value, name)
        else:
            known[field] = value
    return _convert({**known, "metadata": metadata}, MemoryFilter, "filters")


def _convert(given: object, kind: type[T], what: str) -> T:
    """Return what was given, every value of it of the type that it has to have."""
    try:
        return msgspec.convert(msgspec.to_builtins(given), kind, strict=True)
    except (msgspec.ValidationError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(detail=f"The {what} do not fit: {error}") from error


def narrow_request(filters: object, scopes: Sequence[Scope]) -> tuple[Any, Sequence[Scope]]:
    """Return the filters without the one on scopes, and the scopes that it leaves."""
    if not isinstance(filters, Mapping) or "scope" not in filters:
        return filters, scopes
    value = filters["scope"]
    wanted = (value,) if isinstance(value, str) else _list_several(value, "scope")
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise UsageError(detail=f"The filter 'scope' takes some of: {', '.join(SCOPES)}.")
    left: list[Any] = [scope for scope in wanted if scope in (scopes or SCOPES)]
    if not left:
        raise UsageError(detail="The filter 'scope' leaves none of the scopes to look at.")
    return {name: value for name, value in filters.items() if name != "scope"}, left


def _list_several(value: object, name: str) -> tuple[object, ...]:
    if not isinstance(value, Sequence | set | frozenset):
        raise UsageError(detail=f"The filter {name!r} takes a text or several.")
    return tuple(value)


def _render_text(value: object) -> str:
    return value if isinstance(value, str) else ""


__all__ = [
    "MAX_TURN_CHARACTERS",
    "check_content",
    "check_limit",
    "check_metadata",
    "check_name",
    "check_options",
    "check_query",
    "check_time",
    "narrow_request",
    "parse_filters",
]
