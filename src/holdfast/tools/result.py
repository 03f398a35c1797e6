"""What a tool call gives back."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import FilePart


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text for the model, and what goes with it.

    `title` is a short line for people, `metadata` is for programs, `attachments` are
    images and files for the model. `is_error` says that the call failed although the
    tool did not raise.
    """

    output: str
    title: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    attachments: tuple[FilePart, ...] = ()
    is_error: bool = False


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call waits for an answer; the run parks and the answer becomes its result.

    `reason` names what is waited for (`question`), `request` is what to show.
    """

    reason: str
    request: JsonObject


Outcome: TypeAlias = ToolResult | Parked


class NestedCallWaits(Exception):
    """A call that a call has made waits for an answer; the outer one is taken up again later."""

    def __init__(self, parked: Parked) -> None:
        """Carry what is waited for."""
        super().__init__(parked.reason)
        self.parked = parked
