"""How a tool call delegates to another agent; the runtime provides who does it.

Tools find it as `context.execution.get(Delegation)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.canonical import JsonObject
from holdfast.tools import NestedCallWaits, Parked, ToolContext, ToolResult

if TYPE_CHECKING:
    from holdfast.agents.handoff import Transform
    from holdfast.agents.request import RunRequest
    from holdfast.agents.result import AgentResult


class Delegation(Protocol):
    """Runs other agents for a tool call, below the caller's own run."""

    async def send(self, context: ToolContext, request: RunRequest) -> AgentResult:
        """Run the agent to its end, or to where it parks, and return its result.

        With a `session_id` it goes on in that session, which an earlier call of the same
        session began; `state` goes along as the new session's state. The same call again, in
        any process, returns the finished result or goes on with what was interrupted.
        """
        ...

    async def hand_over(
        self, context: ToolContext, agent: str, message: str, transform: Transform
    ) -> AgentResult:
        """Let another agent go on in a linked session with what the transform lets along."""
        ...


def make_outcome(result: AgentResult) -> ToolResult:
    """Return an agent's result as that of the call that asked for it.

    Raises:
        NestedCallWaits: the agent waits for a person, and so does the call.
    """
    if result.status == "parked":
        reason = str(result.metadata.get("reason") or "approval")
        shown: JsonObject = {"session_id": result.session_id, "run_id": result.run_id}
        raise NestedCallWaits(Parked(reason=reason, request=shown))
    about: JsonObject = {
        "agent": result.agent_name,
        "session_id": result.session_id,
        "run_id": result.run_id,
        "status": result.status,
        "cost_usd": result.cost_usd,
        "tokens": result.tokens_used.total,
    }
    if result.status == "completed":
        return ToolResult(result.response, title=result.agent_name, metadata=about)
    return ToolResult(
        f"The agent {result.agent_name} did not finish: {format_why(result)}",
        title=result.agent_name,
        metadata=about,
        is_error=True,
    )


def format_why(result: AgentResult) -> str:
    """Say why a result is no answer."""
    error = result.metadata.get("error")
    if isinstance(error, dict) and error.get("message"):
        return str(error["message"])
    reason = result.metadata.get("reason")
    return f"{result.status}: {reason}" if reason else str(result.status)


__all__ = ["Delegation", "format_why", "make_outcome"]
