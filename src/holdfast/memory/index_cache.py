"""Indexes kept between searches, and dropped when they take too much memory."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from holdfast.memory.word_index import WordIndex

if TYPE_CHECKING:
    from holdfast.memory.storage import MemoryPlace, MemoryStorage
    from holdfast.memory.vector_index import VectorIndex

_Key: TypeAlias = "tuple[tuple[MemoryPlace, ...], str]"


@functools.cache
def has_numpy() -> bool:
    """Say whether vectors can be compared: numpy comes with the extra `memory`."""
    return importlib.util.find_spec("numpy") is not None


def make_index(dimension: int) -> VectorIndex | WordIndex:
    """Return an empty index for vectors of a length; one of words only without numpy."""
    if not has_numpy():
        return WordIndex()
    from holdfast.memory.vector_index import VectorIndex  # noqa: PLC0415 - loads numpy

    return VectorIndex(dimension)


@dataclass
class CachedIndex:
    """An index, and the lock under which it is read and changed."""

    index: VectorIndex | WordIndex
    revision: int = -1
    """Of the storage, when the index was last brought up to date."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class IndexCache:
    """The indexes of one storage; the least recently used ones go first."""

    def __init__(self, storage: MemoryStorage, *, max_bytes: int = 256 * 1024 * 1024) -> None:
        """Read from a storage; keep at most so many bytes, but always the index in use."""
        self._storage = storage
        self._max_bytes = max_bytes
        self._held: OrderedDict[_Key, CachedIndex] = OrderedDict()

    async def get(self, places: tuple[MemoryPlace, ...], model: str, dimension: int) -> CachedIndex:
        """Return the index of some places, up to date; no caller changes it under its lock."""
        key = (places, model)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = CachedIndex(make_index(dimension))
        self._held.move_to_end(key)
        async with held.lock:
            # Asked first: what changes from here on has a higher number.
            revision = await self._storage.revision()
            if held.revision == revision:
                return held
            try:
                await self._bring_up_to_date(held.index, places, model)
            except BaseException:
                # It is not known how much of it was taken over: the next one begins anew.
                if self._held.get(key) is held:
                    del self._held[key]
                raise
            held.revision = revision
        self._shrink()
        return held

    def clear(self) -> None:
        """Drop all indexes."""
        self._held.clear()

    async def _bring_up_to_date(
        self, index: VectorIndex | WordIndex, places: tuple[MemoryPlace, ...], model: str
    ) -> None:
        changes = []
        for place in places:
            after = index.revisions.get(place, 0)
            found = await self._storage.changes(place, model, after=after)
            if found:
                changes += found
                index.revisions[place] = found[-1].revision
        if len(changes) > 1_000:
            await asyncio.to_thread(index.apply, changes)
        else:
            index.apply(changes)

    def _shrink(self) -> None:
        total = sum(held.index.nbytes for held in self._held.values())
        for key in list(self._held)[:-1]:
            if total <= self._max_bytes:
                return
            if not self._held[key].lock.locked():
                total -= self._held.pop(key).index.nbytes


__all__ = ["CachedIndex", "IndexCache", "has_numpy", "make_index"]
