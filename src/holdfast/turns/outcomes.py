"""How a turn ends otherwise than its handler says: failures, cancellations, late steering."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Coroutine, Iterator
from typing import Any

from holdfast.errors import HoldfastError, LeaseLost, RunInterrupted, RunInTheWay, StorageError
from holdfast.ids import make_id
from holdfast.journal import Payload
from holdfast.sessions import events as facts
from holdfast.turns.turn import Outcome, Turn, TurnCancelled, TurnFailed

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_MACHINE = _EXHAUSTED | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_NO_THREAD = "can't start new thread"
"""Python's words for it; it has no class of its own."""


def is_machine_fault(error: BaseException) -> bool:
    """Say whether the machine failed (descriptors, memory, disk, I/O), and not the work.

    Such a failure ends no run: it stays interrupted, to be resumed when the machine is well. What
    an error was raised from counts too, such as a directory that could not be opened because too
    many files were.
    """
    return any(
        isinstance(one, StorageError)
        or (isinstance(one, OSError) and one.errno in _MACHINE)
        or _is_exhausted(one)
        for one in _walk_causes(error)
    )


def is_exhaustion(error: BaseException) -> bool:
    """Say whether this process has run out of descriptors, memory or threads."""
    return any(_is_exhausted(one) for one in _walk_causes(error))


def _is_exhausted(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _EXHAUSTED
    if isinstance(error, RuntimeError):
        return _NO_THREAD in str(error)
    return isinstance(error, MemoryError | RunInterrupted)


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, or while what was handled."""
    # What is raised out of a group has the group as its cause, and is in it: a circle.
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
        waiting.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))


async def make_outcome(turn: Turn, error: BaseException) -> Outcome:
    """Return how a turn ends whose handler raised this: here a failure becomes a fact.

    What must not end the run, which stays interrupted, is raised again.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        return TurnCancelled(reason="a task inside the handler was cancelled")
    if isinstance(error, LeaseLost) and (turn.has_lost_lease or await turn.is_lost()):
        raise error
    if is_machine_fault(error):
        # No fact about the work; an end would also hide that nobody knows what became of an effect.
        raise error
    if not isinstance(error, HoldfastError):
        return make_failed(f"{type(error).__name__}: {error}")
    if isinstance(error, RunInTheWay) and error.context["run_id"] == turn.run.id:
        raise error  # for whoever can execute it
    return TurnFailed(error=error.to_dict())


async def list_late_steering(turn: Turn, owner: str) -> list[Payload]:
    """Return the facts that turn steering messages that no process took into turns of their own."""
    moved: list[Payload] = []
    for sent in await turn.list_steering():
        if sent.message is None:
            # Its content was removed meanwhile; there is nothing left to answer.
            moved.append(facts.SignalMoved(signal_id=sent.signal_id))
            continue
        queued = facts.RunQueued(
            run_id=make_id("run"),
            owner=owner,
            message=sent.message,
            agent=turn.request.agent,
            options=turn.request.options,
            traceparent=turn.request.traceparent,
        )
        moved += [facts.SignalMoved(signal_id=sent.signal_id, run_id=queued.run_id), queued]
    return moved


def make_failed(detail: str) -> TurnFailed:
    """Return the failure that a text describes, whatever characters it holds."""
    plain = detail.encode(errors="backslashreplace").decode()
    return TurnFailed(error=HoldfastError(detail=plain).to_dict())


async def finish(work: Coroutine[Any, Any, object]) -> bool:
    """Do something to its end, also when the caller is cancelled meanwhile; say whether it was.

    Who is not being cancelled anyway then raises CancelledError. Failing is allowed: a
    cancelled caller cannot be told, and what is stored stays true.
    """
    was_cancelled = False
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
    with contextlib.suppress(HoldfastError):
        task.result()
    return was_cancelled
