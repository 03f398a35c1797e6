"""Memories: the manager, made when first used, and what is remembered around turns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, LLMAuthError
from holdfast.journal import SYSTEM_SESSION, Payload, SchemaStatus
from holdfast.messages import Message, read_compaction
from holdfast.observability import Logger
from holdfast.redaction import Redactor
from holdfast.runtime.models import ModelService
from holdfast.sessions import SUBJECT, Session, SessionManager, find_project_id
from holdfast.settings import Settings
from holdfast.tools import read_kept_labels

if TYPE_CHECKING:
    from holdfast.memory import (
        MemoryEmbedder,
        MemoryEntry,
        MemoryManager,
        MemorySummarizer,
        Scope,
        VectorSpace,
    )
    from holdfast.providers import Model

_log = Logger("holdfast.memory")

_LATELY = 32
"""So many messages are looked at after a turn, unless more of them are new."""
_NONE_FOR_S = 30.0
"""That a shared database holds no memories is believed so long, before a turn asks again."""
_DAY_S = 86_400.0
_USER = "local"
"""Whose memories those of the owner of a state directory are; no subject is called so."""


class MemoryService:
    """The memories of one runtime; the room behind it is loaded with the first use."""

    def __init__(
        self,
        settings: Settings,
        base_dir: Path,
        sessions: SessionManager,
        models: ModelService,
        redactor: Redactor,
        tenant: str,
    ) -> None:
        """Keep memories in this directory, on this tenant's account."""
        self._settings = settings
        self._base_dir = base_dir
        self._file = self._find_place()
        self._sessions = sessions
        self._journal = sessions.journal
        self._models = models
        self._redactor = redactor
        self._tenant = tenant
        self._manager: MemoryManager | None = None
        self._once = asyncio.Lock()
        self._none_until = 0.0

    async def has_any(self) -> bool:
        """Say whether anything was ever remembered here."""
        if self._manager is not None:
            return True
        if self._file is not None:
            return os.access(self._file, os.F_OK)
        from holdfast.memory import holds_memories  # noqa: PLC0415 - a room of its own, often unused

        return await holds_memories(self._settings.storage.url, base_dir=self._base_dir)

    async def _check_any(self) -> bool:
        """Say what `has_any` says, and believe a no from elsewhere for a while."""
        if self._manager is not None or self._file is not None:
            return await self.has_any()
        now = self._journal.clock.monotonic()
        if now < self._none_until:
            return False
        found = await self.has_any()
        self._none_until = 0.0 if found else now + _NONE_FOR_S
        return found

    async def manager(self, session_id: str = "") -> MemoryManager:
        """Return the manager of memories, acting for the project of a session if given."""
        from holdfast.memory import Identity  # noqa: PLC0415 - a room of its own, often unused

        async with self._once:
            if self._manager is None:
                self._manager = await self._open()
        if session_id:
            session = await self._sessions.get_session(session_id)
            project, user = session.project_id, session.owner
        else:
            user = SUBJECT.get()
            # The owner of the state directory means the folder where they are.
            project = "" if user else find_project_id(".")
        identity = Identity(tenant=self._tenant, user=user or _USER, project=project)
        return self._manager.act_for(identity)

    async def read_of_session(self, session_id: str) -> tuple[str, MemoryManager]:
        """Return the whole id of a session, and the manager that acts for its project."""
        if session_id:
            session_id = (await self._sessions.get_session(session_id)).id
        return session_id, await self.manager(session_id)

    async def make_summarizer(self, model: str | Model) -> MemorySummarizer | None:
        """Return what lets a model write summaries; `None` where there is no language model."""
        from holdfast.memory import ModelSummarizer  # noqa: PLC0415 - a room of its own

        ready = await self._models.ready(model)
        return ModelSummarizer(ready.model) if ready.model.info.is_llm else None

    async def remember_session(self, session: Session, scope: Scope) -> list[str]:
        """Store every turn of a session that is not remembered yet; returns the new ids."""
        manager = await self.manager(session.id)
        messages = await self._sessions.messages.all(session)
        return await self._remember(manager, session, messages, scope)

    async def recall(
        self, session: Session, request: str, *, is_noted: bool = True
    ) -> tuple[MemoryEntry, ...]:
        """Return what is remembered about a request; a broken memory costs no turn."""
        tokens = self._settings.memory.recall_tokens
        if not tokens or not request.strip():
            return ()
        file = self._file
        if self._manager is None and file is not None and not os.access(file, os.F_OK):
            return ()
        try:
            if not await self._check_any():
                return ()
            manager = await self.manager(session.id)
            found = await manager.relevant(
                session.id, request, tokens, is_noted=is_noted, scopes=self._list_recalled()
            )
        except HoldfastError as error:
            _log.warning("memory.not_recalled", session=session.id, error=error.code)
            return ()
        return found.memories

    def _list_recalled(self) -> tuple[Scope, ...]:
        """Return whose memories are put before an agent: the settings say, and what they keep."""
        wanted = self._settings.memory
        order: tuple[Scope, ...] = ("session", "project", "user", "global")
        far = order.index(wanted.recall_scope)
        if wanted.remember_conversations != "off":
            far = max(far, order.index(wanted.remember_conversations))
        return order[: far + 1]

    async def would_recall(self, session: Session) -> tuple[MemoryEntry, ...]:
        """Return what would be recalled for the last request; nothing is noted."""
        for message in reversed(await self._sessions.messages.last(session, _LATELY)):
            if message.role == "user" and read_compaction(message) is None:
                return await self.recall(session, message.text, is_noted=False)
        return ()

    async def remember_turns(self, session_id: str) -> None:
        """Remember what was said since the last time, if the settings want it.

        What a crash kept from being remembered is caught up with after the next turn.
        """
        scope = self._settings.memory.remember_conversations
        if scope == "off":
            return
        try:
            session = await self._sessions.get_session(session_id)
            manager = await self.manager(session.id)
            messages = await self._sessions.messages.last(session, _LATELY)
            if len(messages) == _LATELY and not await manager.remembers(session.id, messages[0]):
                messages = await self._sessions.messages.all(session)
            await self._remember(manager, session, messages, scope)
        except HoldfastError as error:
            _log.warning("memory.turn_not_remembered", session=session_id, error=error.code)

    async def forget_session(self, session_id: str, *, reason: str) -> None:
        """Forget the memories that only a session could find."""
        if await self.has_any():
            manager = await self.manager(session_id)
            await manager.forget_session(session_id, reason=reason or "session deleted")

    async def forget_user(self, subject: str) -> int:
        """Forget the memories of a subject as a user; returns how many there were."""
        if not await self.has_any():
            return 0
        from holdfast.memory import Identity, MemoryFilter  # noqa: PLC0415 - loaded by now

        user = Identity(tenant=self._tenant, user=subject)
        manager = (await self.manager()).act_for(user)
        where = MemoryFilter(include_superseded=True)
        count = 0
        while page := await manager.list_memories("", where, limit=500, scopes=("user",)):
            gone = await manager.forget([one.id for one in page], reason="the user was erased")
            count += len(gone)
        return count

    async def close(self) -> None:
        """Close the memories."""
        if self._manager is not None:
            from holdfast.memory import RemoteEmbedder  # noqa: PLC0415 - loaded by now

            memory, self._manager = self._manager, None
            await memory.close()
            if isinstance(memory.embedder, RemoteEmbedder):
                await memory.embedder.close()

    async def migrate_store(self, *, is_dry: bool) -> SchemaStatus | None:
        """Bring the schema of the memories up to date, or say what that would change."""
        from holdfast.memory import migrate_memory_storage  # noqa: PLC0415 - a room of its own

        url = self._settings.storage.url
        return await migrate_memory_storage(url, base_dir=self._base_dir, is_dry=is_dry)

    async def grant_role(self, role: str) -> None:
        """Let a role of the database use the memories."""
        from holdfast.memory import grant_memory_role  # noqa: PLC0415 - a room of its own

        await grant_memory_role(self._settings.storage.url, role)

    # --- inside -----------------------------------------------------------------------

    def _find_place(self) -> Path | None:
        """The file that tells whether anything was ever remembered, without asking the room."""
        url = self._settings.storage.url
        if not url:
            return self._base_dir / "memory.db"
        from holdfast.memory import find_memory_place  # noqa: PLC0415 - only where an address is given

        return find_memory_place(url, base_dir=self._base_dir)

    async def _open(self) -> MemoryManager:
        from holdfast.memory import (  # noqa: PLC0415 - a room of its own, often unused
            Identity,
            MemoryManager,
            MemoryRules,
            open_memory_storage,
        )

        wanted = self._settings.memory
        storage = open_memory_storage(
            self._settings.storage.url,
            base_dir=self._base_dir,
            is_synced=self._settings.storage.durability == "power",
        )
        manager = MemoryManager(
            storage,
            await self._make_embedder(),
            identity=Identity(tenant=self._tenant, user=_USER),
            rules=MemoryRules(
                max_entries=wanted.max_entries,
                max_bytes=wanted.max_bytes,
                recency=wanted.recency_weight,
                half_life_s=wanted.half_life_days * _DAY_S,
                rerank=wanted.rerank,
                rerank_within_s=wanted.rerank_within_s,
            ),
            former_embedders=self._make_former,
            note=self._note,
            redactor=self._redactor,
        )
        return await manager.open()

    async def _make_embedder(self) -> MemoryEmbedder:
        """Return the embedder that the settings name; one that lacks something costs no memory."""
        from holdfast.memory import (  # noqa: PLC0415 - a room of its own, often unused
            RemoteEmbedder,
            UnreadyEmbedder,
            make_local_embedder,
        )

        name = self._settings.memory.embedder
        provider, mark, model = name.partition(":")
        if not mark:
            return self._wrap_noted(make_local_embedder(name))
        registry = self._models.registry
        config = await registry.get_provider(provider)
        embedder = RemoteEmbedder(
            registry.endpoint(config),
            model,
            dimension=self._settings.memory.dimensions,
            limiter=self._models.rate_limiter,
        )
        if not config.is_key_required or registry.has_key(config):
            return embedder
        reason = LLMAuthError(
            provider=provider, detail="there is none", key_env=config.key_env or "its key"
        )
        return self._wrap_noted(UnreadyEmbedder(embedder.model_id, embedder.dimension, reason))

    def _wrap_noted(self, embedder: MemoryEmbedder) -> MemoryEmbedder:
        """Warn if an embedder lacks something, and say what to do."""
        from holdfast.memory import UnreadyEmbedder  # noqa: PLC0415 - loaded by now

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
        from holdfast.memory import reopen_local_embedder, reopen_remote_embedder  # noqa: PLC0415 - loaded by now

        local = await reopen_local_embedder(space)
        if local is not None or not space.base_url or not self._settings.memory.asks_former:
            return local
        endpoint = await self._models.registry.find_endpoint_at(space.base_url, name=space.provider)
        return reopen_remote_embedder(space, endpoint, self._models.rate_limiter)

    async def _remember(
        self, manager: MemoryManager, session: Session, messages: Sequence[Message], scope: Scope
    ) -> list[str]:
        said = [message for message in messages if read_compaction(message) is None]
        reader = self._sessions.messages
        numbers = {
            message.id: (await reader.row(session, message.id)).session_seq
            for message in said
            if not await manager.remembers(session.id, message)
        }
        labels = await read_kept_labels(self._journal, session.id)
        return await manager.remember_messages(
            session.id, said, scope=scope, event_seqs=numbers, labels=labels
        )

    async def _note(self, session_id: str, fact: Payload) -> None:
        known = bool(session_id) and await self._journal.head(session_id) is not None
        await self._journal.append(session_id if known else SYSTEM_SESSION, [fact])
