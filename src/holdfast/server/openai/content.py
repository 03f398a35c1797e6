"""Messages, content and tools as OpenAI's APIs write them, read into ours."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.agents import ClientOptions
from holdfast.canonical import JsonObject
from holdfast.ids import make_id
from holdfast.messages import FilePart, Message, Part, TextPart, TokenUsage, ToolPart, ToolSpec
from holdfast.server.openai.failures import BadRequest

_AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})


def read_content(content: object, where: str) -> list[TextPart | FilePart]:
    """Return the parts of a message's content: texts, images, audio and files.

    Raises:
        BadRequest: it is something else.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(text=content)] if content else []
    if not isinstance(content, list):
        raise BadRequest("the content is neither a text nor a list of parts", where)
    return [_read_part(one, f"{where}[{at}]") for at, one in enumerate(content)]


def _read_part(item: object, where: str) -> TextPart | FilePart:
    if not isinstance(item, dict):
        raise BadRequest("a part of the content is an object", where)
    kind = item.get("type")
    if kind in ("text", "input_text", "output_text"):
        return TextPart(text=_text(item.get("text"), f"{where}.text"))
    if kind == "refusal":
        return TextPart(text=_text(item.get("refusal"), f"{where}.refusal"))
    if kind in ("image_url", "input_image"):
        given = item.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        return read_address(_text(url, f"{where}.image_url"), "image/png", where)
    if kind == "input_audio":
        sound = _object(item.get("input_audio"), f"{where}.input_audio")
        media = _AUDIO.get(str(sound.get("format")))
        if media is None:
            raise BadRequest("the format of audio is wav or mp3", f"{where}.input_audio.format")
        return FilePart(media_type=media, data=_decode(str(sound.get("data")), where))
    if kind in ("file", "input_file"):
        file = _object(item.get("file"), where) if kind == "file" else item
        name = str(file.get("filename") or "")
        given = file.get("file_data") or file.get("file_url")
        if not isinstance(given, str):
            raise BadRequest("a file comes as file_data or file_url; ids are not known here", where)
        if not given.startswith(("data:", "http://", "https://")):
            return FilePart(media_type="application/pdf", name=name, data=_decode(given, where))
        return msgspec.structs.replace(read_address(given, "application/pdf", where), name=name)
    raise BadRequest(f"content of the type {kind!r:.40} is not supported", where)


def read_address(url: str, media_type: str, where: str) -> FilePart:
    """Return a file that an address names, or that a `data:` address holds."""
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        media, *marks = head.split(";")
        if "base64" not in marks:
            raise BadRequest("a data address is base64 here", where)
        return FilePart(media_type=media or media_type, data=_decode(data, where))
    if not url.startswith(("https://", "http://")):
        raise BadRequest("an address begins with https:// or data:", where)
    return FilePart(media_type=media_type, url=url)


def _decode(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the data is no base64", where) from None


def make_message(role: Any, parts: Iterable[Part]) -> Message:  # noqa: ANN401 - one of the roles
    """Return a message of a conversation that came with a request."""
    stop = "stop" if role == "assistant" else ""
    return Message(
        id=make_id("msg"), session_id="", role=role, parts=tuple(parts), stop_reason=stop
    )


def read_call(call_id: object, name: object, arguments: object, where: str) -> ToolPart:
    """Return a call of the conversation so far; its result comes with `close_call`."""
    try:
        values = msgspec.json.decode(str(arguments or "{}"), type=dict[str, Any])
    except msgspec.MsgspecError:
        raise BadRequest("the arguments of a call are a JSON object", where) from None
    return ToolPart(call_id=_text(call_id, where), tool=_text(name, where), input=values)


def close_call(messages: list[Message], call_id: str, output: str, where: str) -> None:
    """Give a call of the conversation its result.

    Raises:
        BadRequest: no message before has such a call.
    """
    for at in range(len(messages) - 1, -1, -1):
        parts = list(messages[at].parts)
        for place, part in enumerate(parts):
            if isinstance(part, ToolPart) and part.call_id == call_id:
                done = msgspec.structs.replace(part, state="completed", output=output)
                parts[place] = done
                messages[at] = msgspec.structs.replace(messages[at], parts=tuple(parts))
                return
    raise BadRequest(f"no call before has the id {call_id!r:.80}", where)


def find_open_call(messages: Iterable[Message]) -> str:
    """Return the id of a call that has no result; empty if all have one."""
    for message in messages:
        for call in message.tool_calls:
            if call.state == "pending":
                return call.call_id
    return ""


def read_output(content: object, where: str) -> str:
    """Return the text of a tool's result."""
    parts = read_content(content, where)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def read_tools(tools: object) -> tuple[ToolSpec, ...]:
    """Return the tools of a request, of either API.

    Raises:
        BadRequest: one is no function; what servers of OpenAI execute is not here.
    """
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise BadRequest("tools are a list", "tools")
    found = []
    for at, tool in enumerate(tools):
        where = f"tools[{at}]"
        given = _object(tool, where)
        if given.get("type") != "function":
            raise BadRequest(
                f"only tools of the type function are supported, not {given.get('type')!r:.40}; "
                "what else an agent needs it has itself",
                f"{where}.type",
                "unsupported_value",
            )
        function = _object(given.get("function", given), where)
        parameters = function.get("parameters")
        found.append(
            ToolSpec(
                name=_text(function.get("name"), f"{where}.name"),
                description=str(function.get("description") or ""),
                parameters=_object(parameters, where) if parameters is not None else {},
            )
        )
    return tuple(found)


def read_choice(choice: object) -> str:
    """Return what `tool_choice` says: `auto`, `none`, `required` or a name."""
    if choice in (None, "auto", "none", "required"):
        return str(choice or "auto")
    given = _object(choice, "tool_choice")
    function = given.get("function", given)
    name = function.get("name") if isinstance(function, dict) else None
    if given.get("type") != "function" or not isinstance(name, str):
        raise BadRequest("the tool choice is auto, none, required or a function", "tool_choice")
    return name


def read_format(form: object, where: str) -> tuple[JsonObject | None, str]:
    """Return the schema that the answer has to have, and its name; `None` for a plain text."""
    if form is None:
        return None, "answer"
    given = _object(form, where)
    kind = given.get("type", "text")
    if kind == "text":
        return None, "answer"
    if kind == "json_object":
        return {"type": "object"}, "answer"
    if kind != "json_schema":
        raise BadRequest(f"the format {kind!r:.40} is not supported", f"{where}.type")
    inner = _object(given.get("json_schema", given), where)
    return _object(inner.get("schema"), f"{where}.schema"), str(inner.get("name") or "answer")


def make_client(body: Mapping[str, Any], *, wishes: ClientOptions) -> ClientOptions:
    """Return what a request wishes for: what both APIs call the same, added to the rest.

    Raises:
        BadRequest: a value cannot be meant.
    """
    found: dict[str, Any] = {
        "tools": read_tools(body.get("tools")),
        "tool_choice": read_choice(body.get("tool_choice")),
        "metadata": _object(body.get("metadata") or {}, "metadata"),
    }
    if found["tool_choice"] == "none":
        found |= {"tools": (), "tool_choice": "auto"}
    for name, most in (("temperature", 2.0), ("top_p", 1.0)):
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise BadRequest(f"{name} is a number from 0 to {most}", name)
        found[name] = float(value)
    return msgspec.structs.replace(wishes, **found)


def read_limit(value: object, name: str) -> int | None:
    """Return how many tokens an answer may have; raises BadRequest."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{name} is a number above 0", name)
    return value


def read_effort(value: object, where: str) -> str:
    """Return how much a model is to think; raises BadRequest."""
    if value is None:
        return ""
    if value not in _EFFORTS:
        raise BadRequest(f"the effort is one of {', '.join(sorted(_EFFORTS))}", where)
    return str(value)


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("an object is expected", where)
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadRequest("a text is expected", where)
    return value


def count_usage(used: TokenUsage, *, is_chat: bool) -> JsonObject:
    """Return what was used, by the names of either API."""
    read = used.input + used.cache_read + used.cache_write
    written = used.output + used.reasoning
    one, other = ("prompt", "completion") if is_chat else ("input", "output")
    return {
        f"{one}_tokens": read,
        f"{one}_tokens_details": {"cached_tokens": used.cache_read},
        f"{other}_tokens": written,
        f"{other}_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": read + written,
    }


def split_call_id(given: str) -> tuple[str, str]:
    """Return the run and the call that an id of ours names; empty where it is none of ours."""
    run_id, _, call_id = given.partition(".")
    return (run_id, call_id) if run_id.startswith("run_") and call_id else ("", "")


__all__ = [
    "close_call",
    "count_usage",
    "find_open_call",
    "make_client",
    "make_message",
    "read_address",
    "read_call",
    "read_choice",
    "read_content",
    "read_effort",
    "read_format",
    "read_limit",
    "read_output",
    "read_tools",
    "split_call_id",
]
