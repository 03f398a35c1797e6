"""A run as a stream: what happens, and at the very end the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeAlias

from holdfast.agents import AgentResult, ChildPiece, Listener, OutputT, hear_nothing
from holdfast.messages import ToolPart
from holdfast.providers import Delta, Finished

StreamItem: TypeAlias = Delta | ToolPart | ChildPiece | AgentResult[OutputT]
"""A piece of an answer, a finished call, those of children, and at the very end the result."""


class _Heard:
    """What a listener hears, in order, until it is taken."""

    __slots__ = ("items", "waiter")

    def __init__(self) -> None:
        self.items: list[StreamItem] = []
        self.waiter: asyncio.Future[None] | None = None
        """Of the caller that waits until there is something, or a caller wakes them."""

    def hear(self, item: StreamItem) -> None:
        self.items.append(item)
        if self.waiter is not None:
            self.wake()

    def wake(self, *_: object) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class StartedRun:
    """A run that goes on in the background, and the caller that follows it."""

    def __init__(self, listener: Listener = hear_nothing) -> None:
        """Only the listener of the caller that started it follows yet."""
        self._listeners = [listener]
        self.task: asyncio.Task[AgentResult] | None = None
        self._followers: list[_Heard] = []
        self._so_far: list[StreamItem] = []

    def hear(self, item: Delta | ToolPart) -> None:
        """Take a piece; those of the present message are kept for who comes late."""
        for listener in self._listeners:
            listener(item)
        self._so_far.append(item)
        if isinstance(item, Finished | ToolPart):
            self._so_far.clear()
        for follower in self._followers:
            follower.hear(item)

    def add_listener(self, listener: Listener) -> None:
        """Let another caller hear it, from the present message on."""
        for item in self._so_far:
            if isinstance(item, Delta | ToolPart):
                listener(item)
        self._listeners.append(listener)

    def end(self) -> None:
        """Let followers know that nothing comes any more."""
        for follower in self._followers:
            follower.wake()

    async def items(self) -> AsyncGenerator[StreamItem, None]:
        """Yield the pieces of the present message and all that follow, until the run ends."""
        heard, task = _Heard(), self.task
        assert task is not None
        heard.items.extend(self._so_far)
        self._followers.append(heard)
        try:
            while True:
                items, heard.items = heard.items, []
                for item in items:
                    yield item
                if heard.items:
                    continue
                if task.done():
                    return
                heard.waiter = asyncio.get_running_loop().create_future()
                await heard.waiter
        finally:
            self._followers.remove(heard)


async def stream_model(
    start: Callable[[Callable[[StreamItem], None]], Coroutine[Any, Any, AgentResult]],
) -> AsyncGenerator[StreamItem, None]:
    """Start a run with a listener and yield what it hears; leaving early cancels the run.

    Pieces that came together are yielded one after the other, without waiting in between.
    """
    heard, loop = _Heard(), asyncio.get_running_loop()
    work = asyncio.create_task(start(heard.hear))
    work.add_done_callback(heard.wake)
    try:
        while True:
            while heard.items:
                items, heard.items = heard.items, []
                for item in items:
                    yield item
            if work.done():
                break
            heard.waiter = loop.create_future()
            await heard.waiter
        yield await work
    finally:
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
