"""A run as a stream: what happens, and at the very end the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from holdfast.agents.result import AgentResult
from holdfast.messages import ToolPart
from holdfast.providers.model import Delta


class ChildPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer, or a finished call, of a run that the streamed one started.

    `path` names the agents from the first one down to the one that works, as `lead/helper`.
    """

    path: str
    session_id: str
    run_id: str
    item: Delta | ToolPart


StreamItem: TypeAlias = Delta | ToolPart | ChildPiece | AgentResult
"""A piece of an answer, a finished call, those of children, and at the very end the result."""


class _Heard:
    """What a listener hears, in order, until somebody takes it."""

    __slots__ = ("_items", "_waiter")

    def __init__(self) -> None:
        self._items: list[StreamItem] = []
        self._waiter: asyncio.Future[None] | None = None

    def hear(self, item: StreamItem) -> None:
        self._items.append(item)
        if self._waiter is not None:
            self.wake()

    def take(self) -> list[StreamItem]:
        """Return what was heard since the last time."""
        items, self._items = self._items, []
        return items

    def wake(self, *_: object) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def more(self) -> None:
        """Wait until there is something, or somebody calls."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


async def streamed(
    start: Callable[[Callable[[StreamItem], None]], Coroutine[Any, Any, AgentResult]],
) -> AsyncGenerator[StreamItem, None]:
    """Start a run with a listener and yield what it hears; leaving early cancels the run.

    Pieces that came together are yielded one after the other, without waiting in between.
    """
    heard = _Heard()
    work = asyncio.create_task(start(heard.hear))
    work.add_done_callback(heard.wake)
    try:
        while True:
            while items := heard.take():
                for item in items:
                    yield item
            if work.done():
                break
            await heard.more()
        yield await work
    finally:
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
