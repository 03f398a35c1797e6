"""Shelves kept between searches, and dropped when they take too much memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from holdfast.memory.shelf import Shelf
    from holdfast.memory.storage import MemoryStorage, Place

_Key: TypeAlias = "tuple[tuple[Place, ...], str]"


@dataclass
class Lent:
    """A shelf, and the lock under which it is read and changed."""

    shelf: Shelf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Library:
    """The shelves of one storage; the least recently used ones go first."""

    def __init__(self, storage: MemoryStorage, *, max_bytes: int = 256 * 1024 * 1024) -> None:
        """Read from a storage; keep at most so many bytes, but always the shelf in use."""
        self._storage = storage
        self._max_bytes = max_bytes
        self._held: OrderedDict[_Key, Lent] = OrderedDict()

    async def lend(self, places: tuple[Place, ...], model: str, dimension: int) -> Lent:
        """Return the shelf of some places, up to date; nobody changes it under its lock."""
        from holdfast.memory.shelf import Shelf  # noqa: PLC0415 - loads numpy

        held = self._held.setdefault((places, model), Lent(Shelf(dimension)))
        self._held.move_to_end((places, model))
        async with held.lock:
            changes = []
            for place in places:
                after = held.shelf.revisions.get(place, 0)
                found = await self._storage.changes(place, model, after=after)
                if found:
                    changes += found
                    held.shelf.revisions[place] = found[-1].revision
            if len(changes) > 1_000:
                await asyncio.to_thread(held.shelf.apply, changes)
            else:
                held.shelf.apply(changes)
        self._shrink()
        return held

    def clear(self) -> None:
        """Drop all shelves."""
        self._held.clear()

    def _shrink(self) -> None:
        total = sum(held.shelf.nbytes for held in self._held.values())
        for key in list(self._held)[:-1]:
            if total <= self._max_bytes:
                return
            if not self._held[key].lock.locked():
                total -= self._held.pop(key).shelf.nbytes


__all__ = ["Lent", "Library"]
