"""Facts that wait for company: stored with the next append, or a moment later without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from holdfast.errors import HoldfastError, UsageError
from holdfast.journal.envelope import Encoded

_MOMENT_S = 0.1

Store: TypeAlias = Callable[[Sequence[Encoded]], Awaitable[object]]
"""Stores facts, together or not at all."""


async def _nowhere(_facts: Sequence[Encoded]) -> None:
    raise UsageError(detail="The turn has ended; nothing more can be stored with it.")


class WriteBuffer:
    """Facts of one turn that need no commit of their own, in the order in which they came.

    A crash loses them, so whoever defers must be able to do the work again.
    """

    def __init__(self, store: Store) -> None:
        """Write with this function."""
        self._store = store
        self._waiting: list[Encoded] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._storing: asyncio.Task[None] | None = None

    def add(self, fact: Encoded) -> None:
        """Take a fact; it is stored a moment later at the latest."""
        self._waiting.append(fact)
        is_first = len(self._waiting) == 1
        if is_first or self._timer is None:
            loop = asyncio.get_running_loop()
            if is_first:
                self._due = loop.time() + _MOMENT_S
            if self._timer is None:
                self._timer = loop.call_at(self._due, self._store_soon, loop)

    async def take(self) -> list[Encoded]:
        """Hand over what waits, to be stored before the taker's own facts.

        What is being stored right now is stored first, and with it what came meanwhile.
        """
        if self._storing is not None:
            await self.flush()
        taken, self._waiting = self._waiting, []
        return taken

    def end(self) -> None:
        """Take no more; whoever stores is let go, so that an ended turn leads to nothing."""
        self._store = _nowhere
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def put_back(self, facts: Sequence[Encoded]) -> None:
        """Take back what could not be stored; the next one tries again."""
        self._waiting[:0] = facts

    async def flush(self) -> None:
        """Store what waits now; raises what the store raises."""
        while self._waiting or self._storing is not None:
            if self._storing is None:
                self._storing = asyncio.create_task(self._store_waiting())
            await asyncio.shield(self._storing)

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                try:
                    await self._store(taken)
                except Exception:
                    # Not when the loop ends: then they are stored, or lost as by a crash.
                    self.put_back(taken)
                    raise
        finally:
            self._storing = None

    def _store_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._waiting or self._storing is not None:
            return
        if loop.time() < self._due:
            # What it was set for is stored; what waits now came later.
            self._timer = loop.call_at(self._due, self._store_soon, loop)
        else:
            self._storing = asyncio.create_task(self._store_quietly())

    async def _store_quietly(self) -> None:
        try:
            await self._store_waiting()
        except HoldfastError:
            return  # they wait again, and whoever appends next meets the same trouble
