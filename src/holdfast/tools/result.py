"""What a tool call gives back."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import pydantic_core

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
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
    """The call waits for somebody; the run parks and the answer becomes its result.

    `reason` names what is waited for (`question`), `request` is what to show.
    """

    reason: str
    request: JsonObject


Outcome: TypeAlias = ToolResult | Parked
_OUTCOMES = (ToolResult, Parked)


class NestedCallWaits(Exception):
    """A call that a call has made waits for somebody; the outer one is taken up again later."""

    def __init__(self, parked: Parked) -> None:
        """Carry what is waited for."""
        super().__init__(parked.reason)
        self.parked = parked


def to_outcome(value: object, tool: str) -> Outcome:
    """Turn whatever a tool function returned into an outcome.

    Text stays text, None becomes empty, everything else becomes JSON: pydantic models,
    dataclasses, msgspec structs, enums, dates, lists and dictionaries.

    Raises:
        ToolError: the value has no JSON form.
    """
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, _OUTCOMES):
        return value
    if value is None:
        return ToolResult("")
    try:
        return ToolResult(
            pydantic_core.to_json(value, fallback=_struct, bytes_mode="base64").decode()
        )
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolError(
            tool=tool, detail=f"it returned a {type(value).__name__}, which has no JSON form"
        ) from error


def _struct(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
