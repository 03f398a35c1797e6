"""Start a task at once: a coroutine that never waits costs no trip around the loop.

Python 3.12 does this by itself. For 3.11 the first step is taken here, as the task that takes
the other steps, with the calls that asyncio documents for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class _Begun(Generic[T]):
    """A coroutine whose first step has been taken here; a task takes the others."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: object = None
        self.early: asyncio.Future[T] | None = None
        """The result of a coroutine that never waited."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._waits_for = self._coroutine.send(None)
            return
        except StopIteration as end:
            self.early = loop.create_future()
            self.early.set_result(end.value)
        except asyncio.CancelledError:
            self.early = loop.create_future()
            self.early.cancel()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the task
            self.early = loop.create_future()
            self.early.set_exception(error)

    def give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a coroutine that cancelled its task before it first waited."""
        with suppress(RuntimeError):
            self._coroutine.close()
        self.early = loop.create_future()
        self.early.cancel()

    async def rest(self) -> T | None:
        # With an early result there is nothing left to do, and nobody asks this task.
        return None if self.early is not None else await self

    def __await__(self) -> Generator[object, object, T]:
        waits_for = self._waits_for
        while True:
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed on as it came
                failure: BaseException | None = error
            else:
                failure = None
            try:
                if failure is None:
                    waits_for = self._coroutine.send(value)
                else:
                    waits_for = self._coroutine.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result


def _start_by_hand(coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    caller = asyncio.current_task()
    assert caller is not None
    begun = _Begun(coroutine)
    task = loop.create_task(begun.rest())
    asyncio.tasks._leave_task(loop, caller)
    asyncio.tasks._enter_task(loop, task)
    try:
        begun.begin(loop)
    finally:
        asyncio.tasks._leave_task(loop, task)
        asyncio.tasks._enter_task(loop, caller)
    if begun.early is None and task.cancelling():
        begun.give_up(loop)
    return begun.early or cast("asyncio.Task[T]", task)


if sys.version_info >= (3, 12):

    def start_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine in a task of its own, at once up to where it first waits."""
        return asyncio.Task(coroutine, loop=asyncio.get_running_loop(), eager_start=True)

else:
    start_eagerly = _start_by_hand
