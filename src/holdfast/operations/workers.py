"""Workers: be one, see who works, and what was given up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from holdfast.dispatch import DeadLetter, WorkerStatus
from holdfast.errors import UsageError
from holdfast.operations.caller import Caller
from holdfast.operations.operation import local, operation
from holdfast.runtime import Runtime

_MOST_AT_ONCE = 1_000
_QUEUE = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,39})?")


@local("start `holdfast worker` there")
async def run(
    runtime: Runtime,
    /,
    stop: asyncio.Event | None = None,
    *,
    concurrency: int = 4,
    name: str = "",
    most_failures: int = 5,
    grace_s: float | None = None,
    queues: Sequence[str] = ("",),
    triggers: bool = False,
) -> None:
    """Go on with whatever waits in any session until `stop` is set, `concurrency` at once.

    Told to stop, it lets work go on for `grace_s` (by default `server.grace_s`), then leaves it to
    other workers. A wake-up that failed `most_failures` times, or killed so many workers, is
    given up: see `workers.list_dead`. Of agents that `workers.queues` binds to a queue, it
    executes those of its own `queues` only; the empty name is the queue of all others. With
    `triggers` it fires triggers too; each event and each tick is taken by one of the workers.

    Raises:
        UsageError: a number is out of range; nothing was begun.
    """
    if not 1 <= concurrency <= _MOST_AT_ONCE:
        raise UsageError(detail=f"concurrency is a number from 1 to {_MOST_AT_ONCE}.")
    if most_failures < 1 or (grace_s is not None and grace_s < 0):
        raise UsageError(detail="most_failures is at least 1, and grace_s not negative.")
    if len(name) > 200 or not name.isprintable():
        raise UsageError(detail="The name of a worker is one line of at most 200 characters.")
    if not queues or not all(_QUEUE.fullmatch(queue) for queue in queues):
        raise UsageError(detail="queues are names of letters, digits, `.`, `_` and `-`.")
    await runtime.workers.work(
        stop or asyncio.Event(),
        concurrency=concurrency,
        name=name,
        most_failures=most_failures,
        grace_s=grace_s,
        queues=queues,
        has_triggers=triggers,
    )


@operation("storage:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[WorkerStatus]:
    """Return the workers that live, since when, and which sessions they hold."""
    return await runtime.workers.list_workers()


@operation("storage:read")
async def list_dead(runtime: Runtime, caller: Caller, /) -> list[DeadLetter]:
    """Return the wake-ups that were given up, oldest first."""
    return await runtime.workers.list_dead()


@operation("storage:admin")
async def retry(runtime: Runtime, caller: Caller, /, letter_id: int) -> DeadLetter:
    """Have a session tried again whose wake-up was given up; returns what the letter was.

    Raises:
        NotFound: there is no such dead letter.
    """
    return await runtime.workers.retry_dead(letter_id)
