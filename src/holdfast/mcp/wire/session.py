"""A session with one server, as the rest of the room sees it: plain JSON and three failures."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import mcp_types as types
import pydantic
from mcp.client import Client, ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.mcp.failures import Lost, NoAnswer, Refusal
from holdfast.mcp.patience import Patience

if TYPE_CHECKING:
    from mcp.client import Transport

_MOST_PAGES: Final = 32
_MOST_LISTED: Final = 1_000
_MOST_ROUNDS: Final = 10
_LONGEST_S: Final = 24 * 3600.0
"""More than any limit of ours, which comes first."""
_CALLED: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_READ: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(
    types.ReadResourceResult | types.InputRequiredResult
)
_GOT: Final[pydantic.TypeAdapter[Any]] = pydantic.TypeAdapter(
    types.GetPromptResult | types.InputRequiredResult
)


class _Listed(pydantic.BaseModel):
    """A page of tools of which nothing is believed yet; `read_offer` looks at each by itself."""

    tools: list[Any]
    next_cursor: str | None = pydantic.Field(default=None, alias="nextCursor")


_LISTED: Final = pydantic.TypeAdapter(_Listed)
_BROKEN: Final = frozenset({types.CONNECTION_CLOSED})
_CHANGES: Final = (
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.PromptListChangedNotification,
)
_MOST_SAID: Final = 500

Progress = Callable[[float, float | None, str | None], None]
Elicit = Callable[[JsonObject], Awaitable[JsonObject]]
"""Asks the person who attends, as the protocol says it; answers in its form."""


class WireSession:
    """Asks one connected server."""

    def __init__(
        self, client: Client, timeout_s: float, root: str | None = None, *, samples: bool = False
    ) -> None:
        """Use `open_session`."""
        self._samples = samples
        self._timeout_s = timeout_s
        self._roots = root
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

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources."""
        return self._client.server_capabilities.resources is not None

    @property
    def has_prompts(self) -> bool:
        """Whether the server says that it has prompts."""
        return self._client.server_capabilities.prompts is not None

    async def list_resources(self) -> list[JsonObject]:
        """Return resources, then templates of their addresses; raises as `list_tools`."""
        found = await self._list(self._client.list_resources, "resources")
        with contextlib.suppress(Refusal):  # many servers know no templates
            found += await self._list(self._client.list_resource_templates, "resource_templates")
        return found[:_MOST_LISTED]

    async def list_prompts(self) -> list[JsonObject]:
        """Return prompts as the server describes them; raises as `list_tools`."""
        return await self._list(self._client.list_prompts, "prompts")

    async def _list(self, ask: Callable[..., Awaitable[Any]], key: str) -> list[JsonObject]:
        found: list[JsonObject] = []
        cursor: str | None = None
        with _translate():
            for _ in range(_MOST_PAGES):
                page = await ask(cursor=cursor)
                found += [_parse_json(one) for one in getattr(page, key)]
                cursor = page.next_cursor
                if cursor is None or len(found) >= _MOST_LISTED:
                    break
        return found[:_MOST_LISTED]

    async def call_tool(
        self,
        name: str,
        arguments: JsonObject,
        *,
        patience: Patience,
        on_progress: Progress,
        elicit: Elicit,
        sample: Elicit | None = None,
        traceparent: str = "",
    ) -> JsonObject:
        """Call a tool and return the answer; cancelling tells the server.

        The server is told the caller's trace by `traceparent`.

        Raises:
            Lost, NoAnswer, Refusal: there is no answer.
        """

        def make(more: JsonObject) -> pydantic.BaseModel:
            params = types.CallToolRequestParams(name=name, arguments=arguments, **more)
            if traceparent:
                params.meta = cast("types.RequestParamsMeta", {"traceparent": traceparent})
            return types.CallToolRequest(params=params)

        # Not the SDK's `call_tool`: that checks the answer against the server's own schema,
        # whose patterns a hostile server could make us match for ever.
        return await self._ask(make, _CALLED, patience, elicit, sample, on_progress)

    async def read_resource(
        self, uri: str, *, patience: Patience, elicit: Elicit, sample: Elicit | None = None
    ) -> JsonObject:
        """Return what stands at an address; raises as `call_tool`."""

        def make(more: JsonObject) -> pydantic.BaseModel:
            return types.ReadResourceRequest(
                params=types.ReadResourceRequestParams(uri=uri, **more)
            )

        return await self._ask(make, _READ, patience, elicit, sample)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, str],
        *,
        patience: Patience,
        elicit: Elicit,
        sample: Elicit | None = None,
    ) -> JsonObject:
        """Return a prompt with its arguments filled in; raises as `call_tool`."""

        def make(more: JsonObject) -> pydantic.BaseModel:
            params = types.GetPromptRequestParams(name=name, arguments=arguments, **more)
            return types.GetPromptRequest(params=params)

        return await self._ask(make, _GOT, patience, elicit, sample)

    async def _ask(
        self,
        make: Callable[[JsonObject], pydantic.BaseModel],
        adapter: pydantic.TypeAdapter[Any],
        patience: Patience,
        elicit: Elicit,
        sample: Elicit | None,
        on_progress: Progress | None = None,
    ) -> JsonObject:
        """Send a request, and again with what the server wants to be told in between."""

        async def tell(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            if on_progress is not None:
                on_progress(progress, total, message)

        more: JsonObject = {}
        for _ in range(_MOST_ROUNDS):
            with _translate():
                async with patience.limit():
                    answer = await self._client.session.send_request(
                        cast("Any", make(more)),
                        adapter,
                        request_read_timeout_seconds=_LONGEST_S,
                        progress_callback=tell if on_progress is not None else None,
                    )
            if not isinstance(answer, types.InputRequiredResult):
                return _parse_json(answer)
            more = {"request_state": answer.request_state}
            if answer.input_requests:
                more["input_responses"] = await self._respond(answer.input_requests, elicit, sample)
        raise Refusal(f"it wanted to be told more than {_MOST_ROUNDS} times in one call")

    async def _respond(
        self, asked: dict[str, types.InputRequest], elicit: Elicit, sample: Elicit | None
    ) -> dict[str, types.InputResponse]:
        """Answer what a call needs, one after the other: a person reads one form at a time."""
        if len(asked) > _MOST_ROUNDS:
            raise Refusal(f"it wants to be told {len(asked)} things at once")
        given: dict[str, types.InputResponse] = {}
        for key, request in asked.items():
            if isinstance(request, types.ElicitRequest):
                said = await elicit(_parse_json(request.params))
                given[key] = types.ElicitResult.model_validate(said)
            elif isinstance(request, types.CreateMessageRequest) and self._samples and sample:
                told = await sample(_parse_json(request.params))
                given[key] = types.CreateMessageResult.model_validate(told)
            elif isinstance(request, types.ListRootsRequest) and self._roots is not None:
                given[key] = _make_roots(self._roots)
            else:
                raise Refusal(f"it asks for {request.method}, which is not offered")
        return given


class Hearing(Protocol):
    """What a session tells and asks beside the answers to requests."""

    def on_change(self) -> None:
        """Note that the server's tools, resources or prompts have changed."""
        ...

    def on_said(self, level: str, text: str) -> None:
        """Note a line of the server's log."""
        ...

    async def on_elicit(self, asked: JsonObject) -> JsonObject:
        """Answer a question that came beside a call, not as its answer."""
        ...

    async def on_sample(self, asked: JsonObject) -> JsonObject:
        """Ask our model for a server, during a call; raises Refusal."""
        ...


@contextlib.asynccontextmanager
async def open_session(
    transport: Transport | AbstractAsyncContextManager[object],
    *,
    timeout_s: float,
    hearing: Hearing,
    root: str | None = None,
    samples: bool = False,
) -> AsyncIterator[WireSession]:
    """Speak to a server over a transport; entered and left by one and the same task.

    A server may ask the attending person (elicitation), a program where it works (`root`), and
    our model where `samples` says so.
    """

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            hearing.on_change()

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await hearing.on_elicit(_parse_json(params)))

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        try:
            told = await hearing.on_sample(_parse_json(params))
        except Refusal as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        return types.CreateMessageResult.model_validate(told)

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else repr(params.data)[:_MOST_SAID]
        hearing.on_said(params.level, text[:_MOST_SAID])

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
        return _make_roots(str(root))

    client = Client(
        cast("Transport", transport),
        read_timeout_seconds=timeout_s,
        client_info=types.Implementation(name="holdfast", version=__version__),
        message_handler=hear,
        elicitation_callback=elicit,
        logging_callback=log,
        sampling_callback=sample if samples else None,
        list_roots_callback=list_roots if root is not None else None,
        cache=None,
    )
    async with client:
        yield WireSession(client, timeout_s, root, samples=samples)


def _make_roots(folder: str) -> types.ListRootsResult:
    root = types.Root.model_validate({"uri": Path(folder).as_uri(), "name": "workspace"})
    return types.ListRootsResult(roots=[root])


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
    except TimeoutError as error:
        raise NoAnswer("no answer in time") from error
    except RuntimeError as error:
        raise Lost(str(error)) from error


def _parse_json(model: pydantic.BaseModel) -> JsonObject:
    made: JsonObject = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


__all__ = ["Elicit", "Hearing", "Progress", "WireSession", "open_session"]
