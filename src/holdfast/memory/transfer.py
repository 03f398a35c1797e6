"""Export and import: one JSON line per memory, without loss of what it says."""

from __future__ import annotations

import heapq
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, InvalidImport, UsageError
from holdfast.memory.drafting import NewMemory, draft_of, with_vector
from holdfast.memory.embedder import MemoryEmbedder, TokenEmbedder
from holdfast.memory.entry import MemoryEntry, MemoryOptions, Provenance, Scope
from holdfast.memory.manager import Identity, MemoryManager
from holdfast.memory.storage import MemoryFilter

_PAGE = 500
_MOST_TOKEN_BYTES = 64 * 1024
_FORMAT = "holdfast.memory/1"
_FORMAT_WITH_VECTORS = "holdfast.memory/2"


class _ExportedMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    id: str
    session_id: str
    scope: Scope
    owner: str = ""
    kind: str
    content: str
    created: float
    valid_from: float
    valid_to: float | None = None
    speaker: str = ""
    importance: float = 0.5
    is_pinned: bool = False
    metadata: JsonObject = {}
    previous_id: str = ""
    supersedes: str = ""
    expires: float | None = None
    provenance: Provenance = Provenance()
    contradicts: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()


class _ExportedVector(_ExportedMemory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the second format: what an embedder made of the memory, too."""

    vector_model: str = ""
    vector: bytes = b""
    """Little-endian float16."""
    tokens: bytes = b""
    """Quantized as the model does it."""


async def export_memories(
    manager: MemoryManager, session_id: str = "", *, with_vectors: bool = False
) -> AsyncIterator[bytes]:
    """Yield memories as lines, newest first, superseded ones included.

    Those of one session, or without one, all of the tenant. `with_vectors` adds the vectors
    and tokens of the manager's embedder, so that they need not be made again elsewhere.
    """
    where = MemoryFilter(include_superseded=True)
    after = ""
    while page := (
        await manager.list_memories(
            session_id, where, limit=_PAGE, after=after, scopes=("session",)
        )
        if session_id
        else await manager.list_all_memories(limit=_PAGE, after=after)
    ):
        shown = await manager.with_embeddings(page) if with_vectors else page
        for entry in shown:
            line = _format_line(entry)
            if entry.embedding is not None:
                line = _make_line_with_vector(line, entry, manager.embedder.model_id)
            yield msgspec.json.encode(line) + b"\n"
        after = page[-1].id


async def import_memories(
    manager: MemoryManager, lines: Iterable[bytes], *, now: float
) -> tuple[int, int]:
    """Store exported memories; returns how many are new and how many were known or expired.

    The whole file is read and checked before anything is stored.

    Raises:
        InvalidImport: a line is no memory of ours; nothing was stored.
    """
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    parsed = [_parse(number, line) for number, line in numbered]
    for (number, _), one in zip(numbered, parsed, strict=True):
        _check(number, one, manager, now)
    parsed = _sort_in_order(parsed)
    stored = skipped = 0
    kept: set[str] = set()
    for one in parsed:
        if one.expires is not None and one.expires <= now and not one.is_pinned:
            skipped += 1
            continue
        try:
            owning = manager.act_for(_find_owning(manager.identity, one))
            new = _make_new(one, kept, now)
            vector, tokens = _read_embedded(one, manager.embedder)
            await owning._store(new, embeddings=vector, tokens=tokens)
            stored += 1
        except AlreadyExists:
            skipped += 1
        kept.add(one.id)
    for one in parsed:
        for other in one.contradicts:
            if one.id < other and {one.id, other} <= kept:
                await manager.link_contradiction(one.id, other)
    return stored, skipped


def _sort_in_order(lines: Sequence[_ExportedVector]) -> list[_ExportedVector]:
    """Return lines oldest first, but what others refer to always before them.

    Raises:
        InvalidImport: they refer to each other in a circle.
    """
    known: dict[str, _ExportedVector] = {}
    again = [one for one in lines if known.setdefault(one.id, one) is not one]
    sorter = TopologicalSorter(
        {
            one.id: {other for other in _list_referred(one) if other in known}
            for one in known.values()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidImport(detail="its memories refer to each other in a circle") from error
    ordered: list[_ExportedVector] = []
    waiting: list[tuple[float, str]] = []
    while sorter.is_active():
        for memory_id in sorter.get_ready():
            heapq.heappush(waiting, (known[memory_id].created, memory_id))
        _, oldest = heapq.heappop(waiting)
        ordered.append(known[oldest])
        sorter.done(oldest)
    return [*ordered, *again]


def _list_referred(one: _ExportedMemory) -> tuple[str, ...]:
    return (one.previous_id, one.supersedes, *one.derived_from)


def _format_line(entry: MemoryEntry) -> _ExportedMemory:
    names: Sequence[str] = _ExportedMemory.__struct_fields__
    values: dict[str, Any] = {name: getattr(entry, name) for name in names if name != "format"}
    return _ExportedMemory(format=_FORMAT, **values)


def _make_line_with_vector(
    line: _ExportedMemory, entry: MemoryEntry, model: str
) -> _ExportedVector:
    numbers = entry.embedding or []
    known = {name: getattr(line, name) for name in line.__struct_fields__ if name != "format"}
    return _ExportedVector(
        format=_FORMAT_WITH_VECTORS,
        **known,
        vector_model=model,
        vector=struct.pack(f"<{len(numbers)}e", *numbers),
        tokens=entry.tokens or b"",
    )


def _read_embedded(
    one: _ExportedVector, embedder: MemoryEmbedder
) -> tuple[list[float] | None, bytes]:
    """Return the vector and tokens of a line if they are of this embedder; else they are made."""
    if not one.vector or one.vector_model != embedder.model_id:
        return None, b""
    if len(one.vector) != 2 * embedder.dimension:
        raise UsageError(detail=f"the vector has {len(one.vector)} bytes")
    return list(struct.unpack(f"<{embedder.dimension}e", one.vector)), one.tokens


def _check_tokens(tokens: bytes, embedder: MemoryEmbedder) -> None:
    """Refuse bytes that the embedder could not compare with a query."""
    if not tokens:
        return
    if not isinstance(embedder, TokenEmbedder) or len(tokens) > _MOST_TOKEN_BYTES:
        raise UsageError(detail="the tokens are none of the embedder")
    import numpy as np  # noqa: PLC0415 - here with every embedder that gives tokens

    from holdfast.memory.late_interaction import QueryTokens  # noqa: PLC0415 - loads numpy

    nothing = np.zeros((1, embedder.dimension), np.float32)
    try:
        embedder.compute_max_similarities(QueryTokens(nothing, ("",), "contextual"), [tokens])
    except ValueError as error:
        raise UsageError(detail=f"the tokens are none of the embedder: {error}") from error


def _parse(number: int, line: bytes) -> _ExportedVector:
    try:
        found = msgspec.json.decode(line, type=_ExportedVector)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidImport(detail=f"line {number} is no memory: {error}") from error
    if found.format not in (_FORMAT, _FORMAT_WITH_VECTORS):
        raise InvalidImport(detail=f"line {number} has the format {found.format!r}")
    return found


def _check(number: int, one: _ExportedVector, manager: MemoryManager, now: float) -> None:
    """Refuse a line that reads like a memory but can be none."""
    try:
        owning = _find_owning(manager.identity, one)
        draft = draft_of(_make_new(one, set(), now), owning, now=now, redactor=None)
        vector, tokens = _read_embedded(one, manager.embedder)
        if vector is not None:
            with_vector(draft, manager.embedder, vector)
            _check_tokens(tokens, manager.embedder)
    except UsageError as error:
        raise InvalidImport(detail=f"line {number} is no memory: {error}") from error


def _find_owning(identity: Identity, one: _ExportedMemory) -> Identity:
    if one.scope == "project":
        return msgspec.structs.replace(identity, project=one.owner)
    return identity


def _make_new(one: _ExportedMemory, kept: set[str], now: float) -> NewMemory:
    options = MemoryOptions(
        scope=one.scope,
        kind=one.kind,
        speaker=one.speaker,
        importance=one.importance,
        is_pinned=one.is_pinned,
        ttl_s=None if one.expires is None or one.expires <= now else one.expires - now,
        created=one.created,
        valid_from=one.valid_from,
        valid_to=one.valid_to,
        supersedes=one.supersedes if one.supersedes in kept else "",
        previous_id=one.previous_id if one.previous_id in kept else "",
        provenance=one.provenance,
        derived_from=tuple(other for other in one.derived_from if other in kept),
    )
    return NewMemory(
        session_id=one.session_id,
        content=one.content,
        metadata=one.metadata,
        options=options,
        memory_id=one.id,
    )


__all__ = ["export_memories", "import_memories"]
