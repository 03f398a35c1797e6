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


async def streamed(
    start: Callable[[Callable[[StreamItem], None]], Coroutine[Any, Any, AgentResult]],
) -> AsyncGenerator[StreamItem, None]:
    """Start a run with a listener and yield what it hears; leaving early cancels the run."""
    heard: asyncio.Queue[StreamItem | None] = asyncio.Queue()
    work = asyncio.create_task(start(heard.put_nowait))
    work.add_done_callback(lambda _: heard.put_nowait(None))
    try:
        while (item := await heard.get()) is not None:
            yield item
        yield await work
    finally:
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
