"""Tools that act on the agent's own work: compact, plan_enter, plan_exit."""

from __future__ import annotations

from typing import Final

from holdfast.sessions import SessionChanges, SessionManager, SessionUpdated
from holdfast.tools import Tool, ToolContext, ToolResult, tool

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
        await sessions.journal.append(context.session_id, [changed], epoch=context.fence)

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
