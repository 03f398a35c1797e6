"""What a dispatcher promises, and the data that it speaks in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

Progress: TypeAlias = Literal["done", "later"]
"""What became of a wake-up: nothing is left for this worker, or another process holds the session
and it has to be asked for again."""
WakeHandler: TypeAlias = Callable[[str], Awaitable[Progress]]
"""Goes on with a session."""


def _do_nothing() -> None:
    """No worker is told."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker works."""

    name: str
    concurrency: int = 4
    """So many sessions at once."""
    queues: tuple[str, ...] = ("",)
    """Whose wake-ups it takes; the empty name is the queue of all that are not bound to one."""
    ageing_s: float = 10.0
    """What has waited so long gains one in priority, again and again."""
    lease_ttl_s: float = 30.0
    """After so long without a sign of life a worker counts as dead."""
    most_failures: int = 5
    """So many failed or lost attempts make a wake-up a dead letter."""
    retry_s: float = 1.0
    """After a failure it waits so long, then twice as long each time."""
    look_again_s: float = 0.5
    """After so long a session is asked for again that another process held."""
    grace_s: float = 30.0
    """Told to stop, it lets work go on for so long, then hands over."""
    on_leaving: Callable[[], None] = _do_nothing
    """Called before work is cancelled, to be handed over."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and what it holds."""

    name: str
    host: str
    process: int
    concurrency: int
    queues: tuple[str, ...] = ("",)
    time_started: float
    time_seen: float
    """Its last sign of life."""
    sessions: tuple[str, ...] = ()


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up that failed too often, or killed too many workers; no worker takes it any more."""

    id: int
    session_id: str
    failures: int
    error: str
    """The code of the last error; empty if workers died of it."""
    time: float
    queue: str = ""


class Dispatcher(Protocol):
    """Carries wake-ups to workers.

    A wake-up is delivered at least once; several for the same session that wait are one. One that
    comes while its session is worked on is kept: a dispatcher may deliver it meanwhile, and the
    handler, which alone knows the session's lease, answers `later`.
    """

    has_store_wakeups: bool
    """The store itself wakes a session in the transaction that appends to its inbox."""

    async def open(self) -> None:
        """Be ready; safe to repeat."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...

    async def wake(
        self, session_id: str, *, delay_s: float = 0.0, queue: str = "", priority: int = 0
    ) -> None:
        """Have a worker of a queue look after a session, not before the delay is over.

        Of those that wait, the highest priority is taken first, and the oldest of the same.
        """
        ...

    async def claim(self, session_id: str, limits: Mapping[str, int]) -> bool:
        """Count a session that is worked on here as one of some kinds, each with a limit.

        `False` if as many of a kind are worked on already, by whichever worker; then it counts
        as none. A claim ends with the work, or with the worker.
        """
        ...

    async def work(self, handler: WakeHandler, options: WorkerOptions, stop: asyncio.Event) -> None:
        """Hand wake-ups to the handler until told to stop; then wait, and hand over the rest."""
        ...

    async def list_workers(self) -> list[WorkerStatus]:
        """Return the workers that live, oldest first."""
        ...

    async def list_dead(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""
        ...

    async def retry_dead(self, letter_id: int) -> DeadLetter:
        """Wake the session of a dead letter again, with no failure counted.

        Raises:
            NotFound: there is no such letter.
        """
        ...
