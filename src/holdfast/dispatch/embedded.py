"""Wake-ups in one process: a queue in memory. What is lost with it is in the journal."""

from __future__ import annotations

import asyncio
import os
import socket

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
        self._due: dict[str, int] = {}
        """Sessions to be woken, in order, with how often that failed."""
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

    async def wake(self, session_id: str, *, delay_s: float = 0.0) -> None:
        """Have a worker of this process look after a session."""
        self._put(session_id, 0, delay_s)

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
        self._put(letter.session_id, 0, 0.0)
        return letter

    # --- inside -----------------------------------------------------------------------

    def _put(self, session_id: str, failures: int, delay_s: float) -> None:
        if delay_s > 0:
            loop = asyncio.get_running_loop()
            self._timers = {timer for timer in self._timers if timer.when() > loop.time()}
            self._timers.add(loop.call_later(delay_s, self._put, session_id, failures, 0.0))
            return
        self._due[session_id] = max(failures, self._due.get(session_id, 0))
        self._has_news.set()

    def _begin(self, worker: _Worker, handler: WakeHandler) -> None:
        """Take what waits, as much as there is room for; a session that is worked on waits."""
        held = {session_id for one in self._workers for session_id in one.sessions}
        for session_id, failures in tuple(self._due.items()):
            if len(worker.sessions) >= worker.options.concurrency:
                return
            if session_id in held:
                continue
            del self._due[session_id]
            doing = self._handle(worker, handler, session_id, failures)
            worker.sessions[session_id] = asyncio.create_task(doing, name=f"wake-{session_id}")

    async def _handle(
        self, worker: _Worker, handler: WakeHandler, session_id: str, failures: int
    ) -> None:
        options = worker.options
        try:
            if await handler(session_id) == "later":
                self._put(session_id, failures, options.look_again_s)
        except asyncio.CancelledError:
            self._put(session_id, failures, 0.0)
            raise
        except Exception as error:  # noqa: BLE001 - a worker outlives what it works on
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            _log.warning("wake.failed", session_id=session_id, error=code, failures=failures + 1)
            if failures + 1 < options.most_failures:
                self._put(session_id, failures + 1, options.retry_s * 2**failures)
            else:
                self._last_letter += 1
                self._dead[self._last_letter] = DeadLetter(
                    id=self._last_letter,
                    session_id=session_id,
                    failures=failures + 1,
                    error=code,
                    time=self._clock.now(),
                )
        finally:
            worker.sessions.pop(session_id, None)
            self._has_news.set()
