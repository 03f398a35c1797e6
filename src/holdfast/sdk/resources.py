"""Resources of a session: opened when first asked for, closed when the session ends."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from holdfast.client import AsyncClient
from holdfast.hooks import BusEvent, Subscription

T = TypeVar("T")
Cleanup: TypeAlias = Callable[[str], Awaitable[object] | object]
"""Gets the id of the session that has ended; plain or `async`."""
_ENDS = ("session.archived", "session.deleted", "session.state_changed")
_TERMINAL = ("completed", "failed", "archived")


class SessionResources:
    """What sessions hold open in this process, and what is done when they end::

        async with SessionResources(client) as resources:
            browser = await resources.open(session.id, "browser", open_browser)
            resources.add_cleanup(session.id, remove_scratch_files)

    A session ends when it is archived, deleted, completed or failed, in whichever process; or,
    for this one, when this object is closed. Everything is closed in the opposite order.
    """

    def __init__(self, client: AsyncClient) -> None:
        """Follow the sessions of this client."""
        self._client = client
        self._stacks: dict[str, AsyncExitStack] = {}
        self._values: dict[tuple[str, str], Any] = {}
        self._following: Subscription | None = None

    async def open(
        self, session_id: str, name: str, make: Callable[[], AbstractAsyncContextManager[T]]
    ) -> T:
        """Return a resource of a session; opened with the first call, the same one after it.

        Raises:
            NotFound: there is no such session.
        """
        session = await self._client.sessions.get(session_id)
        key = (session.id, name)
        if key not in self._values:
            await self._follow()
            stack = self._stacks.setdefault(session.id, AsyncExitStack())
            self._values[key] = await stack.enter_async_context(make())
        found: T = self._values[key]
        return found

    async def add_cleanup(self, session_id: str, cleanup: Cleanup) -> None:
        """Call a function when a session ends; raises NotFound."""
        session = await self._client.sessions.get(session_id)
        await self._follow()

        async def run() -> None:
            done = cleanup(session.id)
            if inspect.isawaitable(done):
                await done

        self._stacks.setdefault(session.id, AsyncExitStack()).push_async_callback(run)

    async def release(self, session_id: str) -> None:
        """Close what a session holds open, and clean up; safe to repeat."""
        stack = self._stacks.pop(session_id, None)
        for key in [key for key in self._values if key[0] == session_id]:
            del self._values[key]
        if stack is not None:
            await stack.aclose()

    async def close(self) -> None:
        """Close what all sessions hold open."""
        if self._following is not None:
            await self._client.events.unsubscribe(self._following)
            self._following = None
        for session_id in tuple(self._stacks):
            await self.release(session_id)

    async def _follow(self) -> None:
        if self._following is None:
            self._following = await self._client.events.subscribe(_ENDS, self._hear)

    async def _hear(self, event: BusEvent) -> None:
        if event.name == "session.state_changed" and event.data.get("state") not in _TERMINAL:
            return
        ended = event.session_id
        if event.name == "session.deleted":
            ended = str(event.data.get("session_id", ""))
        await self.release(ended)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close everything."""
        await self.close()


__all__ = ["SessionResources"]
