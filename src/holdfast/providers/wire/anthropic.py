"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import (
    CompactionPart,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    ToolSpec,
)
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.providers.wire.anthropic_stream import AnthropicDecoder
from holdfast.providers.wire.codec import (
    Answer,
    EncodedCache,
    Fragment,
    WireTranscript,
    call_input,
    check_file,
    encode_json,
    inline_text,
    is_sendable_name,
    make_sent_id,
    make_sent_name,
    make_unsupported,
    match_base64,
    read_text_of,
    render_result,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.schema import close_schema

_CACHED = {"type": "ephemeral"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicCodec:
    """Requests and answers of `/messages`.

    Neighbouring messages of one role become one turn, because all results of parallel
    tool calls must come in the turn right after them.
    """

    path = "/messages"
    headers = {"anthropic-version": "2023-06-01"}

    def __init__(self, endpoint: Endpoint, info: ModelInfo) -> None:
        """Start with nothing encoded."""
        self._endpoint = endpoint
        self._info = info
        self._tools = EncodedCache()
        self._transcript = WireTranscript(self)
        self._marks = endpoint.marks_cache

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life."""
        data, end = self._transcript.pieces(request.messages)
        settings = encode_json(self._describe_settings(request, stream))
        return b"".join((b'{"messages":[', data, end, b"],", settings[1:]))

    def encode_on(self, request: ModelRequest, turn: JsonObject, *, stream: bool) -> bytes:
        """Return the body of a request that lets the model go on with a turn it has begun."""
        data, end = self._transcript.pieces(request.messages)
        begun = encode_json({"role": "assistant", "content": turn["content"]})
        settings = self._describe_settings(request, stream)
        if "container" in turn:
            settings["container"] = turn["container"]
        rest = encode_json(settings)
        before = end + b"," if data else b""
        return b"".join((b'{"messages":[', data, before, begun, b"],", rest[1:]))

    def decoder(self) -> AnthropicDecoder:
        """Return a decoder for one streamed answer."""
        return AnthropicDecoder(self._endpoint, self._info.model)

    def decode(self, body: bytes) -> Answer:
        """Return the answer that came as one body."""
        decoder = self.decoder()
        decoder.take_body(body)
        return decoder.finish()

    def _describe_settings(self, request: ModelRequest, stream: bool) -> JsonObject:
        made: JsonObject = {
            "model": self._info.model,
            "max_tokens": request.max_output_tokens or self._info.max_output_tokens,
            "stream": stream,
        }
        if request.system:
            made["system"] = _render_system(request) if self._marks else request.system
        if self._marks:
            # The conversation so far, up to its last block: the next request begins with it.
            made["cache_control"] = _CACHED
        if request.tools:
            tools = self._tools.fragments((request.tools,), _render_tools)[0]
            made["tools"] = msgspec.Raw(tools.data)
            made["tool_choice"] = _render_tool_choice(request.tool_choice)
        output: JsonObject = {}
        if request.output_schema is not None:
            schema = close_schema(request.output_schema)
            output["format"] = {"type": "json_schema", "schema": schema}
        if request.reasoning_effort.isdigit():
            budget = int(request.reasoning_effort)
            made["thinking"] = {"type": "enabled", "budget_tokens": budget}
        elif request.reasoning_effort:
            output["effort"] = request.reasoning_effort
        if output:
            made["output_config"] = output
        if request.temperature is not None:
            made["temperature"] = request.temperature
        if request.top_p is not None:
            made["top_p"] = request.top_p
        if request.stop:
            made["stop_sequences"] = request.stop
        made.update(request.options)
        return made

    # --- how messages follow each other -----------------------------------------------

    def add(self, data: bytearray, fragments: Iterable[Fragment], state: bytes) -> bytes:
        """Append messages to the open turn, or begin others; `state` is the turn's role."""
        for fragment in fragments:
            if not fragment.data:
                continue
            role = fragment.role.encode()
            if role == state:
                data += b","
            else:
                data += _TURN_CHANGE[fragment.role] if state else _FIRST_START[fragment.role]
            data += fragment.data
            state = role
        return state

    def end(self, data: bytearray, state: bytes) -> bytes:
        """Close the open turn."""
        return b"]}" if state else b""

    def fragment(self, message: Message) -> Fragment:
        """Return one message as bytes."""
        blocks: list[JsonObject]
        role = "user"
        if message.role == "assistant":
            role = "assistant"
            blocks = self._render_assistant(message)
        elif message.role == "tool":
            blocks = [self._make_result(p) for p in message.parts if isinstance(p, ToolPart)]
        elif message.role == "system":
            role = "system"
            blocks = [_render_text(text) for text in read_text_of(message.parts) if text.strip()]
        else:
            blocks = self._render_content(message)
        return Fragment(role, b",".join(encode_json(block) for block in blocks))

    def _render_assistant(self, message: Message) -> list[JsonObject]:
        is_ours = message.provider in ("", self._endpoint.provider)
        blocks: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, ReasoningPart):
                if is_ours and part.signature:
                    thought = {"type": "thinking", "thinking": part.text}
                    blocks.append({**thought, "signature": part.signature})
                elif is_ours and part.encrypted:
                    blocks.append({"type": "redacted_thinking", "data": part.encrypted})
            elif isinstance(part, TextPart | CompactionPart):
                blocks.extend(_render_text(text) for text in read_text_of((part,)) if text.strip())
            elif isinstance(part, ToolPart):
                name = part.tool if is_sendable_name(part.tool) else make_sent_name(part.tool)
                call = {"type": "tool_use", "id": _get_id(part), "name": name}
                blocks.append({**call, "input": call_input(part)})
        return blocks

    def _make_result(self, part: ToolPart) -> JsonObject:
        made: JsonObject = {"type": "tool_result", "tool_use_id": _get_id(part)}
        text = render_result(part)
        if part.attachments:
            head = [_render_text(text)] if text.strip() else []
            made["content"] = [*head, *(self._render_file(file) for file in part.attachments)]
        elif text:
            made["content"] = text
        if part.state == "error" or part.error:
            made["is_error"] = True
        return made

    def _render_content(self, message: Message) -> list[JsonObject]:
        made: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, FilePart):
                made.append(self._render_file(part))
            else:
                # The API refuses blocks of nothing but blanks.
                made.extend(_render_text(text) for text in read_text_of((part,)) if text.strip())
        return made

    def _render_file(self, part: FilePart) -> JsonObject:
        check_file(self._endpoint.provider, part)
        if part.media_type.startswith("image/"):
            return {"type": "image", "source": _render_source(part)}
        text = inline_text(part)
        if text is not None:
            return _render_text(text)
        if part.media_type.startswith("audio/"):
            raise make_unsupported(self._info, part)
        made: JsonObject = {"type": "document", "source": _render_source(part)}
        return {**made, "title": part.name} if part.name else made


_ROLES = ("user", "assistant", "system")
_TURN_START = {role: b'{"role":"%s","content":[' % role.encode() for role in _ROLES}
_TURN_CHANGE = {role: b"]}," + start for role, start in _TURN_START.items()}
# The first turn has to be the user's, also where the assistant greeted first.
_NOTHING_SAID = _TURN_START["user"] + b'{"type":"text","text":"(The conversation begins.)"}'
_FIRST_START = {
    role: start if role == "user" else _NOTHING_SAID + _TURN_CHANGE[role]
    for role, start in _TURN_START.items()
}


def _get_id(part: ToolPart) -> str:
    return part.call_id if is_sendable_name(part.call_id) else make_sent_id(part.call_id)


def _render_text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _render_system(request: ModelRequest) -> list[JsonObject]:
    """Return the system prompt with a mark where the part ends that stays the same.

    Tools stand before it, so that the mark covers them too.
    """
    end = len(request.system) - request.changing
    stable, changing = request.system[:end].rstrip(), request.system[end:]
    blocks: list[JsonObject] = []
    if stable:
        blocks.append({**_render_text(stable), "cache_control": _CACHED})
    return [*blocks, _render_text(changing)] if changing.strip() else blocks


def _render_source(part: FilePart) -> JsonObject:
    if part.url.startswith("data:"):
        head, _, data = part.url.partition(",")
        media_type = head[5:].split(";")[0] or part.media_type
        return {"type": "base64", "media_type": media_type, "data": data}
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": match_base64(part)}


def _render_tools(tools: tuple[ToolSpec, ...]) -> Fragment:
    made: list[Any] = []
    for tool in tools:
        made.append(
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        )
    return Fragment("tools", encode_json(made))


def _render_tool_choice(choice: str) -> JsonObject:
    kind = _CHOICES.get(choice)
    return {"type": kind} if kind else {"type": "tool", "name": choice}
