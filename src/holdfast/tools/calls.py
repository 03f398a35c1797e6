"""A call on its way: what was asked for, and what it may go on with."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ArgumentsWithheld, HoldfastError, ToolInputInvalid
from holdfast.journal import Payload
from holdfast.messages import ToolPart
from holdfast.policy import CallRequest, Decision
from holdfast.redaction import list_withheld
from holdfast.tools.definition import Tool


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call: the part of an assistant's message that asks for it."""

    message_id: str
    part: ToolPart
    is_nested: bool = False
    """Whether another call makes it; the conversation then shows only the outer one."""
    is_recorded: bool = False
    """Whether it was read from the journal, which keeps no secrets."""

    def with_input(self, arguments: JsonObject, *, edited_by: str = "a person") -> Call:
        """Return the call with other arguments; who changed them is noted in its part."""
        if arguments == self.part.input:
            return self
        noted = {"edited_by": edited_by, "asked_input": self.part.input}
        metadata = {**self.part.metadata, **noted}
        part = msgspec.structs.replace(self.part, input=arguments, raw_input="", metadata=metadata)
        return msgspec.structs.replace(self, part=part)


class AdmittedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may go on, and the facts of who consented; kept with what happens next."""

    call: Call
    values: dict[str, Any]
    request: CallRequest
    decision: Decision
    facts: tuple[Payload, ...] = ()


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may not run: what to tell the model, and the facts of who refused."""

    call: Call
    text: str
    facts: tuple[Payload, ...]


def refuse_unsound(tool: Tool, part: ToolPart) -> None:
    """Return if the arguments of a call are those that were asked for, as far as can be seen.

    Raises:
        ToolInputInvalid: the model wrote something that is no JSON object.
        ArgumentsWithheld: the journal, which keeps no secrets, gave back something else.
    """
    if part.raw_input:
        raise ToolInputInvalid(tool=tool.name, detail="the arguments are no JSON object")
    refuse_withheld(tool, part.input)


def refuse_withheld(tool: Tool, arguments: JsonObject) -> None:
    """Raise ArgumentsWithheld if what the journal gave back is not what was asked for."""
    places = list_withheld(arguments)
    if places:
        raise ArgumentsWithheld(tool=tool.name, arguments=", ".join(places))


def render_error_text(error: HoldfastError) -> str:
    """Return what the model is told about an error."""
    text = str(error)
    if not error.hint:
        return text
    return f"{text if text.endswith(('.', '?', '!')) else f'{text}.'} {error.hint}"
