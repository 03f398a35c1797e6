"""One connection to one server: made when needed, shared by all calls, made again when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Final

from holdfast.canonical import JsonObject
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import HoldfastError, McpAuthFailed, McpFailed
from holdfast.mcp.failures import Lost, NoAnswer, Refusal
from holdfast.mcp.opening import Opening
from holdfast.mcp.results import render_error

if TYPE_CHECKING:
    from holdfast.mcp.wire.session import WireSession

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_LOGIN_S: Final = 600.0
_CLOSE_S: Final = 15.0
_MOST_SILENCES: Final = 2
"""After so many calls in a row without an answer, the connection is made anew."""

Connect = Callable[[Opening, Callable[[], None]], AbstractAsyncContextManager["WireSession"]]


class Connection:
    """Speaks with one server through one session, for every caller.

    A task of its own enters and leaves the session, because the SDK wants the same task for
    both. After a failure no caller tries again before a pause is over, which grows each time.
    """

    def __init__(
        self,
        name: str,
        opening: Opening,
        connect: Connect,
        *,
        clock: Clock = SYSTEM,
        on_lost: Callable[[str, float], None] = lambda reason, pause_s: None,
    ) -> None:
        """Prepare; nothing is started before the first call."""
        self.name = name
        self._opening = opening
        self._connect = connect
        self._clock = clock
        self._on_lost = on_lost
        self._lock: asyncio.Lock | None = None
        self._session: WireSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._failures = 0
        self._silences = 0
        self._again_at = 0.0
        self._is_closed = False
        self._is_up = False
        self.is_changed = False
        """Whether the server says that its tools have changed since they were listed."""
        self.last_error = ""
        self.made = 0
        """How often a connection was made."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a session that can be asked."""
        return self._session is not None

    @property
    def opening(self) -> Opening:
        """How it is reached."""
        return self._opening

    @property
    def pause_s(self) -> float:
        """How long no caller tries to connect yet."""
        return max(0.0, self._again_at - self._clock.monotonic())

    def hurry(self) -> None:
        """Let the next call try at once: a person asks, who may have mended something."""
        self._again_at = 0.0

    async def session(self) -> WireSession:
        """Return the session, connecting if there is none.

        Raises:
            McpFailed: it cannot be reached, or was not a moment ago.
            HoldfastError: it must not be reached, or the SDK is not installed.
        """
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._session is not None:
                return self._session
            if self._is_closed:
                raise self._tell_failed("the client is closed")
            if self.pause_s > 0:
                raise self._tell_failed(f"{self.last_error} (tried again in {self.pause_s:.0f} s)")
            return await self._open()

    async def list_tools(self) -> list[JsonObject]:
        """Return what the server lists; raises as `session`."""
        await self.session()
        self.is_changed = False
        return await self._list("tools", lambda session: session.list_tools())

    async def list_resources(self) -> list[JsonObject]:
        """Return its resources; nothing where it has none; raises as `session`."""
        if not (await self.session()).has_resources:
            return []
        return await self._list("resources", lambda session: session.list_resources())

    async def list_prompts(self) -> list[JsonObject]:
        """Return its prompts; nothing where it has none; raises as `session`."""
        if not (await self.session()).has_prompts:
            return []
        return await self._list("prompts", lambda session: session.list_prompts())

    async def _list(
        self, what: str, ask: Callable[[WireSession], Awaitable[list[JsonObject]]]
    ) -> list[JsonObject]:
        session = await self.session()
        try:
            async with asyncio.timeout(self._opening.endpoint.connect_timeout_s):
                listed = await ask(session)
        except (Lost, NoAnswer, Refusal, TimeoutError) as error:
            told = f"its {what} cannot be listed: {self._describe(error)}"
            if what == "tools" or isinstance(error, Lost):
                await self._drop(session, told)
            raise self._tell_failed(told) from error
        self._failures = 0
        return listed

    async def ask(self, send: Callable[[WireSession], Awaitable[JsonObject]]) -> JsonObject:
        """Send something to the server, such as a call, and return its answer.

        Raises:
            Lost, NoAnswer: it was sent, and what became of it is not known.
            Refusal: the server says no.
            HoldfastError: as `session`; nothing was sent.
        """
        session = await self.session()
        try:
            answer = await send(session)
        except NoAnswer:
            self._silences += 1
            if self._silences >= _MOST_SILENCES:
                await self._drop(session, "it does not answer")
            raise
        except Lost as error:
            await self._drop(session, self._describe(error))
            if self._opening.refusal is not None:
                raise self._opening.refusal from error
            raise Lost(await self._opening.explain(self._describe(error))) from error
        except Refusal:
            self._silences = 0
            raise
        self._silences = self._failures = 0
        return answer

    async def renew(self) -> None:
        """End the session; the next call makes another one, at once."""
        await self._end()
        self._failures = self._silences = 0
        self.hurry()

    async def aclose(self) -> None:
        """End the session, and the program with it; safe to repeat."""
        self._is_closed = True
        await self._end()

    # --- inside -----------------------------------------------------------------------

    async def _open(self) -> WireSession:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[WireSession] = loop.create_future()
        self._stop, self._is_up = asyncio.Event(), False
        self._task = loop.create_task(self._serve(ready, self._stop))
        limit_s = self._opening.endpoint.connect_timeout_s
        if self._opening.visit is not None:
            limit_s += _LOGIN_S  # a person may have to log in first
        try:
            async with asyncio.timeout(limit_s):
                self._session = await asyncio.shield(ready)
        except TimeoutError as error:
            await self._end()
            told = await self._opening.explain(f"no answer within {limit_s:g} s")
            raise self._make_retry_error(told) from error
        except asyncio.CancelledError:
            await asyncio.shield(self._end())
            raise
        except Exception as error:
            refusal = error if isinstance(error, HoldfastError) else self._opening.refusal
            if refusal is not None:
                # Not a failure of the server: the caller that allows it now may try at once.
                self.last_error = render_error(str(refusal), self._opening.secrets)
                raise refusal from error
            told = await self._opening.explain(self._describe(error))
            raise self._make_retry_error(told) from error
        self.made += 1
        self.last_error = ""
        return self._session

    async def _serve(self, ready: asyncio.Future[WireSession], stop: asyncio.Event) -> None:
        """Hold the session open until it is to end, or ends."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(stop.set)

        try:
            async with self._connect(self._opening, end) as session:
                self._is_up = True
                if not ready.done():
                    ready.set_result(session)
                await stop.wait()
                is_told = False
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever ends the SDK's tasks ends here
            is_told = True
            self._make_ended(ready, _find_leaf(error))
        if not is_told:
            self._make_ended(ready, Lost("it has ended"))

    def _make_ended(self, ready: asyncio.Future[WireSession], error: BaseException) -> None:
        if not ready.done():
            failed = error if isinstance(error, Exception) else Lost("it was given up")
            ready.set_exception(failed)
            ready.exception()  # the caller that waited has given up, or gets it
        elif self._task is asyncio.current_task() and self._session is not None:
            self._session = None
            told = "it has ended" if isinstance(error, asyncio.CancelledError) else str(error)
            told = render_error(told or type(error).__name__, self._opening.secrets)
            self._make_retry_error(told, was_up=True)

    def _make_retry_error(self, told: str, *, was_up: bool = False) -> McpFailed:
        """Note a failure; return it as an error.

        A server that was up is tried again at once the first time.
        """
        self._failures += 1
        doublings = self._failures - 1 - was_up
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**doublings) if doublings >= 0 else 0.0
        self._again_at = self._clock.monotonic() + pause_s
        self.last_error = told
        self._on_lost(told, pause_s)
        return self._tell_failed(told)

    async def _drop(self, session: WireSession, reason: str) -> None:
        """Give up a session that is no good; the next call makes another one.

        Of several calls that lost the same session, the first one does it.
        """
        if self._session is session:
            self._session = None
            self._silences = 0
            self._make_retry_error(reason, was_up=True)
            await self._end()

    async def _end(self) -> None:
        self._session = None
        task, self._task = self._task, None
        if task is None or task is asyncio.current_task():
            return
        if self._stop is not None and self._is_up:
            self._stop.set()
        else:
            task.cancel()  # it still tries to connect, and would not hear of it
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.wait([task], timeout=_CLOSE_S / 2)
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])

    def _describe(self, error: BaseException) -> str:
        leaf = _find_leaf(error)
        return render_error(str(leaf) or type(leaf).__name__, self._opening.secrets)

    def _tell_failed(self, detail: str) -> McpFailed:
        if self._opening.is_unauthorized:
            return McpAuthFailed(endpoint=self.name, detail=f"{detail} (it wants a token)")
        return McpFailed(endpoint=self.name, detail=detail)


def _find_leaf(error: BaseException) -> BaseException:
    """The first failure inside a group of failures."""
    while isinstance(error, BaseExceptionGroup):
        plain = [one for one in error.exceptions if not isinstance(one, asyncio.CancelledError)]
        error = (plain or list(error.exceptions))[0]
    return error


__all__ = ["Connect", "Connection"]
