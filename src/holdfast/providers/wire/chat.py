"""OpenAI Chat Completions, as OpenAI and the many compatible servers speak it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMBadRequest
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
from holdfast.providers.wire.chat_answer import whole_answer
from holdfast.providers.wire.chat_stream import ChatDecoder
from holdfast.providers.wire.codec import (
    call_input,
    check_file,
    data_url,
    encode_json,
    inline_text,
    is_sendable_id,
    is_sendable_name,
    result_text,
    sent_id,
    sent_name,
    text_of,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.schema import closed_schema, is_strict
from holdfast.providers.wire.transcript import EncodedCache, Fragment, WireTranscript

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class _Frame(msgspec.Struct, frozen=True, gc=False):
    """What goes around the messages, and what it was made from.

    Request after request of a run has the same, so it is made only when something changes.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    wishes: bytes
    start: bytes
    rest: bytes


class ChatCodec:
    """Requests and answers of `/chat/completions`."""

    path = "/chat/completions"
    headers: dict[str, str] = {}

    def __init__(self, endpoint: Endpoint, info: ModelInfo) -> None:
        """Start with nothing encoded."""
        self._endpoint = endpoint
        self._info = info
        self._tools = EncodedCache()
        self._transcript = WireTranscript(self)
        self.decode = partial(whole_answer, endpoint, info.model)
        """Return the answer that came as one body."""
        self._frame = _Frame("", (), b"", b"", b"")

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life."""
        data, end = self._transcript.pieces(request.messages)
        # As bytes, because what is in them could be changed in its place by whoever asks.
        wishes = encode_json(
            (
                stream,
                request.tool_choice,
                request.output_schema,
                request.output_name,
                request.temperature,
                request.top_p,
                request.max_output_tokens,
                request.stop,
                request.reasoning_effort,
                request.options,
            )
        )
        frame = self._frame
        is_same = frame.tools is request.tools and frame.system == request.system
        if not is_same or frame.wishes != wishes:
            frame = self._frame = self._framed(request, stream, wishes)
        comma = b"," if frame.system and (data or end) else b""
        return b"".join((frame.start, comma, data, end, frame.rest))

    def decoder(self) -> ChatDecoder:
        """Return a decoder for one streamed answer."""
        return ChatDecoder(self._endpoint, self._info.model)

    def _framed(self, request: ModelRequest, stream: bool, wishes: bytes) -> _Frame:
        start = b'{"messages":['
        if request.system:
            start += encode_json({"role": "system", "content": request.system})
        rest = b"]," + encode_json(self._settings(request, stream))[1:]
        return _Frame(request.system, request.tools, wishes, start, rest)

    def _settings(self, request: ModelRequest, stream: bool) -> JsonObject:
        made: JsonObject = {"model": self._info.model, "stream": stream}
        if stream:
            made["stream_options"] = {"include_usage": True}
        if request.tools:
            made["tools"] = self._tools.get(request.tools, _tools, len)
            made["tool_choice"] = _tool_choice(request.tool_choice)
        if request.output_schema is not None:
            schema = closed_schema(request.output_schema)
            form = {"name": request.output_name, "schema": schema, "strict": is_strict(schema)}
            made["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.temperature is not None:
            made["temperature"] = request.temperature
        if request.top_p is not None:
            made["top_p"] = request.top_p
        if request.max_output_tokens is not None:
            made[self._endpoint.max_tokens_field] = request.max_output_tokens
        if request.stop:
            made["stop"] = request.stop
        if request.reasoning_effort:
            made["reasoning_effort"] = request.reasoning_effort
        made.update(request.options)
        return made

    # --- how messages follow each other -----------------------------------------------

    def fragment(self, message: Message) -> Fragment:
        """Return one message as bytes."""
        if message.role == "assistant":
            return Fragment("assistant", self._assistant(message))
        if message.role == "tool":
            return self._results(message)
        if message.role == "system":
            text = "\n".join(text_of(message.parts))
            return Fragment("system", encode_json({"role": "system", "content": text}))
        content = self._content(message)
        data = encode_json({"role": "user", "content": content}) if content else b""
        return Fragment("user", data)

    def add(self, data: bytearray, fragments: Iterable[Fragment], state: bytes) -> bytes:
        """Append messages; `state` is what goes behind the results that came before them."""
        for fragment in fragments:
            message, tail = fragment.data, fragment.tail
            if state and fragment.role != "tool":
                data += b"," + state if data else state
                state = b""
            if message:
                if data:
                    data += b","
                data += message
            if tail:
                state = state + b"," + tail if state else tail
        return state

    def end(self, data: bytearray, state: bytes) -> bytes:
        """Return what goes behind the last results."""
        return b"," + state if data and state else state

    def _assistant(self, message: Message) -> bytes:
        texts, calls, thoughts = [], [], []
        for part in message.parts:
            if isinstance(part, ToolPart):
                calls.append(_call(part))
            elif isinstance(part, TextPart):
                texts.append(part.text)
            elif isinstance(part, ReasoningPart):
                thoughts.append(part.text)
            elif isinstance(part, CompactionPart):
                texts.append(part.summary)
        text = "\n".join(filter(None, texts))
        if not text and not calls:
            return b""
        made: JsonObject = {"role": "assistant", "content": text or None}
        if calls:
            made["tool_calls"] = calls
        is_ours = message.provider in ("", self._endpoint.provider)
        if self._endpoint.reasoning_back and is_ours and any(thoughts):
            made["reasoning_content"] = "\n".join(thoughts)
        return encode_json(made)

    def _results(self, message: Message) -> Fragment:
        """Tool messages hold text only, so attachments follow in a user message."""
        results, attached = [], []
        for part in message.parts:
            if not isinstance(part, ToolPart):
                continue
            call_id = part.call_id if is_sendable_id(part.call_id) else sent_id(part.call_id)
            text = result_text(part) if part.error else part.output
            made = {"role": "tool", "tool_call_id": call_id, "content": text}
            results.append(encode_json(made))
            if part.attachments:
                attached.append({"type": "text", "text": f"Files that {part.tool} returned:"})
                attached.extend(self._file(file) for file in part.attachments)
        tail = encode_json({"role": "user", "content": attached}) if attached else b""
        return Fragment("tool", b",".join(results), tail)

    def _content(self, message: Message) -> str | list[JsonObject]:
        files = [part for part in message.parts if isinstance(part, FilePart)]
        if not files:
            return "\n".join(text_of(message.parts))
        made: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, FilePart):
                made.append(self._file(part))
            elif isinstance(part, TextPart) and part.text:
                made.append({"type": "text", "text": part.text})
        return made

    def _file(self, part: FilePart) -> JsonObject:
        check_file(self._endpoint.provider, part)
        if part.media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        text = inline_text(part)
        if text is not None:
            return {"type": "text", "text": text}
        if part.url and not part.url.startswith("data:"):
            detail = f"the chat API takes only images by address, not {part.media_type}"
            raise LLMBadRequest(provider=self._endpoint.provider, detail=detail)
        if part.media_type in _AUDIO:
            data = data_url(part).partition(",")[2]
            return {
                "type": "input_audio",
                "input_audio": {"data": data, "format": _AUDIO[part.media_type]},
            }
        return {
            "type": "file",
            "file": {"filename": part.name or "file", "file_data": data_url(part)},
        }


def _call(part: ToolPart) -> JsonObject:
    name = part.tool if is_sendable_name(part.tool) else sent_name(part.tool)
    call_id = part.call_id if is_sendable_id(part.call_id) else sent_id(part.call_id)
    given = call_input(part) if part.raw_input else part.input
    function = {"name": name, "arguments": encode_json(given).decode()}
    return {"id": call_id, "type": "function", "function": function}


def _tools(tools: tuple[ToolSpec, ...]) -> msgspec.Raw:
    made: list[Any] = []
    for tool in tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        made.append({"type": "function", "function": function})
    return msgspec.Raw(encode_json(made))


def _tool_choice(choice: str) -> str | JsonObject:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}
