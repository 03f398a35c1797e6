"""OpenAI Chat Completions, as OpenAI and the many compatible servers speak it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMBadRequest
from holdfast.messages import FilePart, Message, ReasoningPart, TextPart, ToolPart, ToolSpec
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.providers.wire.chat_stream import ChatDecoder
from holdfast.providers.wire.codec import (
    Answer,
    EncodedCache,
    Fragment,
    call_input,
    check_file,
    data_url,
    encode_json,
    inline_text,
    result_text,
    text_of,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.schema import closed_schema, is_strict

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatCodec:
    """Requests and answers of `/chat/completions`."""

    path = "/chat/completions"
    headers: dict[str, str] = {}

    def __init__(self, endpoint: Endpoint, info: ModelInfo) -> None:
        """Start with nothing encoded."""
        self._endpoint = endpoint
        self._info = info
        self._cache = EncodedCache()
        self._has_odd = False

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life."""
        fragments = self._cache.fragments(request.messages, self._fragment)
        pieces = [fragment[1] for fragment in fragments]
        if self._has_odd:
            pieces = _with_tails(fragments)
        if request.system:
            pieces.insert(0, encode_json({"role": "system", "content": request.system}))
        settings = encode_json(self._settings(request, stream))
        return b"".join((b'{"messages":[', b",".join(pieces), b"],", settings[1:]))

    def decoder(self) -> ChatDecoder:
        """Return a decoder for one streamed answer."""
        return ChatDecoder(self._endpoint, self._info.model)

    def decode(self, body: bytes) -> Answer:
        """Return the answer that came as one body."""
        decoder = self.decoder()
        decoder.take_body(body)
        return decoder.finish()

    def _settings(self, request: ModelRequest, stream: bool) -> JsonObject:
        made: JsonObject = {"model": self._info.model, "stream": stream}
        if stream:
            made["stream_options"] = {"include_usage": True}
        if request.tools:
            made["tools"] = self._cache.get(request.tools, _tools, len)
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

    def _fragment(self, message: Message) -> Fragment:
        made = self._encoded(message)
        if made.tail or not made.data:
            self._has_odd = True
        return made

    def _encoded(self, message: Message) -> Fragment:
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

    def _assistant(self, message: Message) -> bytes:
        text = "\n".join(text_of(message.parts))
        calls = [part for part in message.parts if isinstance(part, ToolPart)]
        if not text and not calls:
            return b""
        made: JsonObject = {"role": "assistant", "content": text or None}
        if calls:
            made["tool_calls"] = [_call(part) for part in calls]
        is_ours = message.provider in ("", self._endpoint.provider)
        if self._endpoint.reasoning_back and is_ours:
            thoughts = [p.text for p in message.parts if isinstance(p, ReasoningPart)]
            if any(thoughts):
                made["reasoning_content"] = "\n".join(thoughts)
        return encode_json(made)

    def _results(self, message: Message) -> Fragment:
        """Tool messages hold text only, so attachments follow in a user message."""
        results, attached = [], []
        for part in message.parts:
            if not isinstance(part, ToolPart):
                continue
            made = {"role": "tool", "tool_call_id": part.call_id, "content": result_text(part)}
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


def _with_tails(fragments: list[Fragment]) -> list[bytes]:
    """Leave out what is empty, and put each tail behind the run of its role."""
    pieces: list[bytes] = []
    tails: list[bytes] = []
    for fragment in fragments:
        if tails and fragment.role != "tool":
            pieces += tails
            tails = []
        if fragment.data:
            pieces.append(fragment.data)
        if fragment.tail:
            tails.append(fragment.tail)
    return pieces + tails


def _call(part: ToolPart) -> JsonObject:
    function = {"name": part.tool, "arguments": encode_json(call_input(part)).decode()}
    return {"id": part.call_id, "type": "function", "function": function}


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
