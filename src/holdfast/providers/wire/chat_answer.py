"""Answers of Chat Completions: what stands in them, and those that come as one body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.errors import LLMError, LLMOverloaded, LLMProtocolError
from holdfast.messages import Part, ReasoningPart, TextPart, TokenUsage
from holdfast.providers.wire.codec import (
    MAX_TOOL_CALLS,
    UNREADABLE,
    Answer,
    Count,
    count,
    decode_object,
    decode_whole,
    encode_json,
    split_usage,
    tool_part,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import failure_in_answer

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


def whole_answer(endpoint: Endpoint, model: str, body: bytes) -> Answer:
    """Return an answer that came as one body.

    Rescued: a missing finish reason, since a body is whole by its length, and a tool call
    without id or with arguments as an object. Not rescued: a tool call without name.

    Raises:
        LLMError: it reports a failure, or cannot be read.
    """
    try:
        chunk = decode_chunk(body)
    except UNREADABLE:
        chunk = _mended(endpoint, body)
    if chunk.choices is None or (chunk.error is not NOTHING and chunk.error != NOTHING):
        raise failure_in_answer(endpoint, model, body)
    if not chunk.choices:
        raise unfinished(endpoint)
    choice = chunk.choices[0]
    if choice.index != 0:
        choice = next((each for each in chunk.choices if each.index == 0), Choice())
    said = choice.message or choice.delta or Said()
    content, thoughts = said.content or "", said.reasoning_content or said.reasoning or ""
    if not isinstance(content, str):
        pieces = list(pieces_in(content))
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
        raise too_many(endpoint)
    for call in calls:
        function = call.function or Function()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = encode_json(arguments).decode()
        parts.append(tool_part(endpoint.provider, call.id or "", function.name or "", arguments))
    finish = choice.finish_reason or "stop"
    return Answer(
        tuple(parts),
        stop_reason_of(endpoint.provider, finish, bool(said.refusal), has_calls=bool(calls)),
        usage_of(chunk.usage),
        chunk.id or "",
        (chunk.model or "") if chunk.id else "",
        {},
    )


def _mended(endpoint: Endpoint, body: bytes) -> Chunk:
    """Read a body in which a character may be cut in half."""
    try:
        return decode_whole(decode_chunk, body)
    except UNREADABLE as error:
        raise unreadable(endpoint, error) from None


def pieces_in(content: list[Any]) -> Iterator[tuple[bool, str]]:
    """Yield texts and thoughts; Mistral sends content as a list when the model thinks."""
    for item in content:
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("text"), str):
            yield False, item["text"]
        for thought in item.get("thinking") or ():
            if isinstance(thought, dict) and isinstance(thought.get("text"), str):
                yield True, thought["text"]


def too_many(endpoint: Endpoint) -> LLMError:
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


def unfinished(endpoint: Endpoint) -> LLMError:
    """Return the error of an answer that does not say why it ends."""
    detail = "the answer ended without a finish reason"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def unreadable(endpoint: Endpoint, error: Exception) -> LLMError:
    """Return the error of what is no JSON, or not of this API."""
    detail = f"a piece is no chat completion ({type(error).__name__})"
    return LLMProtocolError(provider=endpoint.provider, detail=detail)


def usage_of(raw: msgspec.Raw) -> TokenUsage | None:
    """Return the token counts of an answer, if it has some."""
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
