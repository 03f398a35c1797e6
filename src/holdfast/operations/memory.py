"""Memories: store, search, supersede, forget."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from holdfast.memory import (
    MemoryEntry,
    MemoryManager,
    MemoryOptions,
    MemoryStats,
    MemorySummary,
    Recollection,
    Scope,
    export_memories,
    import_memories,
)
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local, LocalModel, LocalPath
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.runtime import Runtime

LocalLines: TypeAlias = Annotated[Iterable[bytes], Local("send the lines as bytes")]


@local("use the operations of `memory`")
async def manager(runtime: Runtime, /, session_id: str = "") -> MemoryManager:
    """Return the manager of memories, acting for the project of a session if given."""
    return await runtime.memory.manager(session_id)


@operation("memory:write")
async def store(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    content: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    options: MemoryOptions | None = None,
) -> str:
    """Store a memory and return its id; see `MemoryManager.store_memory`.

    An empty `session_id` goes with the scopes `user` and `global`, and, for the owner of the
    state directory, with `project`: the one in the current folder.
    """
    session_id, manager = await runtime.memory.read_of_session(session_id)
    return await manager.store_memory(session_id, content, metadata, options=options)


@operation("memory:read")
async def search(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    query: str,
    limit: int = 10,
    filters: Mapping[str, Any] | None = None,
    *,
    across_sessions: bool = False,
    scopes: Sequence[Scope] = (),
) -> list[MemoryEntry]:
    """Return the memories that fit a query best; see `MemoryManager.search_memory`."""
    session_id, manager = await runtime.memory.read_of_session(session_id)
    return await manager.search_memory(
        session_id, query, limit, filters, across_sessions=across_sessions, scopes=scopes
    )


@operation("memory:read")
async def relevant(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    query: str,
    budget_tokens: int,
    *,
    limit: int = 20,
) -> Recollection:
    """Return the best memories that fit into a token budget."""
    session_id, manager = await runtime.memory.read_of_session(session_id)
    return await manager.relevant(session_id, query, budget_tokens, limit=limit)


@operation("memory:read")
async def summarize(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    since: float = 0.0,
    *,
    model: str | LocalModel = "",
) -> MemorySummary:
    """Return what a session's memories since a time come down to.

    Written by the model that is named here, or that an agent would be given; without one,
    or when it fails, sentences are picked, and the summary says so.
    """
    session_id, manager = await runtime.memory.read_of_session(session_id)
    summarizer = await runtime.memory.make_summarizer(model)
    if summarizer is not None:
        manager = manager.act_for(manager.identity, summarizer)
    return await manager.summarize_memories(session_id, since)


@operation("memory:write")
async def remember_session(
    runtime: Runtime, caller: Caller, /, session_id: str, *, scope: Scope = "session"
) -> list[str]:
    """Store every turn of a session that is not remembered yet; returns the new ids."""
    session = await runtime.sessions.get_session(session_id)
    return await runtime.memory.remember_session(session, scope)


@operation("memory:read")
async def get(runtime: Runtime, caller: Caller, /, memory_id: str) -> MemoryEntry:
    """Return a memory by id; raises NotFound."""
    return await (await runtime.memory.manager()).get_memory(memory_id)


@operation("memory:read")
async def history(runtime: Runtime, caller: Caller, /, memory_id: str) -> list[MemoryEntry]:
    """Return all versions of a memory, oldest first."""
    return await (await runtime.memory.manager()).history(memory_id)


@operation("memory:write")
async def update(
    runtime: Runtime,
    caller: Caller,
    /,
    memory_id: str,
    content: str,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Store a newer truth in the place of a memory; returns the new id."""
    return await (await runtime.memory.manager()).update_memory(memory_id, content, metadata)


@operation("memory:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str = "",
    filters: Mapping[str, Any] | None = None,
    *,
    limit: int = 100,
    after: str = "",
    across_sessions: bool = False,
    scopes: Sequence[Scope] = (),
) -> list[MemoryEntry]:
    """Return memories, newest first."""
    session_id, manager = await runtime.memory.read_of_session(session_id)
    return await manager.list_memories(
        session_id,
        filters,
        limit=limit,
        after=after,
        across_sessions=across_sessions,
        scopes=scopes,
    )


@operation("memory:write")
async def pin(
    runtime: Runtime, caller: Caller, /, memory_id: str, *, is_pinned: bool = True
) -> None:
    """Protect a memory from retention, or no longer."""
    await (await runtime.memory.manager()).pin_memory(memory_id, is_pinned=is_pinned)


@operation("memory:write")
async def forget(
    runtime: Runtime, caller: Caller, /, memory_ids: Sequence[str], *, reason: str = ""
) -> list[str]:
    """Remove memories for good, bytes included; returns the ids that are gone."""
    return await (await runtime.memory.manager()).forget(memory_ids, reason=reason or "asked for")


@operation("memory:write")
async def delete(runtime: Runtime, caller: Caller, /, memory_id: str) -> None:
    """Remove one memory for good; raises NotFound."""
    await (await runtime.memory.manager()).delete_memory(memory_id)


@operation("memory:read")
async def stats(runtime: Runtime, caller: Caller, /) -> MemoryStats:
    """Count memories, vectors and bytes."""
    return await (await runtime.memory.manager()).stats()


@operation("memory:write")
async def reindex(runtime: Runtime, caller: Caller, /, *, vectors: bool = True) -> int:
    """Make the indexes anew and wait for the vectors; returns the number of memories."""
    manager = await runtime.memory.manager()
    count = await manager.reindex(vectors=vectors)
    if vectors:
        await manager.pipeline.settle()
    return count


@stream_operation("memory:read")
async def lines(
    runtime: Runtime, caller: Caller, /, session_id: str = "", *, with_vectors: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield memories of a session, or all, as JSON lines for `memory.load`."""
    session_id, manager = await runtime.memory.read_of_session(session_id)
    async for line in export_memories(manager, session_id, with_vectors=with_vectors):
        yield line


@operation("storage:admin")
async def load(
    runtime: Runtime,
    caller: Caller,
    /,
    source: bytes | Annotated[str, Local("send the bytes of the file")] | LocalPath | LocalLines,
) -> tuple[int, int]:
    """Store exported memories, bytes or a file; returns how many are new, how many skipped."""
    lines: Iterable[bytes]
    if isinstance(source, bytes):
        lines = source.splitlines()
    elif isinstance(source, str | os.PathLike):
        lines = (await asyncio.to_thread(Path(source).read_bytes)).splitlines()
    else:
        lines = source
    manager = await runtime.memory.manager()
    return await import_memories(manager, lines, now=runtime.journal.clock.now())
