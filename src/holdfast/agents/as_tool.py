"""An agent as a tool of another: a call is a run of its own, below the caller's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
import pydantic_core

from holdfast.agents.delegation import Delegation, make_outcome
from holdfast.agents.request import RunRequest
from holdfast.errors import TellModel, UsageError
from holdfast.tools import Target, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from holdfast.agents.definition import Agent

RUN_TIMEOUT_S = 7 * 86_400.0
"""Runs end by their own limits; the call around one must not end it first."""

ToTask = Callable[[Any], str]


def make_agent_target(name: str) -> Target:
    """The sub-agent that a call starts, always the same."""
    return Target(kind="agent", resolve=lambda _arguments, _workspace: (name,))


def make_tool_from(
    agent: Agent,
    *,
    name: str = "",
    description: str = "",
    input: type[pydantic.BaseModel] | None = None,
    to_task: ToTask | None = None,
) -> Tool:
    """Return a tool whose calls run an agent; see `Agent.as_tool`."""
    if to_task is not None and input is None:
        raise UsageError(detail="`to_task` needs the `input` that it makes the task of.")

    async def call(context: ToolContext, **values: Any) -> ToolResult:  # noqa: ANN401
        request = RunRequest(agent=agent, message=_format_task(values, input, to_task))
        delegation = context.execution.get(Delegation)  # type: ignore[type-abstract]
        return make_outcome(await delegation.send(context, request))

    _describe(call, input)
    return Tool.from_function(
        call,
        name=name or agent.name.replace(" ", "_"),
        description=description or agent.description or f"Ask the agent {agent.name}.",
        effect="idempotent",
        target=make_agent_target(agent.name),
        tags=("agents",),
        timeout_s=RUN_TIMEOUT_S,
    )


def _format_task(
    values: Mapping[str, Any], input: type[pydantic.BaseModel] | None, to_task: ToTask | None
) -> str:
    if input is None:
        return str(values["task"])
    try:
        given = input.model_validate(dict(values))
    except pydantic.ValidationError as error:
        raise TellModel(f"The arguments do not fit together: {error}") from error
    if to_task is not None:
        return to_task(given)
    return pydantic_core.to_json(given, indent=2).decode()


def _describe(call: Callable[..., object], input: type[pydantic.BaseModel] | None) -> None:
    """Give the function the parameters that its callers see."""
    keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    task = pydantic.Field(min_length=1, description="What the agent is to do, in full")
    fields: dict[str, tuple[Any, Any]] = {"task": (Annotated[str, task], empty)}
    if input is not None:
        fields = {
            key: (
                Annotated[info.annotation, pydantic.Field(description=info.description)],
                empty if info.is_required() else info.get_default(call_default_factory=True),
            )
            for key, info in input.model_fields.items()
        }
    parameters = [
        inspect.Parameter(key, keyword, default=default, annotation=hint)
        for key, (hint, default) in fields.items()
    ]
    context = inspect.Parameter("context", keyword, annotation=ToolContext)
    call.__annotations__ = {
        **{key: hint for key, (hint, _) in fields.items()},
        "context": ToolContext,
        "return": ToolResult,
    }
    call.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined]


__all__ = ["RUN_TIMEOUT_S", "make_agent_target", "make_tool_from"]
