"""The conversation as a model must see it: every call followed by its result.

The journal keeps a call and its result as one part of the assistant's message. Models want
the request in the assistant's message and the result in a tool message after it; and no
request may ever stand without a result.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.messages import Message, ToolPart

_NOT_EXECUTED = "This call was not executed: the run ended before it."


def for_model(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages to send: requests and results apart, nothing dangling."""
    shown: list[Message] = []
    for message in messages:
        calls = message.tool_calls if message.role == "assistant" else ()
        if not calls:
            shown.append(message)
            continue
        shown += _apart(message, calls)
    return tuple(shown)


def _apart(message: Message, calls: tuple[ToolPart, ...]) -> tuple[Message, Message]:
    requests = tuple(
        _as_request(part) if isinstance(part, ToolPart) else part for part in message.parts
    )
    results = tuple(_as_result(part) for part in calls)
    asking = msgspec.structs.replace(message, parts=requests)
    answering = Message(
        id=f"{message.id}-results",
        session_id=message.session_id,
        role="tool",
        parts=results,
        time_created=message.time_created,
        parent_id=message.id,
        run_id=message.run_id,
    )
    return asking, answering


def _as_request(part: ToolPart) -> ToolPart:
    return ToolPart(
        id=part.id,
        call_id=part.call_id,
        tool=part.tool,
        input=part.input,
        raw_input=part.raw_input,
    )


def _as_result(part: ToolPart) -> ToolPart:
    if part.state in ("completed", "error"):
        return part
    return msgspec.structs.replace(part, state="error", error=_NOT_EXECUTED)
