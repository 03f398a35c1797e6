"""Threads for blocking tools: one bounded pool per process, reused, and never in the way.

All runs of a process share the pool (`share_threads`), so that a thousand runs of `def` tools
take no more threads than one: what finds no free thread waits in order of arrival, and its time
limit begins to count when it gets one. A tool that hangs keeps its thread, but not its place:
once its call is given up, the next one gets a fresh thread, until too many hang. So there are
never more than `limit + max_hanging`. The threads are daemons: a hanging tool does not keep the
program from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_S = 10.0


class ToolThreads(msgspec.Struct, kw_only=True, eq=False):
    """Runs functions off the loop, at most `limit` at once, the rest in order of arrival."""

    limit: int = 64
    max_hanging: int = 64
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _idle: list[_Worker] = msgspec.field(default_factory=list)
    _waiting: deque[_Job] = msgspec.field(default_factory=deque)
    _busy: int = 0
    _hanging: int = 0

    @property
    def hanging(self) -> int:
        """How many threads still run a call that was given up."""
        return self._hanging

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in a thread and return its result.

        When this is cancelled, the function goes on in its thread, but no caller waits.

        Raises:
            RuntimeError: too many given-up calls still hang, or the function tried to end
                the program. The caller that knows the tool makes it a failure of that tool.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        job = _Job(
            loop, future, lambda: context.run(function, *args, **kwargs), asyncio.current_task()
        )
        self._submit(job)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(job)
            raise

    def is_queued(self, task: asyncio.Future[T]) -> bool:
        """Say whether what a task has called still waits for a thread."""
        with self._lock:
            return any(job.task is task for job in self._waiting)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if self._hanging >= self.max_hanging:
                raise RuntimeError(f"{self._hanging} earlier calls still hang")
            if self._busy < self.limit:
                self._start(job)
            else:
                self._waiting.append(job)

    def _start(self, job: _Job) -> None:
        self._busy += 1
        job.is_running = True
        worker = self._idle.pop() if self._idle else _Worker(self)
        worker.inbox.put(job)

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            job.is_given_up = True
            if job.is_running:
                self._busy -= 1
                self._hanging += 1
                self._take_next()
            elif job in self._waiting:
                self._waiting.remove(job)

    def _take_next(self) -> None:
        while self._waiting and self._busy < self.limit:
            self._start(self._waiting.popleft())

    def done(self, worker: _Worker, job: _Job) -> None:
        """Note that a worker finished its job and is free."""
        with self._lock:
            job.is_running = False
            self._idle.append(worker)
            if job.is_given_up:
                self._hanging -= 1
            else:
                self._busy -= 1
                self._take_next()

    def retire(self, worker: _Worker) -> bool:
        """Let an idle worker end; False if it has just been given work."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return True
            return False


@functools.cache
def share_threads() -> ToolThreads:
    """Return the pool of this process, made with the first call; its threads come with its jobs."""
    return ToolThreads()


# A fork copies the pool without its threads: what a child puts into it would wait for ever.
os.register_at_fork(after_in_child=share_threads.cache_clear)


class _Job:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[T],
        call: Callable[[], T],
        task: asyncio.Future[Any] | None,
    ) -> None:
        self.task = task
        self._loop = loop
        self._future = future
        self._call = call
        self.is_running = False
        self.is_given_up = False

    def run(self) -> Callable[[], None]:
        """Do the work and return what tells the loop about it."""
        try:
            result = self._call()
        except (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration) as error:
            # None of them can be the result of a future.
            stopped = RuntimeError(f"it raised {type(error).__name__}")
            return lambda: self._report(lambda: self._future.set_exception(stopped))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller that awaits the call
            failure = error
            return lambda: self._report(lambda: self._future.set_exception(failure))
        return lambda: self._report(lambda: self._future.set_result(result))

    def _report(self, report: Callable[[], None]) -> None:
        def settle() -> None:
            if not self._future.done():
                report()

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the loop is closed; no caller waits any more


class _Worker:
    def __init__(self, pool: ToolThreads) -> None:
        self.inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._pool = pool
        threading.Thread(target=self._work, name="holdfast-tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self.inbox.get(timeout=_IDLE_S)
            except queue.Empty:
                if self._pool.retire(self):
                    return
                continue
            report = job.run()
            # Free the place first: the caller that learns of the result may ask again at once.
            self._pool.done(self, job)
            report()
            del job, report
