"""Memories: store, search, supersede, forget."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.client.context import ContextMethods
from holdfast.client.sessions import SessionMethods
from holdfast.context import ContextBuilder, MemoriesStep, RecallStep
from holdfast.context.history import compaction_of
from holdfast.errors import HoldfastError, LLMAuthError
from holdfast.journal import SYSTEM_SESSION, Payload
from holdfast.memory import (
    Identity,
    MemoryEmbedder,
    MemoryEntry,
    MemoryManager,
    MemoryOptions,
    MemoryRules,
    MemoryStats,
    MemorySummary,
    ModelSummarizer,
    Recollection,
    RemoteEmbedder,
    Scope,
    SqliteMemoryStorage,
    UnreadyEmbedder,
    VectorSpace,
    export_memories,
    import_memories,
    local_again,
    local_embedder,
    memory_tools,
    remote_again,
)
from holdfast.messages import Message
from holdfast.observability import Logger
from holdfast.providers.model import Model
from holdfast.sessions import Session
from holdfast.tools import Tool

_log = Logger("holdfast.memory")

MEMORY_FILE = "memory.db"
_LATELY = 32
"""So many messages are looked at after a turn, unless more of them are new."""
_DAY_S = 86_400.0
_USER = "local"
"""A state directory belongs to one person."""


class MemoryMethods(ContextMethods, SessionMethods):
    """What the client can do with memories."""

    _memory: MemoryManager | None = None
    _memory_once: asyncio.Lock | None = None

    async def memory_manager(self, session_id: str = "") -> MemoryManager:
        """Return the manager of memories, acting for the project of a session if given."""
        sessions = await self._ready()
        if self._memory_once is None:
            self._memory_once = asyncio.Lock()
        async with self._memory_once:
            if self._memory is None:
                storage = SqliteMemoryStorage(
                    self.base_dir / MEMORY_FILE,
                    is_synced=self.settings.storage.durability == "power",
                )
                embedder = await self._make_embedder()
                wanted = self.settings.memory
                manager = MemoryManager(
                    storage,
                    embedder,
                    identity=Identity(tenant=self.tenant, user=_USER),
                    rules=MemoryRules(
                        max_entries=wanted.max_entries,
                        max_bytes=wanted.max_bytes,
                        recency=wanted.recency_weight,
                        half_life_s=wanted.half_life_days * _DAY_S,
                        rerank=wanted.rerank,
                        rerank_within_s=wanted.rerank_within_s,
                    ),
                    former_embedders=self._make_former,
                    note=self._note_memory,
                    redactor=self.redactor,
                )
                self._memory = await manager.open()
        project = (await sessions.get_session(session_id)).project_id if session_id else ""
        identity = Identity(tenant=self.tenant, user=_USER, project=project)
        return self._memory.acting_for(identity)

    async def store_memory(
        self,
        session_id: str,
        content: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        options: MemoryOptions | None = None,
    ) -> str:
        """Store a memory and return its id; see `MemoryManager.store_memory`.

        An empty `session_id` goes with the scopes `user` and `global`.
        """
        session_id, manager = await self._memory_of(session_id)
        return await manager.store_memory(session_id, content, metadata, options=options)

    async def search_memory(
        self,
        session_id: str,
        query: str,
        limit: int = 10,
        filters: Mapping[str, Any] | None = None,
        *,
        across_sessions: bool = False,
        scopes: Sequence[Scope] = (),
    ) -> list[MemoryEntry]:
        """Return the memories that fit a query best; see `MemoryManager.search_memory`."""
        session_id, manager = await self._memory_of(session_id)
        return await manager.search_memory(
            session_id, query, limit, filters, across_sessions=across_sessions, scopes=scopes
        )

    async def relevant_memories(
        self, session_id: str, query: str, budget_tokens: int, *, limit: int = 20
    ) -> Recollection:
        """Return the best memories that fit into a token budget."""
        session_id, manager = await self._memory_of(session_id)
        return await manager.relevant(session_id, query, budget_tokens, limit=limit)

    async def summarize_memories(
        self, session_id: str, since: float = 0.0, *, model: str | Model = ""
    ) -> MemorySummary:
        """Return what a session's memories since a time come down to.

        Written by the model that is named here, or that an agent would be given; without one,
        or when it fails, sentences are picked, and the summary says so.
        """
        session_id, manager = await self._memory_of(session_id)
        ready = await self.ready_model(model)
        if ready.model.info.is_llm:
            manager = manager.acting_for(manager.identity, ModelSummarizer(ready.model))
        return await manager.summarize_memories(session_id, since)

    async def remember_session(self, session_id: str, *, scope: Scope = "session") -> list[str]:
        """Store every turn of a session that is not remembered yet; returns the new ids."""
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        manager = await self.memory_manager(session.id)
        messages = await sessions.messages.all(session)
        return await self._remember(manager, session, messages, scope)

    async def get_memory(self, memory_id: str) -> MemoryEntry:
        """Return a memory by id; raises NotFound."""
        return await (await self.memory_manager()).get_memory(memory_id)

    async def memory_history(self, memory_id: str) -> list[MemoryEntry]:
        """Return all versions of a memory, oldest first."""
        return await (await self.memory_manager()).history(memory_id)

    async def update_memory(
        self, memory_id: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Store a newer truth in the place of a memory; returns the new id."""
        manager = await self.memory_manager()
        return await manager.update_memory(memory_id, content, metadata)

    async def list_memories(
        self,
        session_id: str = "",
        filters: Mapping[str, Any] | None = None,
        *,
        limit: int = 100,
        after: str = "",
        across_sessions: bool = False,
        scopes: Sequence[Scope] = (),
    ) -> list[MemoryEntry]:
        """Return memories, newest first."""
        session_id, manager = await self._memory_of(session_id)
        return await manager.list_memories(
            session_id,
            filters,
            limit=limit,
            after=after,
            across_sessions=across_sessions,
            scopes=scopes,
        )

    async def pin_memory(self, memory_id: str, *, is_pinned: bool = True) -> None:
        """Protect a memory from retention, or no longer."""
        await (await self.memory_manager()).pin_memory(memory_id, is_pinned=is_pinned)

    async def forget_memories(self, memory_ids: Sequence[str], *, reason: str = "") -> list[str]:
        """Remove memories for good, bytes included; returns the ids that are gone."""
        manager = await self.memory_manager()
        return await manager.forget(memory_ids, reason=reason or "asked for")

    async def delete_memory(self, memory_id: str) -> None:
        """Remove one memory for good; raises NotFound."""
        await (await self.memory_manager()).delete_memory(memory_id)

    async def memory_stats(self) -> MemoryStats:
        """Count memories, vectors and bytes."""
        return await (await self.memory_manager()).stats()

    async def reindex_memories(self, *, vectors: bool = True) -> int:
        """Make the indexes anew and wait for the vectors; returns the number of memories."""
        manager = await self.memory_manager()
        count = await manager.reindex(vectors=vectors)
        if vectors:
            await manager.pipeline.settle()
        return count

    async def memory_lines(
        self, session_id: str = "", *, with_vectors: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield memories of a session, or all, as JSON lines for `import_memories`."""
        session_id, manager = await self._memory_of(session_id)
        async for line in export_memories(manager, session_id, with_vectors=with_vectors):
            yield line

    async def import_memories(
        self, source: str | os.PathLike[str] | Iterable[bytes]
    ) -> tuple[int, int]:
        """Store exported memories; returns how many are new and how many were skipped."""
        lines: Iterable[bytes]
        if isinstance(source, str | os.PathLike):
            lines = (await asyncio.to_thread(Path(source).read_bytes)).splitlines()
        else:
            lines = source
        manager = await self.memory_manager()
        return await import_memories(manager, lines, now=self._journal.clock.now())

    async def delete_session(self, session_id: str, *, reason: str = "") -> None:
        """Remove a session for good, and forget the memories that only it could find."""
        found = await (await self._ready()).get_session(session_id)
        if self._has_memories():
            manager = await self.memory_manager(found.id)
            await manager.forget_session(found.id, reason=reason or "session deleted")
        await super().delete_session(found.id, reason=reason)

    async def close(self) -> None:
        """Close the memories, then the rest."""
        if self._memory is not None:
            memory, self._memory = self._memory, None
            await memory.close()
            if isinstance(memory.embedder, RemoteEmbedder):
                await memory.embedder.close()
        await super().close()

    async def _make_embedder(self) -> MemoryEmbedder:
        """Return the embedder that the settings name; one that lacks something costs no memory."""
        name = self.settings.memory.embedder
        provider, mark, model = name.partition(":")
        if not mark:
            return self._noted(local_embedder(name))
        registry = self._provider_registry()
        config = await registry.get_provider(provider)
        embedder = RemoteEmbedder(
            registry.endpoint(config),
            model,
            dimension=self.settings.memory.dimensions,
            limiter=self.rate_limiter,
        )
        if not config.is_key_required or registry.has_key(config):
            return embedder
        reason = LLMAuthError(
            provider=provider, detail="there is none", key_env=config.key_env or "its key"
        )
        return self._noted(UnreadyEmbedder(embedder.model_id, embedder.dimension, reason))

    def _noted(self, embedder: MemoryEmbedder) -> MemoryEmbedder:
        """Warn if an embedder lacks something, and say what to do."""
        if isinstance(embedder, UnreadyEmbedder):
            _log.warning(
                "memory.embedder_not_ready",
                model=embedder.model_id,
                error=embedder.reason.code,
                effect="Memories are kept and found by their words; vectors follow later.",
                next_step=embedder.reason.hint,
            )
        return embedder

    async def _make_former(self, space: VectorSpace) -> MemoryEmbedder | None:
        """Return the embedder that made older vectors.

        A key is sent only to the address that it is configured for.
        """
        local = await local_again(space)
        if local is not None or not space.base_url or not self.settings.memory.asks_former:
            return local
        registry = self._provider_registry()
        endpoint = await registry.endpoint_at(space.base_url, name=space.provider)
        return remote_again(space, endpoint, self.rate_limiter)

    # --- around turns -----------------------------------------------------------------

    def _make_builder(self) -> ContextBuilder:
        builder = super()._make_builder()
        if not self.settings.memory.recall_tokens:
            return builder
        # Whatever fits the budget is shown, as the journal says; a token has four characters.
        room = max(MemoriesStep.MAX_CHARS, 4 * self.settings.memory.recall_tokens)
        shown = builder.replacing(MemoriesStep(max_chars=room))
        return shown.adding(RecallStep(self._recall), after="history")

    def _memory_tools(self) -> tuple[Tool, ...]:
        return memory_tools(self.memory_manager) if self.settings.memory.has_tools else ()

    async def _recall(
        self, session: Session, request: str, *, is_noted: bool = True
    ) -> tuple[MemoryEntry, ...]:
        """Return what is remembered about a request; a broken memory costs no turn."""
        tokens = self.settings.memory.recall_tokens
        if not tokens or not request.strip() or not self._has_memories():
            return ()
        try:
            manager = await self.memory_manager(session.id)
            found = await manager.relevant(session.id, request, tokens, is_noted=is_noted)
        except HoldfastError as error:
            _log.warning("memory.not_recalled", session=session.id, error=error.code)
            return ()
        return found.memories

    async def _would_recall(self, session: Session) -> tuple[MemoryEntry, ...]:
        """Return what would be recalled for the last request; nothing is noted."""
        for message in reversed(await (await self._ready()).messages.last(session, _LATELY)):
            if message.role == "user" and compaction_of(message) is None:
                return await self._recall(session, message.text, is_noted=False)
        return ()

    async def _remember_turns(self, session_id: str) -> None:
        """Remember what was said since the last time, if the settings want it.

        What a crash kept from being remembered is caught up with after the next turn.
        """
        scope = self.settings.memory.remember_conversations
        if scope == "off":
            return
        try:
            sessions = await self._ready()
            session = await sessions.get_session(session_id)
            manager = await self.memory_manager(session.id)
            messages = await sessions.messages.last(session, _LATELY)
            if len(messages) == _LATELY and not await manager.remembers(session.id, messages[0]):
                messages = await sessions.messages.all(session)
            await self._remember(manager, session, messages, scope)
        except HoldfastError as error:
            _log.warning("memory.turn_not_remembered", session=session_id, error=error.code)

    async def _remember(
        self, manager: MemoryManager, session: Session, messages: Sequence[Message], scope: Scope
    ) -> list[str]:
        said = [message for message in messages if compaction_of(message) is None]
        reader = self._sessions.messages
        numbers = {
            message.id: (await reader.row(session, message.id)).session_seq
            for message in said
            if not await manager.remembers(session.id, message)
        }
        return await manager.remember_messages(session.id, said, scope=scope, event_seqs=numbers)

    def _has_memories(self) -> bool:
        return self._memory is not None or os.access(f"{self.base_dir}/{MEMORY_FILE}", os.F_OK)

    async def _memory_of(self, session_id: str) -> tuple[str, MemoryManager]:
        if session_id:
            session_id = (await (await self._ready()).get_session(session_id)).id
        return session_id, await self.memory_manager(session_id)

    async def _note_memory(self, session_id: str, fact: Payload) -> None:
        known = bool(session_id) and await self._journal.head(session_id) is not None
        await self._journal.append(session_id if known else SYSTEM_SESSION, [fact])
