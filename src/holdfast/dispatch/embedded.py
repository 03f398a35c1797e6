"""Wake-ups in one process: a queue in memory. What is lost with it is in the journal."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.dispatch.dispatcher import (
    DeadLetter,
    WakeHandler,
    WorkerOptions,
    WorkerStatus,
)
from holdfast.errors import HoldfastError, NotFound
from holdfast.observability import Logger

_log = Logger("holdfast.workers")


class _Due(msgspec.Struct, frozen=True):
    failures: int
    priority: int
    since: float

    def rank(self, now: float, ageing_s: float) -> int:
        """What has waited counts like what is urgent."""
        return self.priority + int((now - self.since) / ageing_s)


class _Worker(msgspec.Struct):
    options: WorkerOptions
    time_started: float
    sessions: dict[str, asyncio.Task[None]]


class EmbeddedDispatcher:
    """Carries wake-ups inside one process."""

    has_store_wakeups = False

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        """Begin without any."""
        self._clock = clock
        self._due: dict[tuple[str, str], _Due] = {}
        """Sessions to be woken, by queue, in order."""
        self._kinds: dict[str, tuple[str, ...]] = {}
        """What sessions that are worked on count as."""
        self._dead: dict[int, DeadLetter] = {}
        self._last_letter = 0
        self._workers: list[_Worker] = []
        self._timers: set[asyncio.TimerHandle] = set()
        self._has_news = asyncio.Event()

    async def open(self) -> None:
        """Nothing has to be made ready."""

    async def close(self) -> None:
        """Forget what waits."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._due.clear()

    async def wake(
        self, session_id: str, *, delay_s: float = 0.0, queue: str = "", priority: int = 0
    ) -> None:
        """Have a worker of this process look after a session."""
        self._put((queue, session_id), 0, delay_s, priority)

    async def claim(self, session_id: str, limits: Mapping[str, int]) -> bool:
        """Count a session as one of some kinds, if there is room."""
        self._kinds.pop(session_id, None)
        for kind, most in limits.items():
            if sum(kind in kinds for kinds in self._kinds.values()) >= most:
                return False
        self._kinds[session_id] = tuple(limits)
        return True

    async def work(self, handler: WakeHandler, options: WorkerOptions, stop: asyncio.Event) -> None:
        """Hand wake-ups to the handler until told to stop."""
        worker = _Worker(options, self._clock.now(), {})
        self._workers.append(worker)
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._has_news.clear()
                self._begin(worker, handler)
                news = asyncio.create_task(self._has_news.wait())
                await asyncio.wait({stopping, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
            if worker.sessions:
                await asyncio.wait(worker.sessions.values(), timeout=options.grace_s)
        finally:
            stopping.cancel()
            self._workers.remove(worker)
            options.on_leaving()
            left = tuple(worker.sessions.values())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def list_workers(self) -> list[WorkerStatus]:
        """Return the workers of this process."""
        return [
            WorkerStatus(
                name=one.options.name,
                host=socket.gethostname(),
                process=os.getpid(),
                concurrency=one.options.concurrency,
                queues=one.options.queues,
                time_started=one.time_started,
                time_seen=self._clock.now(),
                sessions=tuple(one.sessions),
            )
            for one in self._workers
        ]

    async def list_dead(self) -> list[DeadLetter]:
        """Return the dead letters of this process."""
        return list(self._dead.values())

    async def retry_dead(self, letter_id: int) -> DeadLetter:
        """Wake the session of a dead letter again."""
        letter = self._dead.pop(letter_id, None)
        if letter is None:
            raise NotFound(kind="dead letter", value=str(letter_id))
        self._put((letter.queue, letter.session_id), 0, 0.0, 0)
        return letter

    # --- inside -----------------------------------------------------------------------

    def _put(self, place: tuple[str, str], failures: int, delay_s: float, priority: int) -> None:
        loop = asyncio.get_running_loop()
        if delay_s > 0:
            self._timers = {timer for timer in self._timers if timer.when() > loop.time()}
            later = loop.call_later(delay_s, self._put, place, failures, 0.0, priority)
            self._timers.add(later)
            return
        waiting = self._due.get(place, _Due(failures, priority, loop.time()))
        self._due[place] = _Due(
            max(failures, waiting.failures), max(priority, waiting.priority), waiting.since
        )
        self._has_news.set()

    def _begin(self, worker: _Worker, handler: WakeHandler) -> None:
        """Take what waits, as much as there is room for; a session that is worked on waits."""
        held = {session_id for one in self._workers for session_id in one.sessions}
        options, now = worker.options, asyncio.get_running_loop().time()
        ours = [place for place in self._due if place[0] in options.queues]
        ours.sort(key=lambda place: -self._due[place].rank(now, options.ageing_s))
        for place in ours:
            if len(worker.sessions) >= options.concurrency:
                return
            if place[1] in held:
                continue
            held.add(place[1])
            due = self._due.pop(place)
            doing = self._handle(worker, handler, place, due)
            worker.sessions[place[1]] = asyncio.create_task(doing, name=f"wake-{place[1]}")

    async def _handle(
        self, worker: _Worker, handler: WakeHandler, place: tuple[str, str], due: _Due
    ) -> None:
        options, failures = worker.options, due.failures
        queue, session_id = place
        try:
            if await handler(session_id) == "later":
                self._put(place, failures, options.look_again_s, due.priority)
        except asyncio.CancelledError:
            self._put(place, failures, 0.0, due.priority)
            raise
        except Exception as error:  # noqa: BLE001 - a worker outlives what it works on
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            _log.warning("wake.failed", session_id=session_id, error=code, failures=failures + 1)
            if failures + 1 < options.most_failures:
                self._put(place, failures + 1, options.retry_s * 2**failures, due.priority)
            else:
                self._last_letter += 1
                self._dead[self._last_letter] = DeadLetter(
                    id=self._last_letter,
                    session_id=session_id,
                    failures=failures + 1,
                    error=code,
                    time=self._clock.now(),
                    queue=queue,
                )
        finally:
            self._kinds.pop(session_id, None)
            worker.sessions.pop(session_id, None)
            self._has_news.set()
