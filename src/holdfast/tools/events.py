"""The facts of tool calls.

That a call has ended is a fact of the conversation: the call's part in the assistant's
message gets its result (`message.part.updated`). Here stands what comes before and around
it: the intent, and what to do when the outcome is not known.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload
from holdfast.messages import ToolPart
from holdfast.policy import Decision
from holdfast.tools.effects import Effect, Intent
from holdfast.tools.result import ToolResult


@payload("tool.started", has_content=True)
class ToolStarted(Payload, frozen=True, kw_only=True):
    """A call is about to happen; written before any effect that is not a mere read."""

    intent: Intent
    message_id: str
    effect: Effect
    source_hash: str
    targets: tuple[str, ...] = ()
    policy_version: str = ""

    def redacted(self) -> ToolStarted:
        """Keep which call; drop arguments, notes and targets."""
        bare = msgspec.structs.replace(self.intent, arguments={}, noted={})
        return msgspec.structs.replace(self, intent=bare, targets=())


@payload("tool.unknown_outcome", is_synced=True, has_content=True)
class ToolOutcomeUnknown(Payload, frozen=True, kw_only=True):
    """It is not known whether an effect happened before a crash; a person has to say."""

    call_id: str
    tool: str
    question: str

    def redacted(self) -> ToolOutcomeUnknown:
        """Keep which call; drop the question."""
        return msgspec.structs.replace(self, question="")


@payload("tool.outcome_decided", is_open=True, is_inherited=False, is_synced=True, has_content=True)
class ToolOutcomeDecided(Payload, frozen=True, kw_only=True):
    """A person said what became of an effect: it happened, it did not, or give up."""

    call_id: str
    verdict: Literal["happened", "not_happened", "abort"]
    decided_by: str
    result: ToolResult | None = None

    def redacted(self) -> ToolOutcomeDecided:
        """Keep the verdict; drop the result."""
        return msgspec.structs.replace(self, result=None)


@payload("tool.parked", is_synced=True, has_content=True)
class ToolParked(Payload, frozen=True, kw_only=True):
    """A call waits for an answer, such as for answers to its question."""

    call_id: str
    tool: str
    reason: str
    request: JsonObject

    def redacted(self) -> ToolParked:
        """Keep which call; drop what is asked."""
        return msgspec.structs.replace(self, request={})


@payload("tool.nested_ended", has_content=True)
class NestedCallEnded(Payload, frozen=True, kw_only=True):
    """A call inside another one, such as a batch, has its result.

    The conversation shows only the outer call, so this is where the inner result is kept.
    """

    call_id: str
    message_id: str
    part: ToolPart | None

    def redacted(self) -> NestedCallEnded:
        """Keep which call; drop arguments and result."""
        return msgspec.structs.replace(self, part=None)


@payload("tool.output_kept", has_content=True)
class ToolOutputKept(Payload, frozen=True, kw_only=True):
    """Something that is too long for an answer, whole; a handle in the answer names it."""

    name: str
    media_type: str
    data: bytes

    def redacted(self) -> ToolOutputKept:
        """Keep its name; drop the content."""
        return msgspec.structs.replace(self, data=b"")


@payload("permission.denied")
class PermissionRefused(Payload, frozen=True, kw_only=True):
    """A rule or a person refused a call."""

    call_id: str
    tool: str
    permission: str
    targets: tuple[str, ...]
    because: str
    decision: Decision


@payload("tool.answered", is_open=True, is_inherited=False, is_synced=True, has_content=True)
class ToolAnswered(Payload, frozen=True, kw_only=True):
    """What a parked call waited for, such as a person's answers to its question."""

    call_id: str
    answered_by: str
    result: ToolResult | None

    def redacted(self) -> ToolAnswered:
        """Keep which call; drop the answer."""
        return msgspec.structs.replace(self, result=None)


@payload("files.restored", has_content=True)
class FilesRestored(Payload, frozen=True, kw_only=True):
    """Files have again what they had at event `to`; `left` says by path why others have not."""

    to: int
    restored: tuple[str, ...]
    left: dict[str, str]

    def redacted(self) -> FilesRestored:
        """Keep that it happened; drop the paths."""
        return msgspec.structs.replace(self, restored=(), left={})
