"""A session with one server, as the rest of the room sees it: plain JSON and three failures."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, cast

import mcp_types as types
import pydantic
from mcp.client import Client, IncomingMessage
from mcp.shared.exceptions import MCPError

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.mcp.failures import Lost, NoAnswer, Refusal

if TYPE_CHECKING:
    from mcp.client import Transport

_MOST_PAGES: Final = 32
_MOST_LISTED: Final = 1_000
_ANSWER: Final[pydantic.TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = (
    pydantic.TypeAdapter(types.CallToolResult | types.InputRequiredResult)
)


class _Listed(pydantic.BaseModel):
    """A page of tools of which nothing is believed yet; `read_offer` looks at each by itself."""

    tools: list[Any]
    next_cursor: str | None = pydantic.Field(default=None, alias="nextCursor")


_LISTED: Final = pydantic.TypeAdapter(_Listed)
_BROKEN: Final = frozenset({types.CONNECTION_CLOSED})

Progress = Callable[[float, float | None, str | None], None]


class WireSession:
    """Asks one connected server."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        """Use `connected`."""
        self._timeout_s = timeout_s
        self._client = client
        self.protocol = client.protocol_version
        info = client.server_info
        self.server = f"{info.name} {info.version}" if info is not None else ""

    async def list_tools(self) -> list[JsonObject]:
        """Return all tools as the server describes them, at most a thousand.

        Raises:
            Lost, NoAnswer, Refusal: it does not say.
        """
        found: list[JsonObject] = []
        cursor: str | None = None
        with _translate():
            for _ in range(_MOST_PAGES):
                try:
                    page = await self._client.list_tools(cursor=cursor)
                    found += [_parse_json(tool) for tool in page.tools]
                    cursor = page.next_cursor
                except pydantic.ValidationError:
                    # One malformed tool must not hide the others: each is looked at by itself.
                    listed = _LISTED.validate_python(await self._list_raw(cursor))
                    found += [one for one in listed.tools if isinstance(one, dict)]
                    cursor = listed.next_cursor
                if cursor is None or len(found) >= _MOST_LISTED:
                    break
        return found[:_MOST_LISTED]

    async def _list_raw(self, cursor: str | None) -> object:
        """Return a page of tools as the server sent it; the SDK offers no public way to it."""
        session = self._client.session
        data: dict[str, Any] = {"method": "tools/list", "params": {}}
        if cursor is not None:
            data["params"]["cursor"] = cursor
        options: Any = {"timeout": self._timeout_s}
        session._stamp(data, options)
        return await session._dispatcher.send_raw_request(data["method"], data["params"], options)

    async def call_tool(
        self,
        name: str,
        arguments: JsonObject,
        *,
        timeout_s: float,
        on_progress: Progress,
        traceparent: str = "",
    ) -> JsonObject:
        """Call a tool and return the answer; cancelling tells the server.

        Raises:
            Lost, NoAnswer, Refusal: there is no answer, or the server wants something first.
        """

        async def tell(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            on_progress(progress, total, message)

        params = types.CallToolRequestParams(name=name, arguments=arguments)
        if traceparent:
            params.meta = cast("types.RequestParamsMeta", {"traceparent": traceparent})
        request = types.CallToolRequest(params=params)
        with _translate():
            # Not `call_tool`: that checks the answer against the server's own schema, whose
            # patterns a hostile server could make us match for ever.
            answer = await self._client.session.send_request(
                request,
                cast("pydantic.TypeAdapter[pydantic.BaseModel]", _ANSWER),
                request_read_timeout_seconds=timeout_s,
                progress_callback=tell,
            )
        if isinstance(answer, types.InputRequiredResult):
            raise Refusal("it wants to be told more in the middle of a call, which is not offered")
        return _parse_json(answer)


@contextlib.asynccontextmanager
async def open_session(
    transport: Transport | AbstractAsyncContextManager[object],
    *,
    timeout_s: float,
    on_change: Callable[[], None],
) -> AsyncIterator[WireSession]:
    """Speak to a server over a transport; entered and left by one and the same task.

    `on_change` is called when the server says that its tools have changed. Servers are offered
    nothing in return: no sampling, no elicitation, no roots.
    """

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    client = Client(
        cast("Transport", transport),
        read_timeout_seconds=timeout_s,
        client_info=types.Implementation(name="holdfast", version=__version__),
        message_handler=hear,
        cache=None,
    )
    async with client:
        yield WireSession(client, timeout_s)


@contextlib.contextmanager
def _translate() -> Iterator[None]:
    try:
        yield
    except MCPError as error:
        if error.code in _BROKEN:
            raise Lost(error.message) from error
        if error.code == types.REQUEST_TIMEOUT:
            raise NoAnswer(error.message) from error
        raise Refusal(error.message) from error
    except pydantic.ValidationError as error:
        raise Refusal("its answer is not what the protocol promises") from error
    except RuntimeError as error:
        raise Lost(str(error)) from error


def _parse_json(model: pydantic.BaseModel) -> JsonObject:
    made: JsonObject = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


__all__ = ["Progress", "WireSession", "open_session"]
