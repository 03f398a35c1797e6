"""Start a task at once: a coroutine that never waits costs no trip around the loop.

Python 3.12 does this by itself. For 3.11 the first step is taken here, as the task that takes
the other steps, with the calls that asyncio documents for it. That task is a seat: it stays
with the caller, and one coroutine after the other takes it, until one waits and keeps it.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.errors import UsageError

T = TypeVar("T")


class Ended(msgspec.Struct, Generic[T], frozen=True):
    """What a coroutine returned that never waited."""

    value: T


class _Seat(Coroutine[Any, Any, Any]):
    """What a task executes that is there before its coroutine: first nothing, then a guest."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        self.context = context
        self._is_taken: asyncio.Future[None] = loop.create_future()
        self._guest: Coroutine[Any, Any, Any] | None = None
        self._first: tuple[object, ...] = ()
        self.task: asyncio.Task[Any] = asyncio.Task(self, loop=loop, context=context)

    def take(self, guest: Coroutine[Any, Any, Any], waits_for: object) -> None:
        """Let the task go on with a coroutine that has taken its first step, and waits now."""
        self._guest, self._first = guest, (waits_for,)
        if not self._is_taken.done():
            self._is_taken.set_result(None)

    def leave(self, caller: asyncio.Task[Any]) -> None:
        """Let the task end; nobody comes any more."""
        self._is_taken.cancel()
        if _seats.get(caller) is self:
            del _seats[caller]

    # --- for the task -----------------------------------------------------------------

    def send(self, value: Any) -> Any:  # noqa: ANN401 - passed on as it came
        if self._guest is None:
            return next(self._is_taken.__await__())
        if self._first:
            [waits_for], self._first = self._first, ()
            return waits_for
        return self._guest.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - passed on as it came
        if self._guest is None:
            raise error[0]
        self._first = ()
        return self._guest.throw(*error)

    def close(self) -> None:
        if self._guest is not None:
            self._guest.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise UsageError(detail="Only a task executes this.")


_seats: dict[asyncio.Task[Any], _Seat] = {}
"""Where the next coroutine of a task sits, as long as the task is not done."""


def _new_seat(caller: asyncio.Task[Any], context: contextvars.Context) -> _Seat:
    old = _seats.get(caller)
    if old is not None:
        caller.remove_done_callback(old.leave)
        old.leave(caller)
    seat = _seats[caller] = _Seat(caller.get_loop(), context)
    caller.add_done_callback(seat.leave)
    return seat


def _start_by_hand(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Ended[T]:
    loop = asyncio.get_running_loop()
    caller = asyncio.current_task(loop)
    assert caller is not None
    context = contextvars.copy_context()
    seat = _seats.get(caller)
    # The coroutine finds here what its caller sees, and nothing else.
    if seat is None or seat.context != context or seat.task.cancelling() or seat.task.done():
        seat = _new_seat(caller, context)
    task = seat.task
    asyncio.tasks._leave_task(loop, caller)
    asyncio.tasks._enter_task(loop, task)
    try:
        waits_for = seat.context.run(coroutine.send, None)
    except StopIteration as end:
        if task.cancelling():  # a task that cancels itself and ends is cancelled
            raise asyncio.CancelledError from None
        return Ended(end.value)
    finally:
        asyncio.tasks._leave_task(loop, task)
        asyncio.tasks._enter_task(loop, caller)
    seat.take(coroutine, waits_for)
    del _seats[caller]
    caller.remove_done_callback(seat.leave)
    return task


if sys.version_info >= (3, 12):

    def start_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Ended[T]:
        """Run a coroutine in a task of its own, at once up to where it first waits.

        Raises:
            BaseException: what it raises before it waits; `CancelledError` is its own, too.
        """
        task = asyncio.Task(coroutine, loop=asyncio.get_running_loop(), eager_start=True)
        return Ended(task.result()) if task.done() else task

else:
    start_eagerly = _start_by_hand
