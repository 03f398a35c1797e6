"""Answers of Chat Completions, put together from chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import LLMError, LLMOverloaded, LLMProtocolError
from holdfast.messages import Part, ReasoningPart, TextPart, TokenUsage, ToolPart
from holdfast.providers.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.wire.codec import (
    MAX_TOOL_CALLS,
    UNREADABLE,
    Answer,
    CallPieces,
    Count,
    count,
    decode_object,
    encode_json,
    split_usage,
    tool_part,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import failure_in_answer
from holdfast.providers.wire.repeats import Pieces, Repeats

_STOPS = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "filtered",
}
_BROKEN_OFF = {"error", "insufficient_system_resource"}
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_NOTHING = msgspec.Raw(b"null")


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


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


_decode = msgspec.json.Decoder(_Chunk).decode
_decode_usage = msgspec.json.Decoder(_Usage | None).decode


class ChatDecoder:
    """Puts one streamed answer together.

    Rescued: a missing `[DONE]` after a finish reason; a tool call without id, without
    index, with the index of another call, or with arguments as an object; a finish
    reason that denies the tool calls. Not rescued: an end without finish reason, and
    a tool call without name.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """Start before the first chunk."""
        self.done = False
        self.begun = False
        self._endpoint = endpoint
        self._model = model
        self._text = Pieces()
        self._thoughts = Pieces()
        self._repeats = Repeats()
        self._calls: list[CallPieces] = []
        self._by_index: dict[int, int] = {}
        self._finish = ""
        self._refused = False
        self._usage = _NOTHING
        self._id = ""
        self._served = ""

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take chunks in order; append a delta per piece to `out` if somebody listens."""
        repeats, at = self._repeats, 0
        while at < len(events):
            if repeats.is_known and (at := repeats.take(events, at, out)) == len(events):
                break
            event = events[at]
            at += 1
            if event[:1] != b"{" and event.strip() == b"[DONE]":
                self.done = True
                return
            try:
                chunk = _decode(event)
            except UNREADABLE as error:
                raise _unreadable(self._endpoint, error) from None
            self._take(chunk, event, out)
            if repeats.wants():
                self._learn(chunk, event)

    def finish(self) -> Answer:
        """Return the whole answer."""
        if not self._finish:
            raise _unfinished(self._endpoint)
        parts: list[Part] = []
        thoughts, text = self._thoughts.text(), self._text.text()
        if thoughts:
            parts.append(ReasoningPart(text=thoughts))
        if text:
            parts.append(TextPart(text=text))
        parts += [call.part(self._endpoint.provider) for call in self._calls]
        return Answer(
            parts=tuple(parts),
            stop_reason=_stop_reason(
                self._endpoint.provider, self._finish, self._refused, has_calls=bool(self._calls)
            ),
            usage=_usage(self._usage),
            response_id=self._id,
            model=self._served,
            metadata={},
        )

    def _take(self, chunk: _Chunk, event: bytes, out: list[Delta] | None) -> None:
        if chunk.error is not _NOTHING and chunk.error != _NOTHING:
            raise failure_in_answer(self._endpoint, self._model, event)
        if chunk.usage is not _NOTHING and chunk.usage != _NOTHING:
            # A copy: the raw value would keep the whole event alive.
            self._usage = chunk.usage.copy()
        if not self._id and chunk.id:
            self._id = chunk.id
            self._served = chunk.model or ""
        for choice in chunk.choices or ():
            if choice.index != 0:
                continue
            delta = choice.delta or choice.message
            if delta is not None:
                self._piece(delta, out)
            if choice.finish_reason:
                self._finish = choice.finish_reason

    def _piece(self, delta: _Delta, out: list[Delta] | None) -> None:
        content = delta.content
        if content:
            if isinstance(content, str):
                self._say(content, out)
            else:
                self._mixed(content, out)
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._think(thought, out)
        if delta.refusal:
            self._refused = True
            self._say(delta.refusal, out)
        for call in delta.tool_calls or ():
            self._call(call, out)

    def _say(self, text: str, out: list[Delta] | None) -> None:
        self.begun = True
        self._text.add(text)
        if out is not None:
            out.append(TextDelta(text))

    def _think(self, text: str, out: list[Delta] | None) -> None:
        self.begun = True
        self._thoughts.add(text)
        if out is not None:
            out.append(ReasoningDelta(text))

    def _mixed(self, content: list[Any], out: list[Delta] | None) -> None:
        for is_thought, text in _pieces_in(content):
            if is_thought:
                self._think(text, out)
            else:
                self._say(text, out)

    def _call(self, call: _Call, out: list[Delta] | None) -> None:
        self.begun = True
        function = call.function or _Function()
        name, call_id = function.name or "", call.id or ""
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = encode_json(arguments).decode()
        position = None
        if call.index is not None and not (call_id or name):
            position = self._by_index.get(call.index)
        if position is None:
            position = self._position(call.index, call_id, name)
        current = self._calls[position]
        if arguments:
            current.pieces.add(arguments)
        if out is not None and (name or arguments):
            out.append(ToolCallDelta(position, current.call_id, name, arguments))

    def _position(self, index: int | None, call_id: str, name: str) -> int:
        """Find the call that a piece belongs to, or begin a new one."""
        if index is None:
            # Without index a piece that names a function begins a call.
            known = None if name or not self._calls else len(self._calls) - 1
        else:
            known = self._by_index.get(index)
        if known is not None:
            current = self._calls[known]
            is_other = bool(call_id and current.call_id and call_id != current.call_id)
            if not (is_other and name):
                current.call_id = current.call_id or call_id
                current.name = current.name or name
                return known
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise _too_many(self._endpoint)
        self._calls.append(CallPieces(call_id, name))
        position = len(self._calls) - 1
        if index is not None:
            self._by_index[index] = position
        return position

    def _learn(self, chunk: _Chunk, event: bytes) -> None:
        """Prepare to find the pieces of chunks like this one without decoding them."""
        only = _only_piece(chunk)
        if only is None:
            return
        delta: Callable[[str], Delta]
        if only.name == "arguments":
            position = self._by_index[only.call]
            call = self._calls[position]
            target, delta = call.pieces, partial(ToolCallDelta, position, call.call_id, "")
        elif only.name.startswith("reasoning"):
            target, delta = self._thoughts, ReasoningDelta
        else:
            target, delta = self._text, TextDelta
        self._repeats.learn(event, only.name, _piece_in, target=target, delta=delta)


def whole_answer(endpoint: Endpoint, model: str, body: bytes) -> Answer:
    """Return an answer that came as one body.

    Rescued: a missing finish reason, since a body is whole by its length, and a tool call
    without id or with arguments as an object. Not rescued: a tool call without name.

    Raises:
        LLMError: it reports a failure, or cannot be read.
    """
    try:
        chunk = _decode(body)
    except UNREADABLE as error:
        raise _unreadable(endpoint, error) from None
    if chunk.choices is None or (chunk.error is not _NOTHING and chunk.error != _NOTHING):
        raise failure_in_answer(endpoint, model, body)
    if not chunk.choices:
        raise _unfinished(endpoint)
    choice = chunk.choices[0]
    if choice.index != 0:
        choice = next((each for each in chunk.choices if each.index == 0), _Choice())
    said = choice.message or choice.delta or _Delta()
    content, thoughts = said.content or "", said.reasoning_content or said.reasoning or ""
    if not isinstance(content, str):
        pieces = list(_pieces_in(content))
        content = "".join(text for is_thought, text in pieces if not is_thought)
        thoughts = "".join(text for is_thought, text in pieces if is_thought) + thoughts
    if said.refusal:
        content += said.refusal
    parts: list[Part] = []
    if thoughts:
        parts.append(ReasoningPart(text=thoughts))
    if content:
        parts.append(TextPart(text=content))
    calls = said.tool_calls or []
    if len(calls) > MAX_TOOL_CALLS:
        raise _too_many(endpoint)
    for call in calls:
        parts.append(_whole_call(endpoint, call))
    finish = choice.finish_reason or "stop"
    return Answer(
        tuple(parts),
        _stop_reason(endpoint.provider, finish, bool(said.refusal), has_calls=bool(calls)),
        _usage(chunk.usage),
        chunk.id or "",
        chunk.model or "" if chunk.id else "",
        {},
    )


def _whole_call(endpoint: Endpoint, call: _Call) -> ToolPart:
    function = call.function or _Function()
    arguments = function.arguments or ""
    if not isinstance(arguments, str):
        arguments = encode_json(arguments).decode()
    return tool_part(endpoint.provider, call.id or "", function.name or "", arguments)


def _pieces_in(content: list[Any]) -> Iterator[tuple[bool, str]]:
    """Yield texts and thoughts; Mistral sends content as a list when the model thinks."""
    for item in content:
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("text"), str):
            yield False, item["text"]
        for thought in item.get("thinking") or ():
            if isinstance(thought, dict) and isinstance(thought.get("text"), str):
                yield True, thought["text"]


def _too_many(endpoint: Endpoint) -> LLMError:
    detail = f"it makes more than {MAX_TOOL_CALLS} tool calls at once"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def _stop_reason(provider: str, finish: str, refused: bool, *, has_calls: bool) -> str:
    if finish in _BROKEN_OFF:
        raise LLMOverloaded(provider=provider, detail=f"it broke off with {finish!r}")
    if refused:
        return "filtered"
    reason = _STOPS.get(finish, "stop")
    if reason in ("stop", "tool_calls"):
        return "tool_calls" if has_calls else "stop"
    return reason


def _unfinished(endpoint: Endpoint) -> LLMError:
    detail = "the answer ended without a finish reason"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def _unreadable(endpoint: Endpoint, error: Exception) -> LLMError:
    detail = f"a piece is no chat completion ({type(error).__name__})"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


class _OnlyPiece(NamedTuple):
    """All that a chunk adds to the answer: a piece, its field, and the index of its call."""

    name: str
    text: str
    call: int = 0


def _only_piece(chunk: _Chunk) -> _OnlyPiece | None:
    if not chunk.choices or len(chunk.choices) > 1 or chunk.choices[0].index != 0:
        return None
    delta = chunk.choices[0].delta
    if delta is None:
        return None
    name, text = "", None
    for each in _TEXTS:
        if value := getattr(delta, each):
            if text is not None:
                return None
            name, text = each, value
    calls = delta.tool_calls
    if text is not None:
        return _OnlyPiece(name, text) if isinstance(text, str) and not calls else None
    if not calls or len(calls) > 1:
        return None
    index, function = calls[0].index, calls[0].function
    if index is None or calls[0].id or function is None or function.name:
        return None
    pieces = function.arguments
    return _OnlyPiece("arguments", pieces, index) if pieces and isinstance(pieces, str) else None


def _piece_in(event: bytes) -> str | None:
    only = _only_piece(_decode(event))
    return only.text if only is not None else None


def _usage(raw: msgspec.Raw) -> TokenUsage | None:
    try:
        found = _decode_usage(raw)
    except UNREADABLE:
        found = _odd_usage(raw)
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


def _odd_usage(raw: msgspec.Raw) -> _Usage | None:
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
