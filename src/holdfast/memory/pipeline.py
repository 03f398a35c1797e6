"""The embedding pipeline: vectors follow the memories, in the background.

The storage itself is the queue: whatever has no vector of the current model waits there,
across restarts and changes of the model. Nothing is held in memory but one batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from holdfast.errors import EmbeddingFailed, HoldfastError
from holdfast.memory.embedder import MemoryEmbedder, TokenEmbedder, UnreadyEmbedder, pack_vector
from holdfast.memory.space import find_space
from holdfast.memory.storage import MemoryStorage, Unembedded
from holdfast.memory.words import drop_names
from holdfast.observability import Logger

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
_log = Logger("holdfast.memory")
_MANY_NEW = 256
"""After so many memories it is worth seeing whether searches have become slower."""


class EmbeddingPipeline:
    """Makes vectors, and tokens for late interaction, for memories that have none.

    In batches, while there are any; memories of an older version get their tokens so too.
    """

    def __init__(
        self,
        storage: MemoryStorage,
        embedder: MemoryEmbedder,
        *,
        batch: int = 64,
        sleep: Sleep = asyncio.sleep,
        max_delay_s: float = 60.0,
    ) -> None:
        """Work for a storage with an embedder; `wake` begins."""
        self._storage = storage
        self._embedder = embedder
        self._space = find_space(embedder)
        self._batch = batch
        self._sleep = sleep
        self._max_delay_s = max_delay_s
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._new = 0
        self._is_behind = False
        self.last_error: str = ""
        """What the embedder said when it failed last; empty once it works again."""

    def wake(self) -> None:
        """See to new memories soon; costs nothing when already at work."""
        if not self._embedder.model_id or isinstance(self._embedder, UnreadyEmbedder):
            return
        self._is_wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until every memory has its vector or was refused; False when time ran out."""
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        return bool(done)

    async def catch_up(self, timeout_s: float) -> None:
        """Wait a moment for the vectors of what was stored last.

        Not where many are waiting, as after a change of the embedder, or where it fails.
        """
        task = self._task
        if task is not None and not task.done() and not self._is_behind and not self.last_error:
            await asyncio.wait([task], timeout=timeout_s)

    async def stop(self) -> None:
        """Stop; the next `wake` goes on where this one ended."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                await self._task
            self._task = None

    async def _work(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            await self._embed_all()
            if self._new >= _MANY_NEW:
                self._new = 0
                await self._tidy()

    async def _tidy(self) -> None:
        try:
            await self._storage.tidy()
        except HoldfastError as error:
            # Searches are slower than they could be, and all is there.
            _log.warning("memory.not_tidied", error=error.code)

    async def _embed_all(self) -> None:
        """Embed until every memory has its vector or was refused.

        Memories that make the embedder fail must not keep the others from being embedded: a
        batch that failed is tried in smaller ones, and what fails alone is passed over until
        the rest is done.
        """
        delay, size, after = 1.0, self._batch, 0
        while True:
            batch = await self._storage.list_unembedded(
                self._embedder.model_id,
                size,
                after=after,
                needs_tokens=isinstance(self._embedder, TokenEmbedder),
            )
            self._is_behind = len(batch) >= self._batch
            if not batch and not after:
                return
            if not batch:
                after = 0  # once more from the beginning, for those that were passed over
                continue
            try:
                await self._embed(batch)
                self.last_error, delay, size = "", 1.0, min(2 * size, self._batch)
            except Exception as error:  # noqa: BLE001 - a foreign embedder may raise anything
                # Nothing is lost: the memories stay findable by their words.
                self.last_error = f"{type(error).__name__}: {error}"
                _log.warning("memory.embedder_failed", model=self._embedder.model_id)
                if len(batch) == 1:
                    after = batch[0].row
                size = max(1, len(batch) // 2)
                await self._sleep(delay)
                delay = min(2 * delay, self._max_delay_s)

    async def _embed(self, batch: list[Unembedded]) -> None:
        model = self._embedder.model_id
        texts = [drop_names(one.content, one.names) for one in batch]
        tokens: dict[int, bytes] = {}
        if isinstance(self._embedder, TokenEmbedder):
            made = await self._embedder.embed_texts(texts)
            vectors = [one.vector for one in made]
            tokens = {one.row: two.tokens for one, two in zip(batch, made, strict=False)}
        else:
            vectors = await self._embedder.embed(texts)
        if len(vectors) != len(batch):
            detail = f"{len(vectors)} vectors for {len(batch)} texts"
            raise EmbeddingFailed(model=model, detail=detail)
        good: dict[int, bytes] = {}
        refused: dict[int, str] = {}
        for one, vector in zip(batch, vectors, strict=True):
            if one.has_vector:
                continue  # made before tokens were, or by the caller: it stays
            try:
                good[one.row] = pack_vector(vector, self._embedder.dimension, model)
            except EmbeddingFailed as error:
                refused[one.row] = str(error)
                tokens.pop(one.row, None)
        await self._storage.put_vectors(
            model,
            good,
            refused,
            space=self._space,
            tokens=tokens,
            # What became another text meanwhile is embedded again.
            revisions={one.row: one.revision for one in batch},
        )
        self._new += len(batch)


__all__ = ["EmbeddingPipeline"]
