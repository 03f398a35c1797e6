"""Group commit: writes that meet in one tick of the loop share one transaction.

A write is a function of the connection. One that refuses with a HoldfastError before it has
changed anything leaves its group alone; one that fails later has its group rolled back, and
every member is given a transaction of its own. Commits run on the loop, because a thread hop
costs more than they do. Those that must reach the disk, or find the database locked, run in a
thread, and what arrives meanwhile forms the next group; but the loop waits for a disk that is
known to be quick where no other process writes.

A task that has written alone before is served at once, without a trip around the loop. Others
go around it once, so that as many as write now share a commit from the first one on: the process
that is served ahead of the others stays ahead of them, and each of its steps takes a commit of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias, TypeVar, cast

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StorageError
from holdfast.journal.stores._sqlite_errors import translate

T = TypeVar("T")
Write: TypeAlias = Callable[[sqlite3.Connection], T]
_Job: TypeAlias = tuple[Write[Any], "_Commit[Any]"]
_TaskRef: TypeAlias = Callable[[], asyncio.Task[Any] | None]
_Outcome: TypeAlias = tuple[Any, BaseException | None]

_Reach: TypeAlias = Literal["NORMAL", "FULL"]
"""How far a commit goes, in SQLite's words: to the operating system, or to the disk."""

_PATIENCE_ON_LOOP_MS = 20
"""So long may the loop wait for a lock."""
_PATIENCE_IN_THREAD_MS = 10_000
_QUICK_S = 0.002
"""So long may the loop wait for the disk."""
_TRUSTED_AFTER = 4
"""So many quick commits in a row say that the next one will be quick as well."""


class _Commit(asyncio.Future[T]):
    """What a write will return. A task that is cancelled while a thread commits learns it then."""

    has_begun = False

    def cancel(self, msg: object = None) -> bool:
        """Cancel the write, unless it is being committed."""
        return not self.has_begun and super().cancel(msg)


class GroupCommit:
    """The one writer connection of a store, shared fairly by all who write."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        *,
        always_synced: bool,
        on_rollback: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Take over a connection; it is used by no other process from now on.

        `on_rollback` is called when writes that had run did not become durable.
        """
        self._on_rollback = on_rollback
        self._clock = clock
        self._connection = connection
        self._path = path
        self._always_synced = always_synced
        self._waiting: list[_Job] = []
        self._must_sync = False
        self._is_scheduled = False
        self._is_closed = False
        self._is_away = False
        self._reach, self._patience_ms = "", 0
        self._quick_in_row = 0
        self._lone_writer: _TaskRef = _wake_nothing
        """The task that wrote last, and alone; an ended one is not kept alive."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-commit")
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def idle(self) -> sqlite3.Connection | None:
        """The connection, for a short read on the loop; `None` while a thread writes with it.

        Its pages are still at hand, which those of another connection are not after a write.
        """
        return None if self._is_away or self._is_closed else self._connection

    def is_free(self) -> bool:
        """Say whether `insert_at_once` may follow in the same breath: no other process writes."""
        if self._is_scheduled or self._always_synced or self._is_closed:
            return False
        return self._lone_writer() is asyncio.current_task()

    def insert_at_once(self, sql: str, values: Sequence[Any]) -> int | None:
        """Run a single INSERT, without a transaction around it; returns the last rowid.

        Returns `None` when it violates a constraint or when the database is locked; `run` is
        the way then.
        """
        try:
            if self._reach != "NORMAL" or self._patience_ms != _PATIENCE_ON_LOOP_MS:
                self._set_mode("NORMAL", _PATIENCE_ON_LOOP_MS)
            return self._connection.execute(sql, values).lastrowid
        except sqlite3.IntegrityError:
            return None
        except sqlite3.Error as error:
            if _is_busy(error):
                return None
            raise translate(error, self._path) from error

    async def run(self, write: Write[T], *, is_synced: bool = False) -> T:
        """Run a write in the next transaction and return its result once committed.

        A caller that is cancelled before the commit began leaves no trace. One that is
        cancelled later hears of it when the commit has ended, so that what it reads then is
        what stays.
        """
        if self._is_closed:
            raise StorageError(path=self._path, detail="the store is closed")
        is_synced = is_synced or self._always_synced
        is_quick = not is_synced or self._quick_in_row >= _TRUSTED_AFTER
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        is_alone = self._lone_writer() is task
        if is_alone and is_quick and not self._is_scheduled:
            reach: _Reach = "FULL" if is_synced else "NORMAL"
            outcomes = self._transact((write,), reach, _PATIENCE_ON_LOOP_MS)
            if outcomes is not None:
                result, error = outcomes[0]
                if error is not None:
                    raise error
                return cast(T, result)
        future: _Commit[T] = _Commit(loop=loop)
        self._waiting.append((write, future))
        self._lone_writer = weakref.ref(task) if len(self._waiting) == 1 else _wake_nothing
        self._must_sync = self._must_sync or is_synced
        if not self._is_scheduled:
            self._is_scheduled = True
            self._idle.clear()
            loop.call_soon(self._flush, loop)
        return await future

    async def close(self) -> None:
        """Commit what was accepted, then close the connection."""
        self._is_closed = True
        await self._idle.wait()
        self._thread.shutdown(wait=True)
        self._connection.close()

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs: list[_Job] = []
        writes: list[Write[Any]] = []
        for job in self._waiting:
            if not job[1].done():
                jobs.append(job)
                writes.append(job[0])
        must_sync, self._waiting, self._must_sync = self._must_sync, [], False
        outcomes: list[_Outcome] | None = []
        if jobs:
            outcomes = None
            if not must_sync:
                outcomes = self._transact(writes, "NORMAL", _PATIENCE_ON_LOOP_MS)
        if outcomes is not None:
            self._settle(loop, jobs, outcomes)
            return
        self._is_away = True
        for _, future in jobs:
            future.has_begun = True
        # Without a future of the loop, which would take two more trips around it.
        self._thread.submit(self._run_in_thread, loop, jobs, "FULL" if must_sync else "NORMAL")

    def _run_in_thread(
        self, loop: asyncio.AbstractEventLoop, jobs: list[_Job], reach: _Reach
    ) -> None:
        """Commit patiently, and let the loop know."""
        writes = [write for write, _ in jobs]
        outcomes: list[_Outcome] | None = None
        error: BaseException = translate(_make_busy_error(), self._path)
        try:
            outcomes = self._transact(writes, reach, _PATIENCE_IN_THREAD_MS)
        except Exception as unforeseen:  # noqa: BLE001 - told to who waits for it
            error = unforeseen
        if outcomes is None:
            outcomes = [(None, error) for _ in jobs]
        # A loop that has ended meanwhile has no waiter left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._settle, loop, jobs, outcomes)

    def _settle(
        self, loop: asyncio.AbstractEventLoop, jobs: list[_Job], outcomes: list[_Outcome]
    ) -> None:
        """Tell a group what became of its writes, and see to the next one."""
        self._is_away = False
        for (_, future), (result, error) in zip(jobs, outcomes, strict=True):
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._waiting:
            loop.call_soon(self._flush, loop)
        else:
            self._is_scheduled = False
            self._idle.set()

    def _transact(
        self, writes: Sequence[Write[Any]], reach: _Reach, patience_ms: int
    ) -> list[_Outcome] | None:
        """Run all writes in one transaction; `None` when the database stays locked."""
        connection = self._connection
        try:
            self._set_mode(reach, patience_ms)
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if _is_busy(error):
                return None
            return [(None, translate(error, self._path)) for _ in writes]
        outcomes: list[_Outcome] = []
        try:
            for write in writes:
                before = connection.total_changes
                try:
                    outcomes.append((write(connection), None))
                except HoldfastError as refusal:
                    if connection.total_changes != before:
                        raise
                    outcomes.append((None, refusal))
            begun = self._clock.monotonic() if reach == "FULL" else 0.0
            connection.execute("COMMIT")
            if reach == "FULL":
                is_quick = self._clock.monotonic() - begun <= _QUICK_S
                self._quick_in_row = self._quick_in_row + 1 if is_quick else 0
            return outcomes
        except Exception as error:  # noqa: BLE001 - goes to the caller whose write it was
            cause = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._on_rollback()
        if len(writes) > 1:
            # One of them broke the group: give each its own transaction.
            return self._run_one_by_one(writes, reach, patience_ms)
        return [(None, cause)]

    def _set_mode(self, reach: _Reach, patience_ms: int) -> None:
        if self._reach != reach:
            self._connection.execute(f"PRAGMA synchronous = {reach}")
            self._reach = reach
        if self._patience_ms != patience_ms:
            self._connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
            self._patience_ms = patience_ms

    def _run_one_by_one(
        self, writes: Sequence[Write[Any]], reach: _Reach, patience_ms: int
    ) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for write in writes:
            single = self._transact((write,), reach, patience_ms)
            outcomes += single or [(None, translate(_make_busy_error(), self._path))]
        return outcomes


def _wake_nothing() -> None:
    """Stand for a task that is gone, or never was."""


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def _make_busy_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error
