"""What an agent's run gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

from holdfast.agents.definition import Agent
from holdfast.agents.output import OutputType
from holdfast.canonical import JsonObject
from holdfast.errors import BudgetExceeded, UsageError
from holdfast.messages import Message, Part, TokenUsage, ToolPart, sum_of
from holdfast.providers.model import Delta
from holdfast.sessions import Run, SessionManager

Listener: TypeAlias = Callable[[Delta | ToolPart], None]
"""Hears the pieces of an answer while they arrive, each call, and each result."""


def hear_nothing(_: Delta | ToolPart) -> None:
    """Nobody listens."""


class ChildPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer, or a finished call, of a run that the streamed one started.

    `path` names the agents from the first one down to the one that works, as `lead/helper`.
    """

    path: str
    session_id: str
    run_id: str
    item: Delta | ToolPart


RunOutcome: TypeAlias = Literal["completed", "parked", "cancelled", "failed"]


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and how it came about.

    `status` other than `completed` comes with a reason in `metadata`. Usage and cost are
    those of this run, each model call counted once.
    """

    agent_name: str
    response: str
    parts: tuple[Part, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict)
    tools_used: tuple[str, ...] = ()
    tokens_used: TokenUsage = msgspec.field(default_factory=TokenUsage)
    cost_usd: float = 0.0
    duration: float = 0.0
    status: RunOutcome = "completed"
    run_id: str = ""
    session_id: str = ""
    output: Any = None
    """The answer as a value of the agent's output type, if it has one."""

    stopped_by: str = ""
    """Who stopped the run where it, or a run below it, asked; empty where it ended otherwise."""

    @property
    def usage(self) -> TokenUsage:
        """The tokens of this run, as `tokens_used`: the name that models and messages use."""
        return self.tokens_used

    @property
    def was_stopped(self) -> bool:
        """Whether a person stopped the run where it asked."""
        return bool(self.stopped_by)


async def run_messages(sessions: SessionManager, run: Run) -> list[Message]:
    """Return the messages of one run, in order."""
    session = await sessions.get_session(run.session_id)
    return [message for message in await sessions.messages.all(session) if message.run_id == run.id]


def summarize(agent: Agent, run: Run, messages: Sequence[Message], duration: float) -> AgentResult:
    """Make the result of a run from its messages."""
    last: Message | None = None
    tools: dict[str, None] = {}
    used: list[TokenUsage] = []
    cost_usd = 0.0
    for message in messages:
        # Not only answers: a summary of the conversation is paid too.
        cost_usd += message.cost_usd
        if message.usage is not None:
            used.append(message.usage)
        if message.role == "assistant":
            last = message
            for part in message.parts:
                if isinstance(part, ToolPart):
                    tools[part.tool] = None
    metadata: JsonObject = {**run.result}
    if last is not None:
        metadata |= last.metadata
    if run.error:
        metadata["error"] = run.error
        if run.error.get("code") == BudgetExceeded.code:
            metadata["reason"] = "budget"
    if run.status in ("parked", "cancelled"):
        metadata["reason"] = run.reason
    is_done = last is not None and run.status == "completed"
    text = last.text if last is not None and is_done else ""
    value = _value_of(agent, run, text) if is_done and agent.output is not None else None
    return AgentResult(
        agent_name=agent.name,
        response=text,
        output=value,
        parts=last.parts if last is not None else (),
        metadata=metadata,
        tools_used=tuple(tools),
        tokens_used=sum_of(used),
        cost_usd=cost_usd,
        duration=duration,
        status=cast(RunOutcome, run.status),
        run_id=run.id,
        session_id=run.session_id,
        stopped_by=run.stopped_by if run.status == "cancelled" else "",
    )


def _value_of(agent: Agent, run: Run, text: str) -> object:
    """Return the answer of a run as the agent's type.

    Raises:
        UsageError: it is none, as that of a run which ended before the agent had this type.
    """
    try:
        return OutputType(agent.output).parse(text)
    except ValueError as error:
        raise UsageError(
            detail=f"The answer of the run {run.id}, which has ended, does not fit the output type "
            f"of {agent.name!r}: {error}"
        ) from error
