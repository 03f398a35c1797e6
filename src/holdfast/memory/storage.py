"""The MemoryStorage protocol: where memories are kept, and what everybody may rely on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from holdfast.canonical import JsonObject
from holdfast.memory.entry import MemoryEntry, MemoryOptions, Scope
from holdfast.memory.space import VectorSpace

Relation: TypeAlias = Literal["contradicts", "derived_from"]


class MemoryPlace(msgspec.Struct, frozen=True):
    """Where memories lie: a tenant, a scope, and whose; `owner=None` is everybody's.

    Words are found without an owner only in the scope `session`.
    """

    tenant: str
    scope: Scope
    owner: str | None


class MemoryDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A memory about to be stored."""

    id: str
    tenant: str
    owner: str
    session_id: str
    content: str
    metadata: JsonObject
    created: float
    valid_from: float
    expires: float | None
    options: MemoryOptions
    supersedes: str = ""
    vector: bytes = b""
    """Little-endian float16, of the model `vector_model`; empty if it comes later."""
    vector_model: str = ""
    vector_space: VectorSpace | None = None
    """How the model is reached again, if it is on a server."""
    tokens: bytes = b""
    """Quantized token vectors of the model `vector_model`; empty if they come later."""
    fence: int = 0
    """The fencing token of the run that stores it: the epoch of the session's lease. One that is
    lower than the highest seen of the session is refused with LeaseLost; 0: none is compared."""


class MemoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories count; every field narrows."""

    kinds: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()
    since: float | None = None
    """Created at or after."""
    until: float | None = None
    """Created before."""
    pinned: bool | None = None
    metadata: Mapping[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)
    as_of: float | None = None
    """What was true at that time; None is now."""
    include_superseded: bool = False
    """Also what is no longer true."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing but time is asked for."""
        return self == MemoryFilter(as_of=self.as_of, include_superseded=self.include_superseded)


class IndexRow(msgspec.Struct, frozen=True, array_like=True):
    """What ranking needs of a memory, its content excepted."""

    row: int
    session_id: str
    speaker: str
    """Who said it: as the caller named them, or as a plain line `Name: text` tells."""
    created: float
    valid_from: float
    valid_to: float | None
    expires: float | None
    importance: float
    previous: int | None
    forgotten: float | None
    revision: int
    vector: bytes | None
    characters: int = 0
    """How long the content is."""
    is_question: bool = False
    """Whether the content ends with a question mark."""


class LexicalHit(NamedTuple):
    """How well a memory fits the words: alone, and with the turn before it; more is better."""

    row: int
    own: float
    context: float


class MemoryPassage(NamedTuple):
    """What reranking reads of a memory."""

    content: str
    """Its beginning: at least 2,000 characters, if it has so many."""
    tokens: bytes | None
    """Quantized token vectors of the model that was asked for; None if there are none yet."""


class WordCounts(NamedTuple):
    """In how many memories of the storage words occur (document frequency)."""

    counts: dict[str, int]
    total: int
    """How many memories there are, about."""


class SearchLookup(Protocol):
    """What a search may read while it chooses; in the thread in which it was called."""

    def passages(self, rows: Sequence[int], model: str) -> dict[int, MemoryPassage]:
        """Return the texts at some rows of the places, with tokens of a model."""
        ...

    def tokens(self, rows: Sequence[int], model: str) -> dict[int, bytes]:
        """Return the tokens at some rows of the tenants that have any, without the texts."""
        ...

    def count_words(self, words: Sequence[str]) -> WordCounts:
        """Return how many memories hold each word; of very frequent ones an estimate."""
        ...


Choose: TypeAlias = Callable[[list[LexicalHit], list[int] | None, SearchLookup], Sequence[int]]
"""Picks rows among those that hold the words, and those that pass a filter (None: all do)."""


class NearestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a storage with an index of vectors looks for."""

    model: str
    vector: bytes
    """Little-endian float16; empty if the query has none."""
    limit: int
    """So many of the nearest are weighed."""


ChooseAmong: TypeAlias = Callable[
    [list[LexicalHit], list[int] | None, SearchLookup, list[IndexRow]], Sequence[int]
]
"""As `Choose`, with what ranking needs of all memories that may be among the best."""


class Unembedded(msgspec.Struct, frozen=True, array_like=True):
    """A memory that still needs a vector, or its tokens."""

    row: int
    tenant: str
    content: str
    """Without the label of a plain line `Name: text` that was taken for a turn."""
    names: tuple[str, ...]
    """Speakers of its place, which are no part of the meaning."""
    has_vector: bool = False
    """Only its tokens are missing."""
    revision: int = 0
    """Of the memory when it was read."""


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """What retention removes: what has expired, and what is beyond the caps of each place."""

    now: float
    max_entries: int | None = None
    max_bytes: int | None = None
    half_life_s: float = 30 * 86_400.0
    """Of two memories of equal importance the older is worth half after this time."""


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over one tenant."""

    memories: int
    forgotten: int
    superseded: int
    pinned: int
    content_bytes: int
    file_bytes: int
    vectors: dict[str, int]
    """Memories that have a vector, by model."""
    tokens: dict[str, int] = msgspec.field(default_factory=dict)
    """Memories whose tokens are kept for late interaction, by model."""
    refused: int
    """Memories that an embedder could not take."""
    former: dict[str, str] = msgspec.field(default_factory=dict)
    """Embedders of older vectors that are left: `ready`, or why they cannot be asked."""


class MemoryStorage(Protocol):
    """Keeps memories, their words and their vectors.

    Every method that takes a tenant or a place never returns or changes a row of another
    tenant. What `add` and `forget` acknowledge survives the end of the process.
    """

    async def open(self) -> None:
        """Create or check what is needed.

        Raises:
            StorageError, StorageDamaged, SchemaTooNew: the place cannot be used.
        """
        ...

    async def close(self) -> None:
        """Finish and give everything back; safe to repeat."""
        ...

    async def add(self, drafts: Sequence[MemoryDraft]) -> None:
        """Store memories, all or none, findable by their words at once.

        A draft with `supersedes` ends the validity of the older memory at its own beginning.
        Lines `Name: text` without a speaker become turns as `memory.dialogue` infers them:
        linked to the line before, and `changes` names their speaker.

        Raises:
            NotFound: a memory that it refers to does not exist in its tenant.
            AlreadyExists: the id is taken, or the older memory was already superseded.
        """
        ...

    async def get(self, tenant: str, ids: Sequence[str], *, model: str = "") -> list[MemoryEntry]:
        """Return memories by id, tombstones too, those that exist; with vectors of a model."""
        ...

    async def find(
        self,
        places: Sequence[MemoryPlace],
        where: MemoryFilter,
        *,
        now: float,
        limit: int,
        after: str,
    ) -> list[MemoryEntry]:
        """Return memories, newest first, after a known one."""
        ...

    async def select(
        self,
        places: Sequence[MemoryPlace],
        words: Sequence[str],
        where: MemoryFilter,
        choose: Choose,
        *,
        now: float,
    ) -> dict[int, MemoryEntry]:
        """Let `choose` pick among the memories of some places, and return those by row.

        It is called once, maybe in another thread, with the memories that hold any of the
        words, and with the rows of all that pass the filter, ascending, or None if the filter
        is plain. Where words are very frequent, only the rarer ones have to be looked for.
        What it picks is missing from the answer if it was forgotten or lies elsewhere.

        Raises:
            MemoryIndexDamaged: the index of words is broken; `reindex` makes it anew.
        """
        ...

    async def revision(self) -> int:
        """Return the number of the last change of anything; must be cheap.

        While it stays the same, `changes` has nothing new for any place.
        """
        ...

    async def changes(self, place: MemoryPlace, model: str, *, after: int) -> list[IndexRow]:
        """Return what changed in a place after a revision, oldest change first."""
        ...

    async def list_unembedded(
        self, model: str, limit: int, *, after: int = 0, needs_tokens: bool = False
    ) -> list[Unembedded]:
        """Return memories without a vector of the model, by row, that were not refused.

        With `needs_tokens` also those whose tokens of the model are not kept yet.
        """
        ...

    async def put_vectors(
        self,
        model: str,
        vectors: Mapping[int, bytes],
        refused: Mapping[int, str],
        *,
        space: VectorSpace | None = None,
        tokens: Mapping[int, bytes] | None = None,
        revisions: Mapping[int, int] | None = None,
    ) -> None:
        """Keep vectors (float16) and tokens, and note which memories the model refused, and why.

        Vectors and tokens of other models of the same memories are removed. `space` says how the
        model is reached again; that of another model is dropped with its last vector. A memory
        that has another revision by now than `revisions` says is left to be embedded again.
        """
        ...

    async def list_spaces(self) -> list[VectorSpace]:
        """Return the spaces of all vectors that are there, of every tenant."""
        ...

    async def pin(self, tenant: str, memory_id: str, is_pinned: bool) -> None:
        """Protect a memory from retention, or no longer; raises NotFound."""
        ...

    async def link(self, tenant: str, memory_id: str, relation: Relation, other: str) -> None:
        """Note how two memories relate; raises NotFound."""
        ...

    async def forget(
        self, tenant: str, ids: Sequence[str], *, now: float, reason: str
    ) -> list[str]:
        """Remove content, words, vectors, tokens and derived memories; return what is gone.

        Tombstones stay. `compact` removes the bytes from the disk.
        """
        ...

    async def purge(self, tenant: str, rule: Purge) -> list[str]:
        """Forget what a rule no longer keeps, never what is pinned; return the ids."""
        ...

    async def compact(self) -> bool:
        """Overwrite what was removed; False if a reader kept some of it in the log."""
        ...

    async def tidy(self) -> None:
        """Keep searches quick when much is new, and see to what an older version stored.

        Cheap when there is little to do.
        """
        ...

    async def reindex(self) -> int:
        """Make the index of words anew from the memories; returns their number."""
        ...

    async def drop_vectors(self, model: str) -> int:
        """Remove all vectors and tokens of a model, to be made again; returns their number."""
        ...

    async def stats(self, tenant: str) -> MemoryStats:
        """Count what is there."""
        ...


@runtime_checkable
class NearestStorage(Protocol):
    """A storage with an index of vectors, whose large places need not lie in memory."""

    async def is_large(self, places: Sequence[MemoryPlace]) -> bool:
        """Say whether places hold more than should be read into memory to be searched."""
        ...

    async def list_speakers(self, places: Sequence[MemoryPlace]) -> list[str]:
        """Return who speaks in some places; maybe without the newest ones."""
        ...

    async def select_nearest(
        self,
        places: Sequence[MemoryPlace],
        words: Sequence[str],
        where: MemoryFilter,
        near: NearestQuery,
        choose: ChooseAmong,
        *,
        now: float,
    ) -> dict[int, MemoryEntry]:
        """Let `choose` pick, as `MemoryStorage.select`, among what may be among the best.

        That is what holds the words, what is nearest of what passes the filter, the newest, and
        the turns around them; nothing else is read.
        """
        ...


__all__ = [
    "Choose",
    "ChooseAmong",
    "IndexRow",
    "LexicalHit",
    "MemoryDraft",
    "MemoryFilter",
    "MemoryPassage",
    "MemoryPlace",
    "MemoryStats",
    "MemoryStorage",
    "NearestQuery",
    "NearestStorage",
    "Purge",
    "Relation",
    "SearchLookup",
    "Unembedded",
    "WordCounts",
]
