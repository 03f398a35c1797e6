"""The `task` tool: an agent sends a sub-agent on an errand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import Field

from holdfast.agents import Agent
from holdfast.agents.as_tool import RUN_TIMEOUT_S
from holdfast.agents.delegation import Delegation, Errand, outcome_of
from holdfast.policy import CallRequest
from holdfast.tools import Tool, ToolContext, ToolResult, tool
from holdfast.tools.gate import Gate, default_action
from holdfast.tools.target import Target

_TARGET = Target(kind="agent", resolve=lambda values, _workspace: (str(values.get("agent", "")),))
_LONGEST_DESCRIPTION = 300


@tool(
    effect="idempotent",
    target=_TARGET,
    tags=("agents", "unoffered"),
    timeout_s=RUN_TIMEOUT_S,
)
async def task(
    agent: Annotated[str, Field(min_length=1, max_length=64, description="Who is to do it")],
    task: Annotated[str, Field(min_length=1, description="What to do, and what to report")],
    context: ToolContext,
    session_id: Annotated[str, Field(description="Go on in this session of an earlier task")] = "",
) -> ToolResult:
    """Let a sub-agent do a task in a session of its own, and return its report.

    It sees nothing of this conversation: the task has to say everything it needs. It may do
    no more than you may. To ask it something further, give the session_id of its report.
    """
    delegation = context.execution.get(Delegation)  # type: ignore[type-abstract]
    errand = Errand(agent=agent, task=task, session_id=session_id)
    done = outcome_of(await delegation.send(context, errand))
    where = done.metadata.get("session_id")
    if not where:
        return done
    return msgspec.structs.replace(done, output=f"{done.output}\n\n(session_id: {where})")


def subagents_for(agents: Sequence[Agent], gate: Gate) -> tuple[Agent, ...]:
    """Return the agents that may be sent on errands by whoever stands at this gate."""
    return tuple(
        agent
        for agent in agents
        if agent.mode != "primary" and not agent.hidden and _is_open(agent.name, gate)
    )


def task_tool(agents: Sequence[Agent]) -> Tool:
    """Return the `task` tool as offered to an agent that may send these."""
    known = "\n".join(
        f"- {agent.name}: {' '.join(agent.description.split())[:_LONGEST_DESCRIPTION]}"
        for agent in agents
    )
    return dataclasses.replace(
        task, description=f"{task.description}\n\nSub-agents:\n{known}", tags=("agents",)
    )


def _is_open(name: str, gate: Gate) -> bool:
    request = CallRequest(
        permission=task.name,
        targets=(name,),
        target_kind="agent",
        default=default_action(task, "built-in"),
    )
    return gate.decide(request).action != "deny"
