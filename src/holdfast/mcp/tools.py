"""A server's tool as one of ours: the same gate, ledger, limits and time as any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, TypeAdapter

from holdfast.canonical import JsonObject
from holdfast.errors import McpHeldBack
from holdfast.mcp.definitions import RemoteTool
from holdfast.mcp.pins import Verdict
from holdfast.mcp.schema import make_checkable
from holdfast.providers.json_schema import list_problems
from holdfast.tools import Signature, Target, Tool, ToolContext, ToolResult

_CONTEXT: Final = "\0context"
_GRACE_S: Final = 5.0
"""The connection's own limit comes first, and says more."""
_NOTHING: Final[JsonObject] = {"type": "object", "properties": {}}
_HELD_BACK: Final = {
    "new": "the server offers it only since it was accepted",
    "changed": "the server describes it otherwise than when it was accepted",
}

Caller: TypeAlias = Callable[[RemoteTool, JsonObject, ToolContext], Awaitable[ToolResult]]

Aim: TypeAlias = Callable[[RemoteTool, Mapping[str, Any]], str]
"""Says what the patterns of rules are matched against for a call."""


def aim_at_tool(remote: RemoteTool, _arguments: Mapping[str, Any]) -> str:
    """Return the server and the tool, whatever the arguments are."""
    return remote.target


def make_tool(
    remote: RemoteTool, call: Caller, *, timeout_s: float, aim: Aim = aim_at_tool
) -> Tool:
    """Return the tool; where no rule speaks of it, a person is asked.

    Rules find it by its name (`mcp__files__read`, `mcp__files__*`) and, with a pattern, by
    `files/read`.
    """
    checked = make_checkable(remote.schema)

    async def function(**values: Any) -> ToolResult:  # noqa: ANN401 - JSON of the model
        context: ToolContext = values.pop(_CONTEXT)
        return await call(remote, values, context)

    required = set(remote.schema.get("required") or ())

    def check(arguments: JsonObject) -> JsonObject:
        # Models write null for what they leave out, where that is no value of the field.
        left_out = {
            name for name, value in arguments.items() if value is None and name not in required
        }
        if left_out and list_problems(arguments, checked):
            arguments = {name: arguments[name] for name in arguments if name not in left_out}
        found = list_problems(arguments, checked)
        if found:
            raise ValueError("; ".join(found))
        return arguments

    return _make_tool(
        remote, function, check, remote.description, remote.schema, timeout_s=timeout_s, aim=aim
    )


def hold_back(remote: RemoteTool, verdict: Verdict) -> Tool:
    """Return what stands in for a tool that is not what was accepted.

    No model sees it, nor what the server now says of it; the caller that calls it all the same is
    told why nothing happens.
    """

    async def function(**_values: Any) -> ToolResult:  # noqa: ANN401 - JSON of the model
        raise McpHeldBack(tool=remote.remote, endpoint=remote.endpoint, detail=_HELD_BACK[verdict])

    text = f"A tool of the MCP server {remote.endpoint} that is held back."
    return _make_tool(remote, function, lambda given: given, text, _NOTHING, tags=("unoffered",))


def _make_tool(
    remote: RemoteTool,
    function: Callable[..., Awaitable[ToolResult]],
    check: Callable[[JsonObject], JsonObject],
    description: str,
    parameters: JsonObject,
    *,
    timeout_s: float = 120.0,
    tags: tuple[str, ...] = (),
    aim: Aim = aim_at_tool,
) -> Tool:
    made = Tool(
        name=remote.name,
        function=function,
        signature=Signature(
            purpose=description,
            parameters=parameters,
            output={},
            context_parameter=_CONTEXT,
            adapter=TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)]),
        ),
        description=description,
        effect=remote.effect,
        permission="ask",
        target=Target(kind="text", resolve=lambda given, _workspace: (aim(remote, given),)),
        tags=("mcp", *tags),
        labels=("untrusted",),
        egress=True,
        timeout_s=timeout_s + _GRACE_S,
    )
    # What it does stands in the server, not in the functions above.
    vars(made)["source_hash"] = remote.digest
    return made


__all__ = ["Aim", "Caller", "hold_back", "make_tool"]
