"""The MemoryManager: remember, supersede, recall, forget."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import AlreadyExists, HoldfastError, NotFound, UsageError
from holdfast.journal import Payload
from holdfast.memory.choice import reopen_embedder
from holdfast.memory.drafting import NewMemory, draft_of, with_vector
from holdfast.memory.embedder import MemoryEmbedder
from holdfast.memory.entry import (
    SCOPES,
    MemoryEntry,
    MemoryOptions,
    MemorySummary,
    Provenance,
    Scope,
)
from holdfast.memory.events import (
    MemoryForgotten,
    MemoryRecalled,
    MemoryStored,
    MemorySuperseded,
)
from holdfast.memory.former import Again, FormerEmbedders, make_unit_vector
from holdfast.memory.identity import Identity, find_own_place, list_places, make_owning
from holdfast.memory.pipeline import EmbeddingPipeline
from holdfast.memory.recollection import Recollection, recollect
from holdfast.memory.requests import (
    check_limit,
    check_name,
    check_query,
    check_time,
    narrow_request,
    parse_filters,
)
from holdfast.memory.rules import MemoryRules
from holdfast.memory.search import Searcher
from holdfast.memory.space import find_space
from holdfast.memory.storage import (
    MemoryDraft,
    MemoryFilter,
    MemoryPlace,
    MemoryStats,
    MemoryStorage,
    Purge,
)
from holdfast.memory.summarizer import ExtractiveSummarizer, MemorySummarizer
from holdfast.memory.turns import TURN, iterate_new_turns, turn_id
from holdfast.messages import Message
from holdfast.observability import Logger
from holdfast.redaction import Redactor

Note: TypeAlias = Callable[[str, Payload], Awaitable[None]]
"""Takes a fact about a session, to be journalled; the id may be empty."""

_SUMMARY = "summary"
_SUMMED_UP = 1_000
"""So many memories a summary is made from; more would say less about each."""
_CLOSING_PATIENCE_S = 5.0
_SEARCH_PATIENCE_S = 2.0
"""So long a search waits for vectors of what was stored just before."""
_log = Logger("holdfast.memory")


async def note_nothing(session_id: str, fact: Payload) -> None:
    """Take no note."""


class MemoryManager:
    """Memories of one tenant, over a storage and an embedder.

    A memory is durable and findable by its words when `store_memory` returns; its vector
    follows in the background, and a search waits a moment for it. What is stored for a
    session is found in that session; sharing is a choice, made with the scope when storing
    or `across_sessions` when searching.
    """

    def __init__(  # noqa: PLR0913 - collaborators, each with a default
        self,
        storage: MemoryStorage,
        embedder: MemoryEmbedder,
        *,
        identity: Identity | None = None,
        rules: MemoryRules | None = None,
        former_embedders: Sequence[MemoryEmbedder] | Again = (),
        summarizer: MemorySummarizer | None = None,
        note: Note = note_nothing,
        redactor: Redactor | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Work for an identity; `open` it first.

        While memories wait to be embedded anew, `former_embedders` still find them: objects,
        or a function that makes the embedder of a space again. Without a function, built-in
        embedders and servers that need no key are made again by themselves. What the
        `redactor` finds is not kept.
        """
        self.identity = identity or Identity()
        self.rules = rules or MemoryRules()
        self.embedder = embedder
        self._storage = storage
        self._summarizer = summarizer or ExtractiveSummarizer()
        self._note = note
        self._redactor = redactor
        self._clock = clock
        former = FormerEmbedders(
            storage,
            embedder.model_id,
            () if callable(former_embedders) else former_embedders,
            former_embedders if callable(former_embedders) else reopen_embedder,
            patience_s=self.rules.former_patience_s,
            clock=clock,
        )
        self._searcher = Searcher(
            storage,
            embedder,
            former,
            weights=self.rules.compute_weights,
            rerank_within_s=self.rules.rerank_within_s,
            clock=clock,
        )
        self.pipeline = EmbeddingPipeline(storage, embedder)
        self._keeper: asyncio.Task[None] | None = None

    # --- opening ----------------------------------------------------------------------

    async def open(self) -> MemoryManager:
        """Open the storage, go on embedding what has no vector, begin retention."""
        await self._storage.open()
        try:
            await self._note_address()
        except BaseException:
            await self._storage.close()
            raise
        self.pipeline.wake()
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep_house())
        return self

    async def close(self) -> None:
        """Give vectors a moment to be finished, then close; the rest follows next time."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        await self.pipeline.settle(_CLOSING_PATIENCE_S if not self.pipeline.last_error else 0.0)
        await self.pipeline.stop()
        self._searcher.clear_indexes()
        await self._searcher.former.close()
        await self._storage.close()

    async def __aenter__(self) -> MemoryManager:
        """Open on entering."""
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Close on leaving."""
        await self.close()

    def act_for(
        self, identity: Identity, summarizer: MemorySummarizer | None = None
    ) -> MemoryManager:
        """Return this manager for another tenant, user or project; close only the first."""
        other = copy.copy(self)
        other.identity = identity
        other._summarizer = summarizer or self._summarizer
        return other

    # --- storing ----------------------------------------------------------------------

    async def store_memory(
        self,
        session_id: str,
        content: str,
        metadata: Mapping[str, Any] | None = None,
        embeddings: Sequence[float] | None = None,
        *,
        options: MemoryOptions | None = None,
        memory_id: str = "",
        fence: int = 0,
    ) -> str:
        """Store a memory and return its id; it is durable and findable by its words.

        `embeddings` is its vector, if the caller has made it with the manager's embedder. `fence`
        is the fencing token of the run that stores it (`ToolContext.fence`).

        Raises:
            UsageError: the content, metadata, options or vector cannot be kept.
            NotFound: a memory that the options refer to does not exist.
            AlreadyExists: `memory_id` is taken.
            LeaseLost: a run with a higher fence has written for this session.
        """
        new = NewMemory(
            session_id=session_id,
            content=content,
            metadata=metadata,
            options=options,
            memory_id=memory_id,
            fence=fence,
        )
        return await self._store(new, embeddings=embeddings)

    async def _store(
        self,
        new: NewMemory,
        *,
        embeddings: Sequence[float] | None = None,
        tokens: bytes = b"",
    ) -> str:
        """Store a memory as `store_memory` does, with tokens that its embedder made before."""
        draft = draft_of(new, self.identity, now=self._clock.now(), redactor=self._redactor)
        if embeddings is not None:
            # What the redactor took out of the text must not come back with its tokens.
            kept = tokens if draft.content == new.content else b""
            draft = with_vector(draft, self.embedder, embeddings, kept)
        await self._storage.add([draft])
        self.pipeline.wake()
        fact = MemoryStored(
            memory_id=draft.id, scope=draft.options.scope, memory_kind=draft.options.kind
        )
        await self._note(new.session_id, fact)
        return draft.id

    async def update_memory(
        self,
        memory_id: str,
        content: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        options: MemoryOptions | None = None,
    ) -> str:
        """Store what is true from now on (or `valid_from`), and return the new id.

        The older memory is kept, true until then; searches as of that time still find it.
        Without metadata or options those of the older one are taken over.

        Raises:
            NotFound: there is no such memory, or it was forgotten.
            AlreadyExists: it was already superseded; update the newest one.
        """
        old = await self.get_memory(memory_id)
        left_s = None if old.expires is None else old.expires - self._clock.now()
        chosen = options or MemoryOptions(
            scope=old.scope,
            ttl_s=left_s if left_s is None or left_s > 0 else None,
            kind=old.kind,
            speaker=old.speaker,
            importance=old.importance,
            is_pinned=old.is_pinned,
            previous_id=old.previous_id,
        )
        if chosen.scope != old.scope:
            raise UsageError(detail="A newer version stays in the scope of the older one.")
        kept = old.metadata if metadata is None else metadata
        chosen = msgspec.structs.replace(
            chosen,
            supersedes=old.id,
            provenance=_add_labels(chosen.provenance, [old]),
        )
        owned = self.act_for(make_owning(self.identity, old))
        draft = owned._draft(old.session_id, content, kept, chosen, "")
        if draft.valid_from < old.valid_from:
            raise UsageError(detail="A newer version cannot be true before the older one.")
        await self._storage.add([draft])
        self.pipeline.wake()
        await self._note(old.session_id, MemorySuperseded(memory_id=old.id, superseded_by=draft.id))
        return draft.id

    async def remember_messages(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        scope: Scope = "session",
        event_seqs: Mapping[str, int] | None = None,
        labels: Sequence[str] = (),
    ) -> list[str]:
        """Store the turns of a conversation, each with its speaker, time and turn before.

        Messages that were remembered before, or are being remembered by another process,
        are left alone; returns the ids of new ones. `event_seqs` are the numbers of the
        events that brought the messages, by the ids of these; `labels` the taint labels of what was
        read in the conversation.
        """
        tenant = self.identity.tenant
        place = find_own_place(self.identity, scope, session_id)
        where = MemoryFilter(kinds=(TURN,), metadata={"session": session_id})
        newest = await self._storage.find([place], where, now=self._clock.now(), limit=1, after="")
        spoken = [
            (message, turn_id(tenant, session_id, message))
            for message in messages
            if message.text.strip()
        ]
        ids = [memory_id for _, memory_id in spoken]
        known = frozenset(entry.id for entry in await self._storage.get(tenant, ids))
        stored = []
        for turn in iterate_new_turns(
            spoken,
            known,
            previous=newest[0].id if newest else "",
            scope=scope,
            event_seqs=event_seqs or {},
            labels=tuple(labels),
        ):
            with contextlib.suppress(AlreadyExists):
                about = {"session": session_id, **(turn.metadata or {})}
                await self.store_memory(
                    session_id,
                    turn.content,
                    about,
                    options=turn.options,
                    memory_id=turn.memory_id,
                )
                stored.append(turn.memory_id)
        return stored

    async def remembers(self, session_id: str, message: Message) -> bool:
        """Say whether a turn of a conversation was remembered, even if forgotten since."""
        tenant = self.identity.tenant
        return bool(await self._storage.get(tenant, [turn_id(tenant, session_id, message)]))

    # --- finding ----------------------------------------------------------------------

    async def search_memory(
        self,
        session_id: str,
        query: str,
        limit: int = 10,
        filters: Mapping[str, Any] | MemoryFilter | None = None,
        *,
        across_sessions: bool = False,
        scopes: Sequence[Scope] = (),
    ) -> list[MemoryEntry]:
        """Return the memories that fit a query best, best first, with scores and their parts.

        Looks at the session's memories and at those stored for its project. Those of the user
        and of everyone are looked at where `scopes` names them, all other sessions' with
        `across_sessions`. Fewer than `limit` come back only when nothing else is there: what
        has neither word nor meaning in common with the query stands last, and its part
        `unrelated` says so. What was stored just before is found by its meaning too, unless
        its vector takes longer than a moment.

        Raises:
            UsageError: the query is empty, or a filter cannot be meant.
        """
        filters, scopes = narrow_request(filters, scopes)
        where = parse_filters(filters)
        places = list_places(
            self.identity, session_id, across_sessions=across_sessions, scopes=scopes
        )
        text, most = check_query(query), check_limit(limit)
        await self.pipeline.catch_up(_SEARCH_PATIENCE_S)
        return await self._searcher.search(places, text, where, now=self._clock.now(), limit=most)

    async def relevant(
        self,
        session_id: str,
        query: str,
        budget_tokens: int,
        *,
        limit: int = 20,
        is_noted: bool = True,
        scopes: Sequence[Scope] = (),
    ) -> Recollection:
        """Return the best memories that fit into a token budget, noted with ids and scores.

        Turns of the session itself are left out: the conversation shows them already. So is
        what has nothing to do with the query.
        """
        if budget_tokens < 1 or not query.strip():
            return Recollection(memories=(), tokens=0, left_out=0)
        found = [
            entry
            for entry in await self.search_memory(session_id, query, limit, scopes=scopes)
            if (entry.parts is None or not entry.parts.unrelated)
            and (entry.kind != TURN or entry.session_id != session_id)
        ]
        made = recollect(found, budget_tokens)
        if made.memories and is_noted:
            fact = MemoryRecalled(
                memory_ids=tuple(entry.id for entry in made.memories),
                scores=tuple(round(entry.relevance_score, 4) for entry in made.memories),
                tokens=made.tokens,
            )
            await self._note(session_id, fact)
        return made

    async def get_memory(self, memory_id: str, *, with_embedding: bool = False) -> MemoryEntry:
        """Return a memory by id; raises NotFound, also for one that was forgotten or expired."""
        model = self.embedder.model_id if with_embedding else ""
        found = await self._storage.get(self.identity.tenant, [memory_id], model=model)
        if not found or found[0].forgotten is not None or found[0].is_over(self._clock.now()):
            raise NotFound(kind="memory", value=memory_id)
        return found[0]

    async def list_memories(
        self,
        session_id: str = "",
        filters: Mapping[str, Any] | MemoryFilter | None = None,
        *,
        limit: int = 100,
        after: str = "",
        across_sessions: bool = False,
        scopes: Sequence[Scope] = (),
    ) -> list[MemoryEntry]:
        """Return memories, newest first; `after` is the last id of the page before.

        Raises:
            NotFound: there never was a memory `after`.
            UsageError: a filter cannot be meant.
        """
        filters, scopes = narrow_request(filters, scopes)
        if after and not await self._storage.get(self.identity.tenant, [after]):
            raise NotFound(kind="memory", value=after)
        return await self._storage.find(
            list_places(self.identity, session_id, across_sessions=across_sessions, scopes=scopes),
            parse_filters(filters),
            now=self._clock.now(),
            limit=check_limit(limit),
            after=after,
        )

    async def with_embeddings(self, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
        """Return memories with the vectors and tokens of the manager's embedder."""
        ids, model = [entry.id for entry in entries], self.embedder.model_id
        return await self._storage.get(self.identity.tenant, ids, model=model)

    async def list_all_memories(self, *, limit: int = 500, after: str = "") -> list[MemoryEntry]:
        """Return memories of the whole tenant, superseded ones too, newest first, in pages."""
        places = [MemoryPlace(self.identity.tenant, scope, None) for scope in SCOPES]
        where = MemoryFilter(include_superseded=True)
        now = self._clock.now()
        return await self._storage.find(places, where, now=now, limit=limit, after=after)

    async def history(self, memory_id: str) -> list[MemoryEntry]:
        """Return all versions of a memory, oldest first, tombstones included."""
        tenant = self.identity.tenant
        chain = [await self.get_memory(memory_id)]
        while chain[0].supersedes:
            chain = [*await self._storage.get(tenant, [chain[0].supersedes]), *chain]
        while chain[-1].superseded_by:
            chain += await self._storage.get(tenant, [chain[-1].superseded_by])
        return chain

    async def summarize_memories(
        self, session_id: str, since: float, *, store: bool = True
    ) -> MemorySummary:
        """Return what the session's memories since a time come down to.

        Of more than 1,000 only the newest are looked at, and the summary says so. It is stored
        as a memory of its own that is forgotten with its sources.

        Raises:
            NotFound: there are no memories since then.
        """
        place = [find_own_place(self.identity, "session", check_name(session_id, "A session id"))]
        now = self._clock.now()
        where = MemoryFilter(since=check_time(since, "since"))
        found = await self._storage.find(place, where, now=now, limit=_SUMMED_UP + 1, after="")
        is_whole = len(found) <= _SUMMED_UP
        sources = [entry for entry in reversed(found[:_SUMMED_UP]) if entry.kind != _SUMMARY]
        if not sources:
            raise NotFound(kind="memory of session", value=session_id)
        made = await self._summarizer.summarize(sources, max_words=self.rules.summary_words)
        ids = tuple(entry.id for entry in sources)
        memory_id = ""
        if store:
            options = MemoryOptions(
                kind=_SUMMARY, derived_from=ids, provenance=_add_labels(Provenance(), sources)
            )
            about = {"method": made.method, "since": since, "is_whole": is_whole}
            memory_id = await self.store_memory(session_id, made.text, about, options=options)
        return MemorySummary(
            id=memory_id,
            session_id=session_id,
            summary=made.text,
            since=since,
            created=now,
            memory_ids=ids,
            method=made.method,
            is_whole=is_whole,
        )

    # --- keeping and forgetting -------------------------------------------------------

    async def pin_memory(self, memory_id: str, *, is_pinned: bool = True) -> None:
        """Protect a memory from retention, or no longer; raises NotFound."""
        await self._storage.pin(self.identity.tenant, memory_id, is_pinned)

    async def link_contradiction(self, memory_id: str, other_id: str) -> None:
        """Note that two memories contradict each other; both stay as they are."""
        tenant = self.identity.tenant
        await self._storage.link(tenant, memory_id, "contradicts", other_id)
        await self._storage.link(tenant, other_id, "contradicts", memory_id)

    async def forget(
        self, memory_ids: Sequence[str], *, reason: str = "asked for", vacuum: bool = True
    ) -> list[str]:
        """Remove memories for good, with what was derived from them; returns the ids.

        Content, metadata, words and vectors go; a tombstone with the id stays. With `vacuum`
        the bytes are overwritten in the file before this returns; it takes as long as the
        index of words is large.
        """
        if isinstance(memory_ids, str) or not isinstance(memory_ids, Sequence):
            raise UsageError(detail="What to forget is a list of ids.")
        tenant = self.identity.tenant
        before = {entry.id: entry for entry in await self._storage.get(tenant, memory_ids)}
        gone = await self._storage.forget(tenant, memory_ids, now=self._clock.now(), reason=reason)
        if gone and vacuum:
            await self._storage.compact()
        by_session: dict[str, list[str]] = {}
        for memory_id in gone:
            session_id = before[memory_id].session_id if memory_id in before else ""
            by_session.setdefault(session_id, []).append(memory_id)
        for session_id, ids in by_session.items():
            await self._note(session_id, MemoryForgotten(memory_ids=tuple(ids), reason=reason))
        return gone

    async def forget_session(self, session_id: str, *, reason: str = "asked for") -> list[str]:
        """Remove for good what was stored for one session only; returns the ids."""
        gone: list[str] = []
        where = MemoryFilter(include_superseded=True)
        while page := await self.list_memories(session_id, where, limit=500, scopes=("session",)):
            ids = [entry.id for entry in page]
            gone += await self.forget(ids, reason=reason, vacuum=False)
        if gone:
            await self._storage.compact()
        return gone

    async def delete_memory(self, memory_id: str) -> None:
        """Remove one memory for good; raises NotFound."""
        if not await self.forget([memory_id]):
            raise NotFound(kind="memory", value=memory_id)

    async def purge(self) -> list[str]:
        """Forget what has expired or is beyond the caps, never what is pinned; returns ids."""
        rule = Purge(
            now=self._clock.now(),
            max_entries=self.rules.max_entries,
            max_bytes=self.rules.max_bytes,
            half_life_s=self.rules.half_life_s,
        )
        gone = await self._storage.purge(self.identity.tenant, rule)
        if gone:
            await self._storage.compact()
            await self._note("", MemoryForgotten(memory_ids=tuple(gone), reason="retention"))
        return gone

    async def reindex(self, *, vectors: bool = True) -> int:
        """Make the index of words anew, and all vectors too; returns the number of memories.

        Raises:
            HoldfastError: the embedder cannot be asked now; nothing was changed. Without
                `vectors` it is not needed.
        """
        is_new = vectors and bool(self.embedder.model_id)
        if is_new:
            # Vectors are dropped only if there is an embedder to make them again.
            await make_unit_vector(self.embedder, "ready?")
        count = await self._storage.reindex()
        if is_new:
            await self._storage.drop_vectors(self.embedder.model_id)
            self.pipeline.wake()
        return count

    async def stats(self) -> MemoryStats:
        """Count what is there, and say how the embedders of older vectors are."""
        counts = await self._storage.stats(self.identity.tenant)
        former = await self._searcher.former.list_states()
        return msgspec.structs.replace(counts, former=former)

    # --- inside -----------------------------------------------------------------------

    async def _note_address(self) -> None:
        """Keep where the embedder is asked now, for vectors that know another address or none."""
        space = find_space(self.embedder)
        if space is None:
            return
        known = {one.model_id: one for one in await self._storage.list_spaces()}
        if known.get(space.model_id, space) != space:
            await self._storage.put_vectors(space.model_id, {}, {}, space=space)

    async def _keep_house(self) -> None:
        while True:
            try:
                await self.purge()
                await self._storage.tidy()
                self.pipeline.wake()  # what an older version stored may need another vector
            except HoldfastError as error:
                # A disk that is full or locked now may not be so the next time.
                _log.warning("memory.not_purged", error=error.code)
            await asyncio.sleep(self.rules.purge_every_s)

    def _draft(
        self,
        session_id: str,
        content: str,
        metadata: Mapping[str, Any] | None,
        options: MemoryOptions | None,
        memory_id: str,
    ) -> MemoryDraft:
        new = NewMemory(
            session_id=session_id,
            content=content,
            metadata=metadata,
            options=options,
            memory_id=memory_id,
        )
        return draft_of(new, self.identity, now=self._clock.now(), redactor=self._redactor)


def _add_labels(provenance: Provenance, sources: Sequence[MemoryEntry]) -> Provenance:
    """Return it with the taint labels of what the new memory was made from."""
    labels = {one for entry in sources for one in entry.provenance.labels}
    return msgspec.structs.replace(
        provenance, labels=tuple(sorted(labels.union(provenance.labels)))
    )


__all__ = [
    "Identity",
    "MemoryManager",
    "MemoryRules",
    "Note",
    "Recollection",
    "note_nothing",
]
