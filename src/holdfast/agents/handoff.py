"""Hand-off: another agent goes on, with exactly what a declared transform lets along.

A transform has a name and a version and is part of the record: which one was used, in which
version, and the digest of what it let through stand in the giver's session.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from pydantic import Field

from holdfast.agents.as_tool import RUN_TIMEOUT_S
from holdfast.agents.delegation import Delegation, make_outcome
from holdfast.canonical import JsonObject, digest, hash_sha256
from holdfast.errors import TellModel, UsageError
from holdfast.journal import Payload, payload
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.tools import Target, Tool, ToolContext, ToolResult

STATE_KEY = "state"
"""Where a session's metadata keep the state that hand-offs pass on."""
HANDED_TO = "handed_to"


class HandoffInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What there is to hand over: the giver's message, its conversation, its state."""

    message: str
    messages: tuple[Message, ...] = ()
    state: JsonObject = msgspec.field(default_factory=dict)


class HandoffPayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes along: the task, text for the model to read first, and state for programs."""

    task: str
    context: str = ""
    state: JsonObject = msgspec.field(default_factory=dict)

    @property
    def text(self) -> str:
        """The first message of the agent that goes on."""
        if not self.context:
            return self.task
        return f"{self.task}\n\n<handed_over>\n{self.context}\n</handed_over>"


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A pure function from what there is to what goes along, with a name and a version.

    Raise the version whenever it lets through something else.
    """

    name: str
    version: int
    function: Callable[[HandoffInput], HandoffPayload]

    def __post_init__(self) -> None:
        """Refuse one that cannot be named in the record."""
        if not self.name.strip() or self.version < 1:
            raise UsageError(detail="A transform needs a name, and a version from 1 on.")

    @property
    def source_hash(self) -> str:
        """A hash of the function's source, so that a silent change shows."""
        try:
            return hash_sha256(inspect.getsource(self.function).encode())
        except (OSError, TypeError):
            code = getattr(self.function, "__code__", None)
            return hash_sha256(code.co_code if code is not None else repr(self.function).encode())

    def apply(self, given: HandoffInput) -> HandoffPayload:
        """Return what goes along.

        Raises:
            UsageError: the function returned something else.
        """
        made: object = self.function(given)
        if not isinstance(made, HandoffPayload):
            raise UsageError(detail=f"The transform {self.name} made {made!r}, no HandoffPayload.")
        return made


def transform(
    name: str, *, version: int
) -> Callable[[Callable[[HandoffInput], HandoffPayload]], Transform]:
    """Make a transform of a function: `@transform("summary", version=2)`."""

    def make(function: Callable[[HandoffInput], HandoffPayload]) -> Transform:
        return Transform(name=name, version=version, function=function)

    return make


@transform("message-only", version=1)
def send_message_only(given: HandoffInput) -> HandoffPayload:
    """Let only the giver's message along."""
    return HandoffPayload(task=given.message)


@transform("conversation", version=1)
def send_conversation(given: HandoffInput) -> HandoffPayload:
    """Let the words of the conversation, without tool output, and the whole state along."""
    lines = [f"{each.role}: {each.text}" for each in given.messages if each.text]
    return HandoffPayload(task=given.message, context="\n".join(lines), state=given.state)


@payload("agent.handed_off", is_open=True, is_inherited=False, is_synced=True)
class HandedOff(Payload, frozen=True, kw_only=True):
    """Another agent goes on in a linked session; `parcel` is the digest of what went along."""

    call_id: str
    from_agent: str
    to_agent: str
    transform: str
    transform_version: int
    transform_hash: str
    parcel: str
    session_id: str
    run_id: str


def digest_handoff(parcel: HandoffPayload) -> str:
    """Return the digest by which the record knows what went along."""
    return digest(msgspec.to_builtins(parcel))


def transfer_to(
    agents: Sequence[str], *, transform: Transform = send_message_only, name: str = "transfer_to"
) -> Tool:
    """Return a tool with which an agent hands the conversation over to one of these.

    The other agent goes on in a linked session, below the giver: it has no right that the
    giver lacks. Its answer is the answer of the giver's run, which is not asked again.

    Raises:
        UsageError: no agent is named.
    """
    known = {one.casefold(): one for one in agents}
    if not known:
        raise UsageError(detail="transfer_to needs the agents to hand over to.")

    async def hand_over(
        agent: Annotated[str, Field(description="Who goes on: " + ", ".join(known.values()))],
        message: Annotated[str, Field(min_length=1, description="What they have to know")],
        context: ToolContext,
    ) -> ToolResult:
        chosen = known.get(agent.casefold())
        if chosen is None:
            raise TellModel(f"You can hand over to: {', '.join(known.values())}.")
        delegation = context.execution.get(Delegation)  # type: ignore[type-abstract]
        result = await delegation.hand_over(context, chosen, message, transform)
        outcome = make_outcome(result)
        if outcome.is_error:
            return outcome
        return msgspec.structs.replace(
            outcome,
            metadata={**outcome.metadata, HANDED_TO: _annotate_address(result.metadata, outcome)},
        )

    return Tool.from_function(
        hand_over,
        local_names={"ToolContext": ToolContext, "ToolResult": ToolResult, "known": known},
        name=name,
        description="Hand this conversation over to another agent, for good. It answers in "
        f"your place. Choose one of: {', '.join(known.values())}.",
        effect="idempotent",
        target=Target(
            kind="agent", resolve=lambda values, _workspace: (str(values.get("agent", "")),)
        ),
        tags=("agents",),
        timeout_s=RUN_TIMEOUT_S,
    )


def find_handed_over_answer(last: Message) -> Message | None:
    """Return the answer that an agent gave in place of another, if the last call was that."""
    if last.role != "assistant":
        return None
    for part in last.parts:
        if isinstance(part, ToolPart) and part.state == "completed" and HANDED_TO in part.metadata:
            return Message(
                id="",
                session_id=last.session_id,
                role="assistant",
                parts=(TextPart(text=part.output),),
                metadata={HANDED_TO: part.metadata[HANDED_TO]},
                stop_reason="stop",
            )
    return None


def _annotate_address(metadata: JsonObject, outcome: ToolResult) -> Any:  # noqa: ANN401 - JSON
    """Where the conversation goes on; of several hand-offs in a row, the last one's."""
    own = {key: outcome.metadata[key] for key in ("agent", "session_id", "run_id")}
    return metadata.get(HANDED_TO, own)


__all__ = [
    "HandedOff",
    "HandoffInput",
    "HandoffPayload",
    "Transform",
    "find_handed_over_answer",
    "send_conversation",
    "send_message_only",
    "transfer_to",
    "transform",
]
