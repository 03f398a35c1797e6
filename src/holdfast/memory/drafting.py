"""Memories about to be stored, from what callers hand over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import EmbeddingFailed, UsageError
from holdfast.ids import make_id
from holdfast.memory.embedder import MemoryEmbedder, pack_vector
from holdfast.memory.entry import MemoryOptions
from holdfast.memory.identity import Identity, find_own_place
from holdfast.memory.requests import check_content, check_metadata, check_name, check_options
from holdfast.memory.space import find_space
from holdfast.memory.storage import MemoryDraft
from holdfast.redaction import Redactor


class NewMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says about a memory."""

    session_id: str
    content: str
    metadata: Mapping[str, Any] | None = None
    options: MemoryOptions | None = None
    memory_id: str = ""
    fence: int = 0


def draft_of(
    new: NewMemory, identity: Identity, *, now: float, redactor: Redactor | None
) -> MemoryDraft:
    """Return what is stored, after looking at everything.

    Raises:
        UsageError: something about it cannot be meant.
    """
    check_name(new.session_id, "A session id")
    check_name(new.memory_id, "A memory id")
    text = check_content(new.content)
    about = check_metadata(new.metadata)
    if redactor is not None:
        text, about = redactor.text(text), redactor.value(about)
    chosen = check_options(new.options or MemoryOptions(), about)
    created = now if chosen.created is None else chosen.created
    valid_from = created if chosen.valid_from is None else chosen.valid_from
    if chosen.valid_to is not None and chosen.valid_to < valid_from:
        raise UsageError(detail="A memory cannot end to be true before it begins.")
    return MemoryDraft(
        id=new.memory_id or make_id("mem"),
        tenant=identity.tenant,
        owner=find_own_place(identity, chosen.scope, new.session_id).owner or "",
        session_id=new.session_id,
        content=text,
        metadata=about,
        created=created,
        valid_from=valid_from,
        expires=None if chosen.ttl_s is None else now + chosen.ttl_s,
        options=chosen,
        supersedes=chosen.supersedes,
        fence=new.fence,
    )


def with_vector(
    draft: MemoryDraft, embedder: MemoryEmbedder, vector: Sequence[float], tokens: bytes = b""
) -> MemoryDraft:
    """Return a draft with a vector and tokens that the caller has; raises UsageError."""
    model, dimension = embedder.model_id, embedder.dimension
    if not model:
        raise UsageError(detail="A vector needs an embedder that made it; there is none.")
    try:
        data = pack_vector(vector, dimension, model)
    except EmbeddingFailed as error:
        detail = f"The vector does not fit the embedder {model}: {error}"
        raise UsageError(detail=detail) from error
    return msgspec.structs.replace(
        draft, vector=data, vector_model=model, vector_space=find_space(embedder), tokens=tokens
    )


__all__ = ["NewMemory", "draft_of", "with_vector"]
