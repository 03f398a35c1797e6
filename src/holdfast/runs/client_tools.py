"""Tools of a run's client: the model calls them, the client executes them.

A call parks the run; the client sees it (`runs.waiting`), executes it where it is, and sends the
result (`runs.answer_calls`), which is labelled untrusted like all that comes from outside. Rules
of the operator and of the agent hold for them as for every tool.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final

import msgspec
from pydantic import AfterValidator, TypeAdapter

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.mcp import UnusableSchema, clean_schema, make_checkable
from holdfast.messages import ToolSpec
from holdfast.providers.json_schema import list_problems
from holdfast.tools import Parked, Signature, Target, Tool, ToolRegistry

CLIENT_CALL: Final = "client_call"
"""The reason for which a run is parked that waits for its client."""
_MOST_TOOLS: Final = 128
_LONGEST_DESCRIPTION: Final = 8_000


def check_client_tools(specs: tuple[ToolSpec, ...], known: ToolRegistry) -> None:
    """Return if the tools of a client can be offered beside those that are there.

    Raises:
        UsageError: there are too many, one cannot be called, or its name is taken.
    """
    if len(specs) > _MOST_TOOLS:
        raise UsageError(detail=f"A client brings at most {_MOST_TOOLS} tools, not {len(specs)}.")
    names: set[str] = set()
    for spec in specs:
        if spec.name.casefold() in names or known.find(spec.name) is not None:
            raise UsageError(
                detail=f"The client's tool {spec.name!r:.80} has the name of another one; "
                "choose a name that the agent has not."
            )
        names.add(spec.name.casefold())
        make_client_tools((spec,))


def make_client_tools(specs: tuple[ToolSpec, ...]) -> tuple[Tool, ...]:
    """Return the tools of a client as ours.

    Raises:
        UsageError: a name or a schema cannot be used.
    """
    return _make_all(msgspec.json.encode(specs))


@functools.lru_cache(maxsize=64)
def _make_all(encoded: bytes) -> tuple[Tool, ...]:
    """The same objects for the same tools, so that layers of tools are found again."""
    return tuple([_make(one) for one in msgspec.json.decode(encoded, type=list[ToolSpec])])


def _make(spec: ToolSpec) -> Tool:
    try:
        schema = clean_schema(spec.parameters or {"type": "object"})
    except UnusableSchema as error:
        raise UsageError(detail=f"The client's tool {spec.name!r:.80}: {error}") from error
    checked = make_checkable(schema)
    description = spec.description[:_LONGEST_DESCRIPTION] or spec.name.replace("_", " ")

    async def function(**values: Any) -> Parked:  # noqa: ANN401 - JSON of the model
        return Parked(reason=CLIENT_CALL, request={"tool": spec.name, "arguments": values})

    def check(arguments: JsonObject) -> JsonObject:
        found = list_problems(arguments, checked)
        if found:
            raise ValueError("; ".join(found))
        return arguments

    return Tool(
        name=spec.name,
        function=function,
        signature=Signature(
            purpose=description,
            parameters=schema,
            output={},
            context_parameter="",
            adapter=TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)]),
        ),
        description=description,
        effect="idempotent",
        permission="allow",
        target=Target(kind="text", resolve=lambda _arguments, _workspace: (f"client/{spec.name}",)),
        tags=("client",),
        labels=("untrusted",),
    )


__all__ = ["CLIENT_CALL", "check_client_tools", "make_client_tools"]
