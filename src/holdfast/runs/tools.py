"""Tools that act on the agent's own work: compact, plan_enter, plan_exit."""

from __future__ import annotations

import functools
from typing import Final

from holdfast.agents.definition import is_named
from holdfast.policy import Rights, RuleSet
from holdfast.sessions import SessionManager
from holdfast.sessions.events import SessionChanges, SessionUpdated
from holdfast.tools import Tool, ToolContext, ToolRegistry, ToolResult, tool
from holdfast.tools.gate import Gate, ToolPermissionFilter

PLAN_FOLDER: Final = ".holdfast/plans"


@tool(effect="read", tags=("context", "optional"))
async def compact() -> str:
    """Compact the context now: the conversation so far is replaced by its summary.

    Use it when a long piece of work is done and its details are no longer needed. It
    happens before your next step; files and other results stay as they are.
    """
    return "The conversation is summarised before your next step."


def plan_tools(sessions: SessionManager) -> tuple[Tool, Tool]:
    """Return `plan_enter` and `plan_exit`, which switch the agent of a session."""

    async def switch(context: ToolContext, agent: str) -> None:
        changed = SessionUpdated(changes=SessionChanges(agent=agent))
        await sessions.journal.append(context.session_id, [changed])

    @tool(effect="idempotent", tags=("planning", "optional"))
    async def plan_enter(context: ToolContext) -> ToolResult:
        """Switch this session to the planning agent, which changes nothing but its plan.

        Use it when a task is large or unclear and should be planned with the person first.
        """
        await switch(context, "plan")
        return ToolResult(
            "From the next turn on, the plan agent works in this session. It may write only "
            f"below {PLAN_FOLDER}/. Tell the person what is to be planned, and end your turn.",
            title="planning",
        )

    @tool(effect="idempotent", tags=("planning", "optional"))
    async def plan_exit(context: ToolContext) -> ToolResult:
        """Switch this session back to the building agent, because the plan is done."""
        await switch(context, "build")
        return ToolResult(
            "From the next turn on, the build agent works in this session and can carry the "
            "plan out. Tell the person where the plan is, and end your turn.",
            title="building",
        )

    return plan_enter, plan_exit


def visible_tools(registry: ToolRegistry, ceiling: RuleSet, rights: Rights) -> dict[str, Tool]:
    """Return the tools that a model sees for an agent with these rights, by name.

    What could never be allowed is hidden; optional tools are shown to agents that name them,
    and what a run would have no use for is offered to nobody.
    """
    return dict(_visible(tuple(registry.tools.values()), ceiling, rights))


@functools.lru_cache(maxsize=256)
def _visible(
    tools: tuple[Tool, ...], ceiling: RuleSet, rights: Rights
) -> tuple[tuple[str, Tool], ...]:
    """Runs with the same tools under the same rules ask once."""
    permitted = ToolPermissionFilter(Gate(ceiling=ceiling, rights=rights)).filter_tools(tools)
    return tuple(
        [
            (found.name, found)
            for found in permitted
            if "unoffered" not in found.tags
            and ("optional" not in found.tags or is_named(found.name, rights.agent.every_rule))
        ]
    )
