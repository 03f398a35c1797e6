"""OpenAI Responses, stateless: nothing is stored at the provider but what it makes later."""

from __future__ import annotations

from collections.abc import Iterable
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
from holdfast.providers.wire.codec import (
    Answer,
    CacheKey,
    EncodedCache,
    Fragment,
    WireTranscript,
    call_input,
    check_file,
    encode_json,
    inline_text,
    is_sendable_id,
    is_sendable_name,
    make_data_url,
    make_sent_id,
    make_sent_name,
    make_unsupported,
    read_text_of,
    render_result,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.responses_stream import PHASES, ResponsesDecoder
from holdfast.providers.wire.schema import close_schema, is_strict


class ResponsesCodec:
    """Requests and answers of `/responses`."""

    path = "/responses"
    headers: dict[str, str] = {}

    def __init__(self, endpoint: Endpoint, info: ModelInfo) -> None:
        """Start with nothing encoded."""
        self._endpoint = endpoint
        self._info = info
        self._tools = EncodedCache()
        self._transcript = WireTranscript(self)
        self._marks = endpoint.marks_cache
        self._cache_key = CacheKey()

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life.

        Raises:
            LLMBadRequest: stop sequences, which this API does not have.
        """
        if request.stop:
            detail = "the Responses API has no stop sequences"
            raise LLMBadRequest(provider=self._endpoint.provider, detail=detail)
        data, _ = self._transcript.pieces(request.messages)
        settings = encode_json(self._describe_settings(request, stream))
        return b"".join((b'{"input":[', data, b"],", settings[1:]))

    def decoder(self) -> ResponsesDecoder:
        """Return a decoder for one streamed answer."""
        return ResponsesDecoder(self._endpoint, self._info.model)

    def decode(self, body: bytes) -> Answer:
        """Return the answer that came as one body."""
        decoder = self.decoder()
        decoder.take_body(body)
        return decoder.finish()

    def _describe_settings(self, request: ModelRequest, stream: bool) -> JsonObject:
        made: JsonObject = {"model": self._info.model, "stream": stream, "store": False}
        if request.system:
            made["instructions"] = request.system
        if request.tools:
            tools = self._tools.fragments((request.tools,), _render_tools)[0]
            made["tools"] = msgspec.Raw(tools.data)
            made["tool_choice"] = _render_tool_choice(request.tool_choice)
        if request.output_schema is not None:
            schema = close_schema(request.output_schema)
            form = {"type": "json_schema", "name": request.output_name}
            made["text"] = {"format": {**form, "schema": schema, "strict": is_strict(schema)}}
        if self._marks:
            made["prompt_cache_key"] = self._cache_key.find(request)
        if request.temperature is not None:
            made["temperature"] = request.temperature
        if request.top_p is not None:
            made["top_p"] = request.top_p
        if request.max_output_tokens is not None:
            made["max_output_tokens"] = request.max_output_tokens
        if request.reasoning_effort:
            made["reasoning"] = {"effort": request.reasoning_effort}
            made["include"] = ["reasoning.encrypted_content"]
        if request.options.get("background"):
            # What is asked for again has to be kept there until then.
            made["store"] = True
        made.update(request.options)
        return made

    # --- how messages follow each other -----------------------------------------------

    def add(self, data: bytearray, fragments: Iterable[Fragment], state: bytes) -> bytes:
        """Append the items of messages."""
        for fragment in fragments:
            if fragment.data:
                data += b"," + fragment.data if data else fragment.data
        return state

    def end(self, data: bytearray, state: bytes) -> bytes:
        """Return nothing: items need no end."""
        return state

    def fragment(self, message: Message) -> Fragment:
        """Return one message as bytes."""
        items: list[JsonObject]
        if message.role == "assistant":
            items = self._render_assistant(message)
        elif message.role == "tool":
            items = [self._make_result(p) for p in message.parts if isinstance(p, ToolPart)]
        elif message.role == "system":
            text = "\n".join(read_text_of(message.parts))
            items = [{"type": "message", "role": "developer", "content": text}]
        else:
            content = self._render_content(message)
            items = [{"type": "message", "role": "user", "content": content}] if content else []
        return Fragment(message.role, b",".join(encode_json(item) for item in items))

    def _render_assistant(self, message: Message) -> list[JsonObject]:
        is_ours = message.provider in ("", self._endpoint.provider)
        phases = message.metadata.get(PHASES)
        waiting = list(phases) if isinstance(phases, list | tuple) and is_ours else []
        items: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, ReasoningPart) and is_ours and part.encrypted and part.signature:
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                made = {"type": "reasoning", "id": part.signature, "summary": summary}
                items.append({**made, "encrypted_content": part.encrypted})
            elif isinstance(part, TextPart) and part.text:
                phase = waiting.pop(0) if waiting else None
                said = _render_said(part.text)
                items.append({**said, "phase": phase} if phase else said)
            elif isinstance(part, CompactionPart) and part.summary:
                items.append(_render_said(part.summary))
            elif isinstance(part, ToolPart):
                arguments = encode_json(call_input(part)).decode()
                name = part.tool if is_sendable_name(part.tool) else make_sent_name(part.tool)
                call = {"type": "function_call", "call_id": _get_id(part), "name": name}
                items.append({**call, "arguments": arguments})
        return items

    def _make_result(self, part: ToolPart) -> JsonObject:
        text = render_result(part)
        output: str | list[JsonObject] = text
        if part.attachments:
            head = [{"type": "input_text", "text": text}] if text else []
            output = [*head, *(self._render_file(file) for file in part.attachments)]
        return {"type": "function_call_output", "call_id": _get_id(part), "output": output}

    def _render_content(self, message: Message) -> list[JsonObject]:
        made: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, FilePart):
                made.append(self._render_file(part))
            else:
                made.extend({"type": "input_text", "text": text} for text in read_text_of((part,)))
        return made

    def _render_file(self, part: FilePart) -> JsonObject:
        check_file(self._endpoint.provider, part)
        if part.media_type.startswith("image/"):
            return {"type": "input_image", "detail": "auto", "image_url": make_data_url(part)}
        text = inline_text(part)
        if text is not None:
            return {"type": "input_text", "text": text}
        if part.media_type.startswith("audio/"):
            raise make_unsupported(self._info, part)
        if part.url and not part.url.startswith("data:"):
            return {"type": "input_file", "file_url": part.url}
        return {
            "type": "input_file",
            "filename": part.name or "file",
            "file_data": make_data_url(part),
        }


def _render_said(text: str) -> JsonObject:
    """Return what the model said as it was sent; llama.cpp refuses a plain string there."""
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content}


def _get_id(part: ToolPart) -> str:
    return part.call_id if is_sendable_id(part.call_id) else make_sent_id(part.call_id)


def _render_tools(tools: tuple[ToolSpec, ...]) -> Fragment:
    made: list[Any] = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description}
        # Strict is this API's default, and would rewrite schemas that have options.
        more = {"parameters": tool.parameters, "strict": False}
        made.append({"type": "function", **function, **more})
    return Fragment("tools", encode_json(made))


def _render_tool_choice(choice: str) -> str | JsonObject:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}
