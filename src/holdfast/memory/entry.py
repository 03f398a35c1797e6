"""What a memory is, and what can be said about it when it is stored."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from holdfast.canonical import JsonObject

Scope: TypeAlias = Literal["session", "user", "project", "global"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a memory comes from; empty fields mean that no caller said."""

    author: str = ""
    """Who wrote it: a person, an agent, `user`, `assistant`."""
    tool: str = ""
    """The tool that stored it."""
    event_seq: int = 0
    """The event of the session that it was taken from."""
    run_id: str = ""
    labels: tuple[str, ...] = ()
    """What its run had read: `untrusted` (strangers may have written it), `private`."""


class MemoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said about a new memory beyond its content; everything has a default."""

    scope: Scope = "session"
    """Who finds it: this session, all of the user's, all of the project's, everyone's."""
    kind: str = ""
    """`fact` unless given; the metadata's `type` if that is there."""
    speaker: str = ""
    """Who said it, for turns of a conversation; the metadata's `speaker` if that is there."""
    importance: float = 0.5
    """0 to 1; more is ranked higher and kept longer."""
    is_pinned: bool = False
    """Never removed by retention, and found beyond its time to live."""
    ttl_s: float | None = None
    """Gone after this many seconds."""
    created: float | None = None
    """When it was said; now unless given."""
    valid_from: float | None = None
    valid_to: float | None = None
    previous_id: str = ""
    """The turn before it in the same conversation."""
    supersedes: str = ""
    """The memory that is no longer true from then on."""
    contradicts: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    """What it sums up; forgetting one of those forgets this one too."""
    provenance: Provenance = Provenance()


class ScoreParts(msgspec.Struct, frozen=True, kw_only=True):
    """What each part gave to a score; they add up to it, weights included."""

    lexical: float = 0.0
    lexical_context: float = 0.0
    vector: float = 0.0
    vector_context: float = 0.0
    speaker: float = 0.0
    time: float = 0.0
    substance: float = 0.0
    neighbours: float = 0.0
    session: float = 0.0
    importance: float = 0.0
    recency: float = 0.0
    unrelated: float = 0.0
    """Below 0 for what has neither word nor meaning in common with the query: it stands last."""
    late: float = 0.0
    """From here on parts of the second ranking. Late interaction: MaxSim of the memory."""
    late_context: float = 0.0
    """MaxSim over the memory and the two turns before it."""
    when: float = 0.0
    """Holds a time, and the query asks for one; so also the next three."""
    number: float = 0.0
    where: float = 0.0
    name: float = 0.0
    reply: float = 0.0
    """Follows a question that fits the query."""
    address: float = 0.0
    """Speaks of the other one only: "you", never "I"."""
    cosine: float | None = None
    """Not part of the sum: how near the meaning is, from -1 to 1; None without a vector."""
    vector_model: str = ""
    """Not part of the sum: whose vector told it; empty where words alone were looked at."""


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stored memory; `relevance_score` is set by a search and only compares within it."""

    id: str
    session_id: str
    content: str
    embedding: list[float] | None = None
    tokens: bytes | None = None
    """Quantized token vectors for late interaction; there where the embedding is asked for."""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    created: float
    relevance_score: float = 0.0
    scope: Scope = "session"
    owner: str = ""
    kind: str = "fact"
    speaker: str = ""
    importance: float = 0.5
    is_pinned: bool = False
    valid_from: float = 0.0
    valid_to: float | None = None
    expires: float | None = None
    previous_id: str = ""
    supersedes: str = ""
    superseded_by: str = ""
    contradicts: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    provenance: Provenance = Provenance()
    forgotten: float | None = None
    """When it was forgotten: nothing but this tombstone is left."""
    parts: ScoreParts | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The taint labels that its reader takes on; a memory is private in any case."""
        return tuple(sorted({*self.provenance.labels, "private"}))

    def is_over(self, now: float) -> bool:
        """Whether its time to live has passed; never for what is pinned."""
        return self.expires is not None and self.expires <= now and not self.is_pinned


class MemorySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the memories of a session come down to."""

    session_id: str
    summary: str
    since: float
    created: float
    memory_ids: tuple[str, ...]
    """The memories that it was made from, oldest first."""
    method: Literal["model", "extractive"]
    """Written by a model, or picked sentences."""
    is_whole: bool = True
    """False if there were more than the 1,000 newest memories, which alone were looked at."""
    id: str = ""
    """The memory that holds the summary; empty if it was not stored."""
