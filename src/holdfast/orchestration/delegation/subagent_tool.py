"""The `task` tool: an agent delegates to a sub-agent."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import Field

from holdfast.agents import RUN_TIMEOUT_S, Agent, Delegation, RunRequest, make_outcome
from holdfast.policy import Action, CallRequest, Rights, RuleSet, decide
from holdfast.tools import Target, Tool, ToolContext, ToolResult, tool

_TARGET = Target(
    kind="agent", resolve=lambda values, _workspace: (str(values.get("subagent_type", "")),)
)
_LONGEST_DESCRIPTION = 300


@tool(
    effect="idempotent",
    target=_TARGET,
    tags=("agents", "unoffered"),
    timeout_s=RUN_TIMEOUT_S,
)
async def task(
    prompt: Annotated[str, Field(min_length=1, description="What to do, and what to report")],
    subagent_type: Annotated[
        str, Field(min_length=1, max_length=64, description="Which sub-agent is to do it")
    ],
    context: ToolContext,
    description: Annotated[str, Field(description="What it is about, in a few words")] = "",
    session_id: Annotated[str, Field(description="Go on in this session of an earlier task")] = "",
) -> ToolResult:
    """Let a sub-agent do a task in a session of its own, and return its report.

    It sees nothing of this conversation: the prompt has to say everything it needs. It may do
    no more than you may. To ask it something further, give the session_id of its report.
    """
    delegation = context.execution.get(Delegation)  # type: ignore[type-abstract]
    request = RunRequest(agent=subagent_type, message=prompt, session_id=session_id)
    done = make_outcome(await delegation.send(context, request))
    if description:
        done = msgspec.structs.replace(done, title=description)
    where = done.metadata.get("session_id")
    if not where:
        return done
    return msgspec.structs.replace(done, output=f"{done.output}\n\n(session_id: {where})")


def select_subagents(
    agents: Sequence[Agent], ceiling: RuleSet, rights: Rights
) -> tuple[Agent, ...]:
    """Return the agents that may be delegated to by the caller that has these rights."""
    names = tuple([agent.name for agent in agents if agent.mode != "primary" and not agent.hidden])
    may_be_sent = _open_names(names, ceiling, rights)
    return tuple([agent for agent in agents if agent.name in may_be_sent])


def make_task_tool(agents: Sequence[Agent]) -> Tool:
    """Return the `task` tool as offered to an agent that may send these."""
    known = "\n".join(
        f"- {agent.name}: {' '.join(agent.description.split())[:_LONGEST_DESCRIPTION]}"
        for agent in agents
    )
    return msgspec.structs.replace(
        task, description=f"{task.description}\n\nSub-agents:\n{known}", tags=("agents",)
    )


@functools.lru_cache(maxsize=256)
def _open_names(names: tuple[str, ...], ceiling: RuleSet, rights: Rights) -> frozenset[str]:
    """Of these agents, those that no rule refuses; runs under the same rules ask once."""
    return frozenset([name for name in names if _decide_action(name, ceiling, rights) != "deny"])


def _decide_action(name: str, ceiling: RuleSet, rights: Rights) -> Action:
    request = CallRequest(
        permission=task.name,
        targets=(name,),
        target_kind="agent",
        own=task.permission,
    )
    return decide(
        request,
        ceiling,
        rights.parent,
        rights.agent,
        rights.session,
        is_handed=rights.is_handed,
    ).action
