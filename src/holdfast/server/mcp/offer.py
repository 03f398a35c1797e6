"""What an MCP client sees of Holdfast: tools, resources and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import mcp_types as types
import msgspec
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast._version import __version__
from holdfast.agents import AgentRecord, find_template, list_builtin_templates
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, NotFound, NotPermitted, UsageError
from holdfast.messages import Message
from holdfast.observability import INCOMING_TRACE, parse_traceparent
from holdfast.operations import Caller, agents, artifacts, messages, sessions, tools
from holdfast.policy import name_matches
from holdfast.runtime import Runtime
from holdfast.server.mcp.calls import CallResult, ClientCall, to_contents
from holdfast.server.mcp.content import McpContent, McpResource, call
from holdfast.server.mcp.logs import LogLevels
from holdfast.server.mcp.prompts import write_prompt
from holdfast.server.mcp.requests import Context
from holdfast.server.mcp.subscriptions import SCHEME, Subscriptions

Finder: TypeAlias = Callable[[Context], Awaitable[tuple[Runtime, Caller]]]
"""Says in whose name a request of a client is made, and on whose records."""
T = TypeVar("T")

AGENT_PREFIX: Final = "ask_"
_SCHEME: Final = SCHEME
_FRESH_MS: Final = 0
"""Lists depend on what is registered and who asks: a client asks again when it needs one."""
_CACHED: Final[tuple[CacheableMethod, ...]] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
_MOST_LISTED: Final = 100
_MOST_BYTES: Final = 10_000_000
_NOT_FOUND: Final = {False: -32002, True: types.INVALID_PARAMS}
"""The code of what is not there, in the older and in the newer era."""
_REFUSED: Final = -32003
_AGENT_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the agent is to do or to answer"},
        "session_id": {
            "type": "string",
            "description": "Go on with this conversation; without it a new one begins",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
_AGENT_OUTPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "response": {"type": "string"},
        "status": {"type": "string"},
        "session_id": {"type": "string"},
        "run_id": {"type": "string"},
    },
    "required": ["response", "status", "session_id", "run_id"],
}


class McpOffer:
    """Answers the requests of MCP clients; `server` is the SDK's, for any transport.

    Agents are offered as `ask_NAME`. Of our tools those that patterns name; built-in ones only if
    a pattern does, since most clients have their own.
    """

    def __init__(
        self,
        find: Finder,
        *,
        tool_patterns: tuple[str, ...] = (),
        content: McpContent | None = None,
    ) -> None:
        """Answer in the name of the caller that `find` gives; an application adds `content`."""
        self._find = find
        self._patterns = tool_patterns
        self._content = content or McpContent()
        self._levels = LogLevels()
        self._subscriptions = Subscriptions(self._content)
        self.server: Server[Any] = Server(
            "holdfast",
            version=__version__,
            title="Holdfast",
            instructions="Agents are tools named ask_NAME. Pass session_id to go on with a "
            "conversation. Sessions and artifacts are resources.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_resource_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            cache_hints=dict.fromkeys(_CACHED, CacheHint(ttl_ms=_FRESH_MS, scope="private")),
        )
        # Not as an argument: the SDK warns of it, since the newer era does without.
        self.server.add_request_handler(
            "logging/setLevel", types.SetLevelRequestParams, self._levels.set
        )

    # --- tools ------------------------------------------------------------------------

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        runtime, caller = await self._find(context)
        found: list[types.Tool] = []
        if caller.may("agents:read"):
            known = await agents.list_.perform(runtime, caller)
            found += [_to_tool(one) for one in known if caller.may("runs:write", one.name)]
        if caller.may("tools:call") and caller.may("tools:read"):
            for info in await tools.list_.perform(runtime, caller):
                if self._is_offered(info.name, info.scope):
                    described = await tools.describe_.perform(runtime, caller, info.name)
                    found.append(_describe_tool(info.name, described))
        return types.ListToolsResult(tools=found)

    def _is_offered(self, name: str, scope: str) -> bool:
        if self._patterns:
            return any(name_matches(pattern, name) for pattern in self._patterns)
        return scope != "builtin"

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> CallResult:
        runtime, caller = await self._find(context)
        given = (params.meta or {}).get("traceparent")
        if isinstance(given, str) and parse_traceparent(given) is not None:
            INCOMING_TRACE.set(given)
        call = ClientCall(context, params, runtime, caller, self._levels)
        name = params.name
        try:
            if name.startswith(AGENT_PREFIX):
                return await call.run_agent(name.removeprefix(AGENT_PREFIX))
            registry = {one.name: one.scope for one in await tools.list_.perform(runtime, caller)}
            if name not in registry or not self._is_offered(name, registry[name]):
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name:.100}")
            return await call.call_tool(name)
        except NotPermitted as error:
            raise MCPError(_REFUSED, str(error)) from error
        except HoldfastError as error:
            # The model behind the client reads it, and may do better.
            text = f"{error} {error.hint}".strip()
            told = types.TextContent(type="text", text=text)
            return types.CallToolResult(content=[told], is_error=True)

    # --- resources --------------------------------------------------------------------

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        runtime, caller = await self._find(context)
        cursor = (params.cursor or "") if params is not None else ""
        found: list[types.Resource] = []
        if not cursor and caller.may("artifacts:read"):
            found += [_to_resource(one) for one in self._content.resources if not one.is_template]
        following = ""
        kind, _, rest = cursor.partition(":")
        if kind in ("", "sessions") and caller.may("sessions:read"):
            page = await _ask_told(
                sessions.list_.perform(runtime, caller, limit=_MOST_LISTED, cursor=rest), context
            )
            found += [
                types.Resource(
                    name=one.slug or one.id,
                    title=one.title or None,
                    uri=f"{_SCHEME}sessions/{one.id}",
                    description="A conversation, message by message",
                    mime_type="application/json",
                )
                for one in page.items
            ]
            following = f"sessions:{page.next_cursor}" if page.next_cursor else "artifacts:"
        elif kind in ("", "sessions"):
            following = "artifacts:"
        if following in ("", "artifacts:") and caller.may("artifacts:read"):
            rest = rest if kind == "artifacts" else ""
            files = await _ask_told(
                artifacts.list_.perform(runtime, caller, limit=_MOST_LISTED, cursor=rest), context
            )
            found += [
                types.Resource(
                    name=one.name,
                    uri=f"{_SCHEME}artifacts/{one.id}",
                    mime_type=one.media_type,
                    size=one.size,
                )
                for one in files.items
            ]
            following = f"artifacts:{files.next_cursor}" if files.next_cursor else ""
        elif following == "artifacts:":
            following = ""
        return types.ListResourcesResult(resources=found, next_cursor=following or None)

    async def _list_resource_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        made = [
            types.ResourceTemplate(
                name="session",
                title="A conversation",
                uri_template=f"{_SCHEME}sessions/{{session_id}}",
                mime_type="application/json",
            ),
            types.ResourceTemplate(
                name="artifact", title="A file", uri_template=f"{_SCHEME}artifacts/{{artifact_id}}"
            ),
        ]
        _, caller = await self._find(context)
        if caller.may("artifacts:read"):
            made += [
                types.ResourceTemplate(
                    name=one.name,
                    description=one.description,
                    uri_template=one.uri,
                    mime_type=one.media_type,
                )
                for one in self._content.resources
                if one.is_template
            ]
        return types.ListResourceTemplatesResult(resource_templates=made)

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        runtime, caller = await self._find(context)
        uri = str(params.uri)
        known = self._content.find(uri)
        if known is not None:
            if not caller.may("artifacts:read"):
                raise MCPError(_REFUSED, "The scope artifacts:read is missing.")
            data = await call(known[0].read, caller, known[1])
            data = data.encode() if isinstance(data, str) else data
            made = to_contents(uri, known[0].media_type, data)
            return types.ReadResourceResult(contents=[made])
        kind, _, id = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or kind not in ("sessions", "artifacts") or not id:
            raise _make_not_found(context, uri)
        if kind == "sessions":
            page = await _ask_told(
                messages.list_.perform(runtime, caller, id, limit=500), context, uri
            )
            text = msgspec.json.encode([_show_message(one) for one in page.items]).decode()
            return types.ReadResourceResult(
                contents=[
                    types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
                ]
            )
        file = await _ask_told(artifacts.get.perform(runtime, caller, id), context, uri)
        if file.size > _MOST_BYTES:
            raise MCPError(types.INVALID_PARAMS, f"The file has more than {_MOST_BYTES} bytes")
        data = await _ask_told(artifacts.load.perform(runtime, caller, id), context, uri)
        return types.ReadResourceResult(contents=[to_contents(uri, file.media_type, data)])

    # --- prompts ----------------------------------------------------------------------

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        _, caller = await self._find(context)
        found = []
        if caller.may("agents:read"):
            found += [one.to_prompt() for one in self._content.prompts.values()]
        for template in list_builtin_templates().values():
            required = set(template.schema.get("required", ()))
            given = [
                types.PromptArgument(
                    name=name,
                    description=str(field.get("description") or field.get("title") or ""),
                    required=name in required,
                )
                for name, field in template.schema.get("properties", {}).items()
            ]
            found.append(
                types.Prompt(
                    name=template.name,
                    title=template.title,
                    description=template.description,
                    arguments=given,
                )
            )
        return types.ListPromptsResult(prompts=found)

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        runtime, caller = await self._find(context)
        own = self._content.prompts.get(params.name)
        if own is not None and caller.may("agents:read"):
            return await write_prompt(own, context, params, (runtime, caller), self._levels)
        try:
            template = find_template(params.name)
            values = _read_values(template.schema, params.arguments or {})
            text = template.message(values)
        except HoldfastError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        said = types.TextContent(type="text", text=f"{template.prompt}\n\n{text}")
        return types.GetPromptResult(
            description=template.description,
            messages=[types.PromptMessage(role="user", content=said)],
        )

    # --- changes ----------------------------------------------------------------------

    async def _subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        runtime, caller = await self._find(context)
        return await self._subscriptions.subscribe(context, caller, runtime, str(params.uri))

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        return await self._subscriptions.unsubscribe(context, str(params.uri))

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        runtime, caller = await self._find(context)
        return await self._subscriptions.listen(context, caller, runtime, params)

    # --- completion -------------------------------------------------------------------

    async def _complete(
        self, context: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Complete ids of sessions, and arguments of an application's prompts."""
        runtime, caller = await self._find(context)
        values: list[str] = []
        ref = params.ref
        own = (
            self._content.prompts.get(ref.name) if isinstance(ref, types.PromptReference) else None
        )
        if own is not None and own.complete is not None and caller.may("agents:read"):
            values = list(own.complete(params.argument.name, params.argument.value))
        is_session = isinstance(ref, types.ResourceTemplateReference) and "sessions/" in ref.uri
        if is_session and caller.may("sessions:read"):
            page = await _ask_told(
                sessions.list_.perform(runtime, caller, limit=_MOST_LISTED), context
            )
            values = [one.id for one in page.items if one.id.startswith(params.argument.value)]
        return types.CompleteResult(
            completion=types.Completion(values=values[:100], total=len(values), has_more=False)
        )


def _make_not_found(context: Context, uri: str) -> MCPError:
    code = _NOT_FOUND[context.protocol_version in MODERN_PROTOCOL_VERSIONS]
    return MCPError(code, f"Resource not found: {uri:.200}", {"uri": uri[:200]})


async def _ask_told(asked: Awaitable[T], context: Context, uri: str = "") -> T:
    """Return an answer; errors become those of the protocol."""
    try:
        return await asked
    except NotFound as error:
        raise _make_not_found(context, uri) from error
    except NotPermitted as error:
        raise MCPError(_REFUSED, str(error)) from error
    except UsageError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error


def _to_resource(one: McpResource) -> types.Resource:
    return types.Resource(
        name=one.name, uri=one.uri, description=one.description, mime_type=one.media_type
    )


def _to_tool(agent: AgentRecord) -> types.Tool:
    return types.Tool(
        name=f"{AGENT_PREFIX}{agent.name}",
        title=agent.name,
        description=agent.description or f"Ask the agent {agent.name}.",
        input_schema=_AGENT_INPUT,
        output_schema=_AGENT_OUTPUT,
        annotations=types.ToolAnnotations(read_only_hint=False, open_world_hint=True),
    )


def _describe_tool(name: str, described: JsonObject) -> types.Tool:
    effect = described.get("effect")
    schema = described.get("parameters")
    return types.Tool(
        name=name,
        description=str(described.get("description") or ""),
        input_schema=schema if isinstance(schema, dict) else {"type": "object"},
        annotations=types.ToolAnnotations(
            read_only_hint=effect == "read",
            destructive_hint=effect not in ("read", "idempotent"),
            idempotent_hint=effect in ("read", "idempotent"),
            open_world_hint=bool(described.get("egress")),
        ),
    )


def _show_message(message: Message) -> JsonObject:
    shown: JsonObject = {"id": message.id, "role": message.role, "text": message.text}
    if message.tool_calls:
        shown["calls"] = [
            {"tool": call.tool, "input": call.input, "output": call.output or call.error}
            for call in message.tool_calls
        ]
    return shown


def _read_values(schema: JsonObject, given: dict[str, str]) -> JsonObject:
    """Return texts, which is all that prompts take, as what the parameters are."""
    fields = schema.get("properties", {})
    values: JsonObject = {}
    for name, text in given.items():
        kind = fields.get(name, {}).get("type") if isinstance(fields, dict) else None
        values[name] = text
        if kind in ("integer", "number", "boolean", "array", "object"):
            try:
                values[name] = msgspec.json.decode(text)
            except msgspec.MsgspecError:
                values[name] = [one.strip() for one in text.split(",")] if kind == "array" else text
    return values


__all__ = ["AGENT_PREFIX", "McpOffer"]
