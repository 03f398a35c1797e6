"""Message history: make it, cut it, store it elsewhere, take it from other programs.

A session keeps its own history, so that a second run in it just goes on. These are for
conversations that come from elsewhere, or go there: `agent.run("…", history=messages)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.ids import make_id
from holdfast.messages.media import UserContent, make_user_content
from holdfast.messages.message import Message, Role
from holdfast.messages.parts import FilePart, Part, TextPart, ToolPart

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def make_user_message(content: UserContent) -> Message:
    """Return what a person said, for a history: a text, or texts and media."""
    made = make_user_content(content)
    parts: tuple[Part, ...] = (TextPart(text=made),) if isinstance(made, str) else made
    return Message(id=make_id("msg"), session_id="", role="user", parts=parts)


def make_assistant_message(text: str) -> Message:
    """Return what an agent said, for a history."""
    return Message(
        id=make_id("msg"),
        session_id="",
        role="assistant",
        parts=(TextPart(text=text),),
        stop_reason="stop",
    )


def dump_messages(messages: Iterable[Message]) -> bytes:
    """Return messages as JSON, which `load_messages` reads again."""
    return msgspec.json.encode(list(messages))


def load_messages(data: bytes | str) -> tuple[Message, ...]:
    """Return messages from the JSON that `dump_messages` made.

    Raises:
        UsageError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=tuple[Message, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(detail=f"These are no messages: {error}") from error


def keep_last_turns(messages: Sequence[Message], turns: int) -> tuple[Message, ...]:
    """Return the last turns: each from what a person said to the last answer to it.

    No result is ever cut from its call, which providers would refuse.

    Raises:
        UsageError: `turns` is below 1.
    """
    if turns < 1:
        raise UsageError(detail="keep_last_turns keeps at least one turn.")
    starts = [at for at, message in enumerate(messages) if message.role == "user"]
    first = starts[-turns] if len(starts) >= turns else 0
    return tuple(messages[first:])


def from_openai(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return messages that were kept in the form of OpenAI's chat API.

    Calls and their results become one message, as everywhere here.

    Raises:
        UsageError: one is of another form, or a call has no result.
    """
    made: list[Message] = []
    for given in messages:
        role = given.get("role")
        if role == "tool":
            _add_result(made, given)
        elif role in _ROLES:
            parts = (*_read_content(given.get("content")), *_read_calls(given))
            if parts:
                kept = _ROLES[role]
                made.append(Message(id=make_id("msg"), session_id="", role=kept, parts=parts))
        else:
            raise UsageError(detail=f"A message of the chat API has no role {role!r}.")
    check_history(made)
    return tuple(made)


def to_openai(messages: Iterable[Message]) -> list[JsonObject]:
    """Return messages in the form of OpenAI's chat API; reasoning and files are left out."""
    made: list[JsonObject] = []
    for message in messages:
        one: JsonObject = {"role": message.role, "content": message.text}
        results: list[JsonObject] = []
        if message.tool_calls:
            one["tool_calls"] = [_write_call(call) for call in message.tool_calls]
            results = [
                {"role": "tool", "tool_call_id": call.call_id, "content": call.output or call.error}
                for call in message.tool_calls
                if call.state in ("completed", "error")
            ]
        made += [one, *results]
    return made


def check_history(messages: Sequence[Message]) -> None:
    """Return if a session can begin with messages.

    Raises:
        UsageError: something else is among them, or a call that has no result.
    """
    for message in messages:
        given: object = message
        if not isinstance(given, Message):
            raise UsageError(detail=f"A history is made of messages, not of {given!r:.80}")
        for call in message.tool_calls:
            if call.state not in ("completed", "error"):
                raise UsageError(
                    detail=f"The history has a call of {call.tool!r} without its result; cut it "
                    "with `keep_last_turns`, or leave the message out."
                )


def _read_content(content: object) -> list[Part]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    parts: list[Part] = []
    for item in content if isinstance(content, list) else ():
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind in ("text", "input_text", "output_text"):
            parts.append(TextPart(text=str(item["text"])))
        elif kind == "image_url":
            parts.append(FilePart(media_type="image/png", url=str(item["image_url"]["url"])))
        else:
            raise UsageError(detail=f"A history takes texts and images, not {item!r:.80}")
    return parts


def _read_calls(given: Mapping[str, Any]) -> list[Part]:
    calls: list[Part] = []
    for call in given.get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise UsageError(detail=f"The arguments of a call are no object: {error}") from error
        calls.append(ToolPart(call_id=call["id"], tool=function["name"], input=arguments))
    return calls


def _add_result(made: list[Message], given: Mapping[str, Any]) -> None:
    wanted = given.get("tool_call_id")
    for at in range(len(made) - 1, -1, -1):
        parts = list(made[at].parts)
        for place, part in enumerate(parts):
            if isinstance(part, ToolPart) and part.call_id == wanted:
                text = "\n".join(
                    p.text for p in _read_content(given.get("content")) if isinstance(p, TextPart)
                )
                parts[place] = msgspec.structs.replace(part, state="completed", output=text)
                made[at] = msgspec.structs.replace(made[at], parts=tuple(parts))
                return
    raise UsageError(detail=f"The result {wanted!r} belongs to no call before it.")


def _write_call(call: ToolPart) -> JsonObject:
    arguments = call.raw_input or msgspec.json.encode(call.input).decode()
    function = {"name": call.tool, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


__all__ = [
    "check_history",
    "dump_messages",
    "from_openai",
    "keep_last_turns",
    "load_messages",
    "make_assistant_message",
    "make_user_message",
    "to_openai",
]
