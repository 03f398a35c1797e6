"""Facts that wait for company: stored with the next append, or a moment later without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from holdfast.errors import HoldfastError
from holdfast.journal.payloads import Payload

_MOMENT_S = 0.02

Store: TypeAlias = Callable[[Sequence[Payload], str], Awaitable[object]]
"""Stores payloads of one agent path, together or not at all."""


class DeferredFacts:
    """Facts of one turn that need no commit of their own, in the order in which they came.

    A crash loses them, so whoever defers must be able to do the work again.
    """

    def __init__(self, store: Store) -> None:
        """Write with this function."""
        self._store = store
        self._waiting: list[tuple[str, Payload]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Task[None] | None = None

    def add(self, agent_path: str, payloads: Sequence[Payload]) -> None:
        """Take facts; they are stored a moment later at the latest."""
        self._waiting += [(agent_path, payload) for payload in payloads]
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_MOMENT_S, self._store_soon)

    async def take(self, agent_path: str) -> list[Payload]:
        """Hand over what waits, to be stored before the taker's own facts.

        What belongs to another agent path, or is being stored right now, is stored first.
        """
        waiting = self._waiting
        if self._storing is not None or any([path != agent_path for path, _ in waiting]):
            await self.flush()
        taken, self._waiting = self._waiting, []
        return [payload for _, payload in taken]

    def put_back(self, agent_path: str, payloads: Sequence[Payload]) -> None:
        """Take back what could not be stored; the next one tries again."""
        self._waiting[:0] = [(agent_path, payload) for payload in payloads]

    async def flush(self) -> None:
        """Store what waits now; raises what the store raises."""
        while self._waiting or self._storing is not None:
            if self._storing is None:
                self._storing = asyncio.create_task(self._store_waiting())
            await asyncio.shield(self._storing)

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                path = self._waiting[0][0]
                count = next(
                    (n for n, (other, _) in enumerate(self._waiting) if other != path),
                    len(self._waiting),
                )
                payloads = [payload for _, payload in self._waiting[:count]]
                del self._waiting[:count]
                try:
                    await self._store(payloads, path)
                except BaseException:
                    self.put_back(path, payloads)
                    raise
        finally:
            self._storing = None

    def _store_soon(self) -> None:
        self._timer = None
        if self._waiting and self._storing is None:
            self._storing = asyncio.create_task(self._store_quietly())

    async def _store_quietly(self) -> None:
        try:
            await self._store_waiting()
        except HoldfastError:
            return  # they wait again, and whoever appends next meets the same trouble
