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
    revision: int = -1
    """Of the storage, when the shelf was last brought up to date."""
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

        key = (places, model)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = Lent(Shelf(dimension))
        self._held.move_to_end(key)
        async with held.lock:
            # Asked first: what changes from here on has a higher number.
            revision = await self._storage.revision()
            if held.revision == revision:
                return held
            try:
                await self._bring_up_to_date(held.shelf, places, model)
            except BaseException:
                # Nobody knows how much of it was taken over: the next one begins anew.
                if self._held.get(key) is held:
                    del self._held[key]
                raise
            held.revision = revision
        self._shrink()
        return held

    def clear(self) -> None:
        """Drop all shelves."""
        self._held.clear()

    async def _bring_up_to_date(self, shelf: Shelf, places: tuple[Place, ...], model: str) -> None:
        changes = []
        for place in places:
            after = shelf.revisions.get(place, 0)
            found = await self._storage.changes(place, model, after=after)
            if found:
                changes += found
                shelf.revisions[place] = found[-1].revision
        if len(changes) > 1_000:
            await asyncio.to_thread(shelf.apply, changes)
        else:
            shelf.apply(changes)

    def _shrink(self) -> None:
        total = sum(held.shelf.nbytes for held in self._held.values())
        for key in list(self._held)[:-1]:
            if total <= self._max_bytes:
                return
            if not self._held[key].lock.locked():
                total -= self._held.pop(key).shelf.nbytes


__all__ = ["Lent", "Library"]
