"""What an agent's run gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, Self, TypeAlias

import msgspec

from holdfast.agents.output import OutputT
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, RunFailed, make_error_from_dict
from holdfast.messages import ModelRefusal, Part, TokenUsage, ToolPart
from holdfast.providers import Delta

Listener: TypeAlias = Callable[[Delta | ToolPart], None]
"""Hears the pieces of an answer while they arrive, each call, and each result."""


def hear_nothing(_: Delta | ToolPart) -> None:
    """There is no subscriber."""


class ChildPiece(msgspec.Struct, frozen=True, kw_only=True, tag="child"):
    """A piece of an answer, or a finished call, of a run that the streamed one started.

    `path` names the agents from the first one down to the one that works, as `lead/helper`.
    """

    path: str
    session_id: str
    run_id: str
    item: Delta | ToolPart


RunOutcome: TypeAlias = Literal["completed", "parked", "cancelled", "failed"]


class HandedTo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation goes on that was handed over."""

    agent: str
    session_id: str
    run_id: str


class AgentResult(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True, tag="result"):
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
    output: OutputT = None  # type: ignore[assignment]
    """The answer as a value of the agent's output type; `None` where it has none."""

    model: str = ""
    """The model that answered last, as `provider:model`; empty where none did."""

    stopped_by: str = ""
    """Who stopped the run where it, or a run below it, asked; empty where it ended otherwise."""

    refusal: ModelRefusal | None = None
    """What the model said where it refused to answer; `response` may be empty then."""

    @property
    def handed_to(self) -> HandedTo | None:
        """Who went on where the agent handed the conversation over; `None` where it did not."""
        found = self.metadata.get("handed_to")
        return msgspec.convert(found, HandedTo) if isinstance(found, dict) else None

    @property
    def transfer_to(self) -> str:
        """The agent that the conversation was handed over to; empty where it was not."""
        return self.handed_to.agent if self.handed_to is not None else ""

    @property
    def usage(self) -> TokenUsage:
        """The tokens of this run, as `tokens_used`: the name that models and messages use."""
        return self.tokens_used

    @property
    def was_stopped(self) -> bool:
        """Whether a person stopped the run where it asked."""
        return bool(self.stopped_by)

    @property
    def error(self) -> HoldfastError | None:
        """What made the run fail, with a hint what to do; `None` if it did not."""
        found = self.metadata.get("error")
        return make_error_from_dict(found) if isinstance(found, dict) and found else None

    def raise_if_failed(self) -> Self:
        """Return this result; parked and cancelled are results too.

        Raises:
            RunFailed: the run failed.
        """
        if self.status != "failed":
            return self
        why = self.error
        failed = RunFailed(
            agent=self.agent_name,
            run_id=self.run_id,
            status=self.status,
            detail=str(why) if why is not None else "no reason was recorded",
            advice=why.hint if why is not None else "",
            cause=why.code if why is not None else "",
        )
        failed.result, failed.error = self, why
        raise failed from why
