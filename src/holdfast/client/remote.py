"""The way from a client to a runtime behind an address: the same operations, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from yarl import URL

from holdfast.agents import AgentResult
from holdfast.client.addresses import check_address, choose_api_key
from holdfast.client.remote_wire import (
    Asked,
    PieceFilter,
    ask,
    decode_answer,
    decode_item,
    read_problem,
)
from holdfast.client.sse import ServerEvent, read_events
from holdfast.errors import CannotTravel, HoldfastError, ServerUnreachable
from holdfast.ids import make_random_token
from holdfast.operations import ROUTES, LocalFunction, LocalMember, Operation, StreamOperation
from holdfast.settings import Settings, load_settings

T = TypeVar("T")
_FIRST_PAUSE_S: Final = 0.1
_ASKED_AGAIN: Final = frozenset({"server.unreachable", "server.draining", "request.under_way"})
_LONGEST_PAUSE_S: Final = 2.0
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 60.0
"""A stream sends something at least every heartbeat; one that does not is gone."""
_GONE = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)


class RemoteChannel:
    """Performs operations on a server, in the name of the holder of the key.

    Where the connection breaks or the server restarts, it asks again for `patience_s`: reading
    is repeated as it is, what changes something under an idempotency key, and a stream goes on
    behind the last event that came.
    """

    def __init__(self, url: str, *, api_key: str, patience_s: float = 30.0) -> None:
        """Ask the server at this address."""
        self.url = URL(url.rstrip("/"))
        self._api_key = api_key
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None

    async def call(self, operation: Operation[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return the answer to one question."""
        is_raising = _wants_failure(operation, kwargs)
        asked = ask(operation, args, kwargs)
        found: T = await self._answer(operation, asked)
        if is_raising and isinstance(found, AgentResult):
            found.raise_if_failed()
        return found

    async def start(
        self, operation: Operation[..., Any], handle: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        """Start what goes on, and return a handle to it."""
        return handle(self, await self.call(operation, *args, **kwargs))

    async def local(self, function: LocalFunction[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Refuse what takes Python objects, and say what to do instead."""
        raise CannotTravel(method=function.name, instead=function.instead)

    def member(self, member: LocalMember[T]) -> T:
        """Refuse what is a method of an object of the runtime's process."""
        raise CannotTravel(method=member.name, instead=member.instead)

    async def stream(
        self, operation: StreamOperation[..., T], /, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[T, None]:
        """Yield the answers to one question, over as many connections as it takes.

        Leaving early ends what gives them: a run that this stream has started is cancelled.
        """
        is_raising = _wants_failure(operation, kwargs)
        asked = ask(operation, args, kwargs)
        if ROUTES[operation.name].media_type:
            async for line in self._read_lines(asked):
                yield line  # type: ignore[misc]
            return
        follower = _Follower(self, operation, asked)
        try:
            async for event in follower.events():
                item = decode_item(operation, event)
                if item is None:
                    continue
                if is_raising and isinstance(item, AgentResult):
                    item.raise_if_failed()
                yield item
        finally:
            await follower.close()

    async def close(self) -> None:
        """Close the connections; safe to repeat."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --- inside -----------------------------------------------------------------------

    async def _answer(self, operation: Operation[..., Any], asked: Asked) -> Any:
        async def once() -> Any:
            async with self.request(asked) as response:
                body = await response.read()
                if response.status >= 400:
                    raise read_problem(response.status, body)
                return decode_answer(operation, response.status, body)

        if asked.method == "POST" and "run_id" not in asked.given:
            asked.headers["Idempotency-Key"] = make_random_token()
        try:
            return await self.wait_and_repeat(once)
        except HoldfastError as error:
            if ROUTES[operation.name].missing and error.code == "usage.not_found":
                return None
            raise

    async def _read_lines(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a download; a part of one never passes for the whole."""
        async with self._translate_errors(), self.request(asked) as response:
            if response.status >= 400:
                raise read_problem(response.status, await response.read())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line + b"\n"
            if rest:
                yield rest

    @contextlib.asynccontextmanager
    async def request(
        self, asked: Asked, *, last_id: str = "", is_stream: bool = False
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send one request; redirects are not followed, since the key would go with them."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
                connector=aiohttp.TCPConnector(limit=0),
                trust_env=False,
            )
        headers = dict(asked.headers)
        if is_stream:
            headers["Accept"] = "text/event-stream"
        if last_id:
            headers["Last-Event-ID"] = last_id
        silence = _SILENCE_S if is_stream else None
        async with self._session.request(
            asked.method,
            URL(f"{self.url}{asked.path}", encoded=True).with_query(asked.query),
            data=None if asked.body is None else io.BytesIO(asked.body),
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence),
        ) as response:
            yield response

    async def wait_and_repeat(self, once: Callable[[], Awaitable[T]]) -> T:
        """Ask again while the server cannot be reached, is about to stop, or still at it.

        Raises:
            ServerUnreachable: it could not be reached in time.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                async with self._translate_errors():
                    return await once()
            except HoldfastError as error:
                if error.code not in _ASKED_AGAIN:
                    raise
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    @contextlib.asynccontextmanager
    async def _translate_errors(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except (*_GONE, TimeoutError) as error:
            detail = str(error) or type(error).__name__
            raise ServerUnreachable(url=str(self.url), detail=detail) from error


class _Follower:
    """A stream that goes on over several connections."""

    def __init__(
        self, channel: RemoteChannel, operation: StreamOperation[..., Any], asked: Asked
    ) -> None:
        self._channel = channel
        self._name = operation.name
        self._asked = asked
        self._last_id = ""
        self._run_id = ""
        self._has_ended = False
        self._pieces = PieceFilter()
        if asked.method == "POST" and "run_id" not in asked.given:
            asked.headers["Idempotency-Key"] = make_random_token()

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield the events of the stream, each stored one exactly once."""
        pause = _FIRST_PAUSE_S
        while True:
            async with contextlib.AsyncExitStack() as stack:
                response = await self._open(stack)
                # Whatever is lost comes again, behind the last event that was seen.
                with contextlib.suppress(*_GONE, TimeoutError):
                    async for event in read_events(response.content):
                        if event.name == "stream.goodbye":
                            break
                        if self._takes(event):
                            pause = _FIRST_PAUSE_S
                            yield event
                        if self._has_ended:
                            return
            self._pieces.begin_again()
            if self._run_id and self._name == "runs.stream":
                path = f"/v1/runs/{self._run_id}/stream"
                self._asked = Asked(method="GET", path=path)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _takes(self, event: ServerEvent) -> bool:
        if event.name == "stream.ended":
            self._has_ended = True
            return False
        if event.name == "stream.opened":
            self._run_id = msgspec.json.decode(event.data).get("run_id", "")
            return False
        if event.name == "problem":
            raise read_problem(0, event.data)
        if event.id:
            self._last_id = event.id
        return self._pieces.takes(event)

    async def _open(self, stack: contextlib.AsyncExitStack) -> aiohttp.ClientResponse:
        async def once() -> aiohttp.ClientResponse:
            response = await stack.enter_async_context(
                self._channel.request(self._asked, last_id=self._last_id, is_stream=True)
            )
            if response.status >= 400:
                raise read_problem(response.status, await response.read())
            return response

        return await self._channel.wait_and_repeat(once)

    async def close(self) -> None:
        """Cancel the run that was started here, if its reader leaves before the end."""
        if self._name == "runs.stream" and self._run_id and not self._has_ended:
            asked = Asked(method="POST", path=f"/v1/runs/{self._run_id}/cancel", body=b"{}")
            asked.headers["Content-Type"] = "application/json"
            with contextlib.suppress(*_GONE, TimeoutError):
                async with self._channel.request(asked) as response:
                    await response.read()


class Elsewhere:
    """Stands where a client has its runtime, if that is on another machine."""

    def __init__(self, channel: RemoteChannel) -> None:
        """Refuse in the name of this channel."""
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        """Refuse what belongs to the process of the runtime."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotTravel(method=f"client.{name}", instead="set it where the runtime is")

    async def opened(self) -> Elsewhere:
        """Return this; connections are made with the first question."""
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._channel.close()


def _wants_failure(operation: Any, kwargs: dict[str, Any]) -> bool:
    """Say whether a failed run shall be raised; that is done here, with its partial result."""
    if "raise_on_failure" not in operation.request.__struct_fields__:
        return False
    return bool(kwargs.pop("raise_on_failure", True))


def connect(
    url: str, *, settings: Settings | None, api_key: str, allows_plain_http: bool
) -> tuple[Elsewhere, RemoteChannel]:
    """Return the way to a server, with the key that was given or that is found.

    Raises:
        UsageError: the key would be sent where others could read it.
    """
    if not api_key:
        api_key = choose_api_key(url, settings or load_settings().settings)
    check_address(url, has_key=bool(api_key), allows_plain_http=allows_plain_http)
    channel = RemoteChannel(url, api_key=api_key)
    return Elsewhere(channel), channel


__all__ = ["Elsewhere", "RemoteChannel", "connect"]
