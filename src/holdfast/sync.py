"""Client: the blocking facade, over one background loop.

The surface is that of `AsyncClient`, over a channel that blocks; nothing is written twice. Calls
may come from any thread, also from inside a running event loop (which they block, as blocking
calls do). A call from the background loop itself could never return and is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from holdfast.client import ClientSurface, LocalChannel, choose_place, open_channel
from holdfast.errors import UsageError, WouldDeadlock
from holdfast.operations import Blocking, LocalFunction, LocalMember, Operation, StreamOperation
from holdfast.runtime import make_forked_error

if TYPE_CHECKING:
    from holdfast.redaction import Redactor
    from holdfast.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

_CLEAN_UP_S: Final = 10.0
"""How long Ctrl-C waits for the end of what it cancelled."""
_LOOK_S: Final = 0.2


class _Portal:
    """A thread with an event loop, for as long as a client lives."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = _make_loop()
        # Reentrant: an iterator may be disposed of by the collector, in the midst of a call.
        self._guard = threading.RLock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="holdfast-client", daemon=True)
        self._thread.start()

    def call(self, name: str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Ctrl-C while waiting cancels it, and waits a while for its end: the work must neither
        go on unseen nor be left half done. Another Ctrl-C waits no longer.
        """
        work = self._start(name, coroutine)
        try:
            return work.ended.result()
        except concurrent.futures.CancelledError as error:
            if self._is_closed:
                raise _close() from error
            raise
        except BaseException:
            if not work.ended.done():
                work.cancel()
                concurrent.futures.wait([work.ended], _CLEAN_UP_S)
            raise

    def _start(self, name: str, coroutine: Coroutine[Any, Any, T]) -> _Work[T]:
        try:
            if self.is_forked:
                raise make_forked_error()
            self.check_thread(name)
            with self._guard:
                if self._is_closed:
                    raise _close()
                work = _Work(self._loop, coroutine)
                self._loop.call_soon_threadsafe(work.begin)
                return work
        except BaseException:
            coroutine.close()
            raise

    def check_thread(self, name: str) -> None:
        """Refuse a call from the loop itself: it could never return."""
        if threading.current_thread() is self._thread:
            raise WouldDeadlock(method=name)

    def dispose(self, items: AsyncIterator[Any]) -> None:
        """Close an iterator, without waiting; a loop that has ended has closed it already."""
        if self.is_forked:
            return
        with self._guard:
            if not self._is_closed:
                asyncio.run_coroutine_threadsafe(_finish(items), self._loop)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then end everything that is under way, the loop and its thread.

        Ctrl-C while waiting waits no longer, and all this goes on by itself.
        """
        work = self._start("close", last)
        with self._guard:
            self._is_closed = True
        work.ended.add_done_callback(self._stop)
        while self._thread.is_alive():
            # A signal that comes right before one begins to wait would not end the waiting.
            self._thread.join(_LOOK_S)
        work.ended.result()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one in which the thread works."""
        return os.getpid() != self._process

    def _stop(self, _ended: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            loop.run_until_complete(_cancel_others())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


class _Work(Generic[T]):
    """A coroutine that the loop runs; `ended` is settled when it has really ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Start it; on the loop."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._settle)

    def cancel(self) -> None:
        """Ask it to end; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the work with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.ended.set_exception(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())


async def _cancel_others() -> None:
    """Cancel what is under way, so that no caller waits for ever for its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _close() -> UsageError:
    return UsageError(detail="This client is closed; make a new one.")


def _make_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class BlockingChannel:
    """Performs operations on the loop of a portal, and waits for them."""

    def __init__(self, inner: LocalChannel, portal: _Portal) -> None:
        """Ask over this channel, whose loop the portal runs."""
        self._inner = inner
        self._portal = portal

    def call(self, operation: Operation[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return the answer to one question."""
        asked = self._inner.call(operation, *args, **kwargs)
        return self._portal.call(operation.name, asked)

    def start(
        self, operation: Operation[..., Any], handle: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        """Start what goes on, and return a handle to it."""
        return handle(self, self.call(operation, *args, **kwargs))

    def stream(
        self, operation: StreamOperation[..., T], /, *args: Any, **kwargs: Any
    ) -> Iterator[T]:
        """Yield the answers to one question; leaving early ends what gives them."""
        items = self._inner.stream(operation, *args, **kwargs)
        try:
            while True:
                found = self._portal.call(operation.name, _advance(items))
                if found is None:
                    return
                yield found[0]
        finally:
            self._portal.dispose(items)

    def local(self, function: LocalFunction[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call what takes Python objects."""
        asked = self._inner.local(function, *args, **kwargs)
        return self._portal.call(function.name, asked)

    def member(self, member: LocalMember[T]) -> T:
        """Return a method of an object of this process."""
        return self._inner.member(member)


async def _advance(items: AsyncIterator[T]) -> tuple[T] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _finish(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class Client(ClientSurface[Blocking]):
    """The same as `AsyncClient`, without `await`.

    Use it as a context manager, or call `close` when done::

        with Client() as client:
            session = client.sessions.create("Math Help")
    """

    def __init__(
        self,
        base_dir: str | os.PathLike[str] | None = None,
        *,
        storage_path: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
        api_key: str = "",
        allows_plain_http: bool = False,
    ) -> None:
        """Read and check the settings; files are opened with the first call.

        Arguments are those of `AsyncClient`.
        """
        runtime, channel = open_channel(
            choose_place(base_dir, storage_path),
            settings=settings,
            redactor=redactor,
            tenant=tenant,
            api_key=api_key,
            allows_plain_http=allows_plain_http,
        )
        self._portal = _Portal()
        self._closing = threading.Lock()
        super().__init__(runtime, BlockingChannel(channel, self._portal))

    def __enter__(self) -> Client:
        """Return the client; files are opened with the first call."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Finish what was accepted and give everything back; safe to repeat.

        In a forked process nothing happens: the client is the other one's.
        """
        if self._portal.is_forked:
            return
        self._portal.check_thread("close")
        with self._closing:
            if not self._portal.is_closed:
                self._portal.close(self._runtime.close())
