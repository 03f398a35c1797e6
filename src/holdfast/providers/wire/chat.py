"""OpenAI Chat Completions, as OpenAI and the many compatible servers speak it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMBadRequest, LLMError, LLMOverloaded, LLMProtocolError
from holdfast.messages import (
    CompactionPart,
    FilePart,
    Message,
    ModelRefusal,
    Part,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
    ToolSpec,
)
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.providers.wire.citations import read_citations
from holdfast.providers.wire.codec import (
    MAX_TOOL_CALLS,
    UNREADABLE,
    Answer,
    CacheKey,
    Count,
    EncodedCache,
    Fragment,
    WireTranscript,
    call_input,
    check_file,
    count,
    decode_object,
    decode_whole,
    encode_json,
    inline_text,
    is_sendable_id,
    is_sendable_name,
    make_data_url,
    make_sent_id,
    make_sent_name,
    make_tool_part,
    make_unsupported,
    read_text_of,
    render_result,
    split_usage,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import find_failure_in_answer
from holdfast.providers.wire.schema import close_schema, is_strict

if TYPE_CHECKING:
    from holdfast.providers.wire.chat_stream import ChatDecoder

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_STOPS = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "filtered",
}
_BROKEN_OFF = {"error", "insufficient_system_resource"}
NOTHING = msgspec.Raw(b"null")


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
        self._marks = endpoint.marks_cache
        self._cache_key = CacheKey()
        self.decode = partial(read_whole_answer, endpoint, info.model)
        """Return the answer that came as one body."""
        self._frame = _Frame("", (), b"", b"", b"")

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life."""
        data, end = self._transcript.pieces(request.messages)
        # As bytes, because what is in them could be changed in its place by the caller that asks.
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
            frame = self._frame = self._frame_body(request, stream, wishes)
        comma = b"," if frame.system and (data or end) else b""
        return b"".join((frame.start, comma, data, end, frame.rest))

    def decoder(self) -> ChatDecoder:
        """Return a decoder for one streamed answer."""
        # Loaded with the first streamed answer; it needs what is in this file.
        from holdfast.providers.wire.chat_stream import ChatDecoder  # noqa: PLC0415

        return ChatDecoder(self._endpoint, self._info.model)

    def _frame_body(self, request: ModelRequest, stream: bool, wishes: bytes) -> _Frame:
        start = b'{"messages":['
        if request.system:
            start += encode_json({"role": "system", "content": request.system})
        rest = b"]," + encode_json(self._describe_settings(request, stream))[1:]
        return _Frame(request.system, request.tools, wishes, start, rest)

    def _describe_settings(self, request: ModelRequest, stream: bool) -> JsonObject:
        made: JsonObject = {"model": self._info.model, "stream": stream}
        if stream:
            made["stream_options"] = {"include_usage": True}
        if request.tools:
            tools = self._tools.fragments((request.tools,), _render_tools)[0]
            made["tools"] = msgspec.Raw(tools.data)
            made["tool_choice"] = _render_tool_choice(request.tool_choice)
        if request.output_schema is not None:
            schema = close_schema(request.output_schema)
            form = {"name": request.output_name, "schema": schema, "strict": is_strict(schema)}
            made["response_format"] = {"type": "json_schema", "json_schema": form}
        if self._marks:
            made["prompt_cache_key"] = self._cache_key.find(request)
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
            return Fragment("assistant", self._render_assistant(message))
        if message.role == "tool":
            return self._encode_results(message)
        if message.role == "system":
            text = "\n".join(read_text_of(message.parts))
            return Fragment("system", encode_json({"role": "system", "content": text}))
        content: str | list[JsonObject]
        if not any([isinstance(part, FilePart) for part in message.parts]):
            content = "\n".join(read_text_of(message.parts))
        else:
            content = self._with_files(message)
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

    def _render_assistant(self, message: Message) -> bytes:
        texts, calls, thoughts = [], [], []
        for part in message.parts:
            if isinstance(part, ToolPart):
                name = part.tool if is_sendable_name(part.tool) else make_sent_name(part.tool)
                call_id = (
                    part.call_id if is_sendable_id(part.call_id) else make_sent_id(part.call_id)
                )
                given = call_input(part) if part.raw_input else part.input
                function = {"name": name, "arguments": encode_json(given).decode()}
                calls.append({"id": call_id, "type": "function", "function": function})
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

    def _encode_results(self, message: Message) -> Fragment:
        """Tool messages hold text only, so attachments follow in a user message."""
        results, attached = [], []
        for part in message.parts:
            if not isinstance(part, ToolPart):
                continue
            call_id = part.call_id if is_sendable_id(part.call_id) else make_sent_id(part.call_id)
            text = render_result(part) if part.error else part.output
            made = {"role": "tool", "tool_call_id": call_id, "content": text}
            results.append(encode_json(made))
            if part.attachments:
                attached.append({"type": "text", "text": f"Files that {part.tool} returned:"})
                attached.extend(self._render_file(file) for file in part.attachments)
        tail = encode_json({"role": "user", "content": attached}) if attached else b""
        return Fragment("tool", b",".join(results), tail)

    def _with_files(self, message: Message) -> list[JsonObject]:
        made: list[JsonObject] = []
        for part in message.parts:
            if isinstance(part, FilePart):
                made.append(self._render_file(part))
            elif isinstance(part, TextPart) and part.text:
                made.append({"type": "text", "text": part.text})
        return made

    def _render_file(self, part: FilePart) -> JsonObject:
        check_file(self._endpoint.provider, part)
        if part.media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": make_data_url(part)}}
        text = inline_text(part)
        if text is not None:
            return {"type": "text", "text": text}
        if part.url and not part.url.startswith("data:"):
            detail = f"the chat API takes only images by address, not {part.media_type}"
            raise LLMBadRequest(provider=self._endpoint.provider, detail=detail)
        if part.media_type in _AUDIO:
            data = make_data_url(part).partition(",")[2]
            return {
                "type": "input_audio",
                "input_audio": {"data": data, "format": _AUDIO[part.media_type]},
            }
        if part.media_type.startswith("audio/"):
            raise make_unsupported(self._info, part)
        return {
            "type": "file",
            "file": {"filename": part.name or "file", "file_data": make_data_url(part)},
        }


def _render_tools(tools: tuple[ToolSpec, ...]) -> Fragment:
    made: list[Any] = []
    for tool in tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        made.append({"type": "function", "function": function})
    return Fragment("tools", encode_json(made))


def _render_tool_choice(choice: str) -> str | JsonObject:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


# --- answers ----------------------------------------------------------------------------


class Function(msgspec.Struct, gc=False):
    """What a call calls."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ChatCall(msgspec.Struct, gc=False):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Said(msgspec.Struct, gc=False):
    """What the model says: all of it, or a piece."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: Any = None
    tool_calls: list[ChatCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers; only the first is ever asked for."""

    index: int = 0
    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    """A whole answer, or one chunk of a streamed one."""

    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None
    reasoning_tokens: Count = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_cache_hit_tokens: Count = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
_decode_usage = msgspec.json.Decoder(_Usage | None).decode


def read_whole_answer(endpoint: Endpoint, model: str, body: bytes) -> Answer:
    """Return an answer that came as one body.

    Rescued: a missing finish reason, since a body is whole by its length, and a tool call
    without id or with arguments as an object. Not rescued: a tool call without name.

    Raises:
        LLMError: it reports a failure, or cannot be read.
    """
    try:
        chunk = decode_chunk(body)
    except UNREADABLE:
        chunk = _mend(endpoint, body)
    if chunk.choices is None or (chunk.error is not NOTHING and chunk.error != NOTHING):
        raise find_failure_in_answer(endpoint, model, body)
    if not chunk.choices:
        raise make_unfinished(endpoint)
    choice = chunk.choices[0]
    if choice.index != 0:
        choice = next((each for each in chunk.choices if each.index == 0), Choice())
    said = choice.message or choice.delta or Said()
    content, thoughts = said.content or "", said.reasoning_content or said.reasoning or ""
    if not isinstance(content, str):
        pieces = list(iterate_pieces(content))
        content = "".join(text for is_thought, text in pieces if not is_thought)
        thoughts = "".join(text for is_thought, text in pieces if is_thought) + thoughts
    if said.refusal:
        content += said.refusal
    parts: list[Part] = []
    if thoughts:
        parts.append(ReasoningPart(text=thoughts))
    if content:
        cited = read_citations(said.annotations) if said.annotations else ()
        parts.append(TextPart(text=content, citations=cited))
    calls = said.tool_calls or []
    if len(calls) > MAX_TOOL_CALLS:
        raise make_too_many_error(endpoint)
    for call in calls:
        function = call.function or Function()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = encode_json(arguments).decode()
        parts.append(
            make_tool_part(endpoint.provider, call.id or "", function.name or "", arguments)
        )
    finish = choice.finish_reason or "stop"
    return Answer(
        tuple(parts),
        stop_reason_of(endpoint.provider, finish, bool(said.refusal), has_calls=bool(calls)),
        find_usage(chunk.usage),
        chunk.id or "",
        (chunk.model or "") if chunk.id else "",
        {},
        ModelRefusal(text=said.refusal) if said.refusal else None,
    )


def _mend(endpoint: Endpoint, body: bytes) -> Chunk:
    """Read a body in which a character may be cut in half."""
    try:
        return decode_whole(decode_chunk, body)
    except UNREADABLE as error:
        raise report_unreadable(endpoint, error) from None


def iterate_pieces(content: list[Any]) -> Iterator[tuple[bool, str]]:
    """Yield texts and thoughts; Mistral sends content as a list when the model thinks."""
    for item in content:
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("text"), str):
            yield False, item["text"]
        for thought in item.get("thinking") or ():
            if isinstance(thought, dict) and isinstance(thought.get("text"), str):
                yield True, thought["text"]


def make_too_many_error(endpoint: Endpoint) -> LLMError:
    """Return the error of an answer that no model can mean."""
    detail = f"it makes more than {MAX_TOOL_CALLS} tool calls at once"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def stop_reason_of(provider: str, finish: str, refused: bool, *, has_calls: bool) -> str:
    """Return why an answer ended; its tool calls count for more than what it says.

    Raises:
        LLMOverloaded: the server gave up in the middle.
    """
    if finish in _BROKEN_OFF:
        raise LLMOverloaded(provider=provider, detail=f"it broke off with {finish!r}")
    if refused:
        return "filtered"
    reason = _STOPS.get(finish, "stop")
    if reason in ("stop", "tool_calls"):
        return "tool_calls" if has_calls else "stop"
    return reason


def make_unfinished(endpoint: Endpoint) -> LLMError:
    """Return the error of an answer that does not say why it ends."""
    detail = "the answer ended without a finish reason"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def report_unreadable(endpoint: Endpoint, error: Exception) -> LLMError:
    """Return the error of what is no JSON, or not of this API."""
    detail = f"a piece is no chat completion ({type(error).__name__})"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def find_usage(raw: msgspec.Raw) -> TokenUsage | None:
    """Return the token counts of an answer, if it has some."""
    try:
        found = _decode_usage(raw)
    except UNREADABLE:
        found = _detect_odd_usage(raw)
    if found is None:
        return None
    into, out = found.prompt_tokens_details, found.completion_tokens_details
    total_in, total_out = found.prompt_tokens or 0, found.completion_tokens or 0
    reasoning = (out.reasoning_tokens if out is not None else 0) or 0
    # xAI leaves reasoning out of the completion tokens; its total gives that away.
    if reasoning and found.total_tokens == total_in + total_out + reasoning:
        total_out += reasoning
    return split_usage(
        total_in,
        total_out,
        reasoning=reasoning,
        cache_read=(into.cached_tokens if into is not None else 0)
        or found.prompt_cache_hit_tokens
        or 0,
        cache_write=(into.cache_write_tokens if into is not None else 0) or 0,
    )


def _detect_odd_usage(raw: msgspec.Raw) -> _Usage | None:
    """Take what can be counted of a usage in which something is no count."""
    data = decode_object(raw)
    if data is None:
        return None
    made = _Usage(
        prompt_tokens=count(data.get("prompt_tokens")),
        completion_tokens=count(data.get("completion_tokens")),
        total_tokens=count(data.get("total_tokens")),
        prompt_cache_hit_tokens=count(data.get("prompt_cache_hit_tokens")),
    )
    into, out = data.get("prompt_tokens_details"), data.get("completion_tokens_details")
    if isinstance(into, dict):
        made.prompt_tokens_details = _Details(
            cached_tokens=count(into.get("cached_tokens")),
            cache_write_tokens=count(into.get("cache_write_tokens")),
        )
    if isinstance(out, dict):
        made.completion_tokens_details = _Details(
            reasoning_tokens=count(out.get("reasoning_tokens"))
        )
    return made
