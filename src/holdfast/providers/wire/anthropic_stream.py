"""Answers of Anthropic Messages, put together from events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMError, LLMProtocolError
from holdfast.messages import ModelRefusal, Part, ReasoningPart, TextPart, TokenUsage, ToolPart
from holdfast.providers.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.wire.citations import read_citations
from holdfast.providers.wire.codec import (
    MAX_CITATIONS,
    MAX_TOOL_CALLS,
    PAUSED,
    UNREADABLE,
    Answer,
    Halves,
    count,
    decode_whole,
    make_tool_part,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import find_failure_in_answer
from holdfast.providers.wire.repeats import Pieces, Repeats

_STOPS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "filtered",
}
_PAUSE = "pause_turn"
_REFUSAL = "refusal"
_OURS = ("text", "thinking", "redacted_thinking", "tool_use")
"""Types of blocks that become parts; what the provider's own tools leave is of others."""

_PIECES = ("text", "partial_json", "thinking")
"""In the order in which `_piece` takes the first one that is there."""

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens_details",
)


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    citations: Any = None


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    citation: Any = None
    container: Any = None


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    type: str = ""
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    stop_details: Any = None
    container: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = -1
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_body = msgspec.json.Decoder(_Message).decode
_decode_any = msgspec.json.Decoder().decode


class _Open:
    """A content block while it grows."""

    __slots__ = ("block", "citations", "closed", "foreign", "pieces", "signature")

    def __init__(self, block: _Block) -> None:
        self.block = block
        self.pieces = Pieces([block.text or block.thinking or ""])
        self.signature: list[str] = [block.signature or ""]
        self.citations: list[Any] = block.citations if isinstance(block.citations, list) else []
        self.foreign: JsonObject | None = None
        """A block of the provider's own tools, as it came."""
        self.closed = False


class AnthropicDecoder:
    """Puts one streamed answer together.

    Rescued: a missing `message_stop` after the stop reason came. Not rescued: pieces
    for a block that never began or has ended, two blocks with one index, an end
    without stop reason, a tool call without name.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """Start before the first event."""
        self.done = False
        self.begun = False
        self.open_id = ""
        self._endpoint = endpoint
        self._model = model
        self._id = ""
        self._served = ""
        self._blocks: dict[int, _Open] = {}
        self._repeats = Repeats()
        self._halves = Halves()
        self._stop = ""
        self._usage: JsonObject = {}
        self._started = False
        self._container: Any = None
        self._stop_details: Any = None

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take events in order; append what is said to `out` if a subscriber listens."""
        repeats = self._repeats
        for event in repeats.others(events, out):
            try:
                parsed = _decode(event)
            except UNREADABLE:
                parsed = self._halves.decode(_decode, event, self._report_unreadable)
            self._take(parsed, event, out)
            if self.done:
                return
            if repeats.wants:
                self._learn(parsed, event)

    def take_body(self, body: bytes) -> None:
        """Take an answer that came as one body."""
        try:
            message = decode_whole(_decode_body, body)
        except UNREADABLE as error:
            raise self._report_unreadable(error) from None
        if message.type == "error" or message.content is None:
            raise find_failure_in_answer(self._endpoint, self._model, body)
        self._begin(message)
        for index, block in enumerate(message.content):
            self._blocks[index] = opened = _Open(block)
            if block.input is not None:
                opened.pieces.add(msgspec.json.encode(block.input).decode())
        self._stop = message.stop_reason or ""
        self._stop_details = message.stop_details
        if self._stop == _PAUSE:
            for index, block in enumerate(self._read_again(body)["content"]):
                self._keep_foreign(index, block)

    def finish(self) -> Answer:
        """Return the whole answer."""
        if not self._started or not self._stop:
            raise self._mark_broken("the answer ended without a stop reason")
        parts = [made for index in sorted(self._blocks) for made in self._render_part(index)]
        has_calls = any(isinstance(part, ToolPart) for part in parts)
        reason = _STOPS.get(self._stop, "stop")
        if reason in ("stop", "tool_calls"):
            reason = "tool_calls" if has_calls else "stop"
        sent_back = None
        # Calls have to be answered before anything goes on.
        if self._stop == _PAUSE and not has_calls:
            sent_back = self._render_back()
            reason = PAUSED if sent_back else reason
        return Answer(
            parts=tuple(parts),
            stop_reason=reason,
            usage=_read_usage(self._usage),
            response_id=self._id,
            model=self._served,
            metadata={},
            refusal=_read_refusal(self._stop_details) if self._stop == _REFUSAL else None,
            sent_back=sent_back,
        )

    def _take(self, event: _Event, data: bytes, out: list[Delta] | None) -> None:
        kind = event.type
        if kind == "content_block_delta":
            if event.delta is not None:
                self._take_piece(event.index, event.delta, out)
        elif kind == "content_block_start":
            self._start_block(event, out)
            if event.content_block is not None and event.content_block.type not in _OURS:
                self._keep_foreign(event.index, self._read_again(data)["content_block"])
        elif kind == "content_block_stop":
            self._block(event.index).closed = True
        elif kind == "message_start" and event.message is not None:
            if self._started:
                raise self._mark_broken("two answers are mixed in one stream")
            self._begin(event.message)
        elif kind == "message_delta":
            if event.delta is not None and event.delta.stop_reason:
                self._stop = event.delta.stop_reason
                self._stop_details = event.delta.stop_details
                self._container = event.delta.container or self._container
            self._count(event.usage)
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" or not kind:
            raise find_failure_in_answer(self._endpoint, self._model, data)

    def _begin(self, message: _Message) -> None:
        self._started = True
        self._id = message.id or ""
        self._served = message.model or ""
        self._container = message.container
        self._count(message.usage)

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are cumulative, so later ones replace earlier ones."""
        for name in _COUNTS:
            if usage and usage.get(name) is not None:
                self._usage[name] = usage[name]

    def _start_block(self, event: _Event, out: list[Delta] | None) -> None:
        block = event.content_block
        if block is None or event.index in self._blocks or not self._started:
            raise self._mark_broken("its content blocks are mixed up")
        if len(self._blocks) >= MAX_TOOL_CALLS:
            raise self._mark_broken(f"it has more than {MAX_TOOL_CALLS} content blocks")
        self.begun = True
        self._blocks[event.index] = _Open(block)
        if out is None:
            return
        if block.type == "tool_use":
            out.append(ToolCallDelta(event.index, block.id or "", block.name or "", ""))
        elif block.text:
            out.append(TextDelta(block.text))
        elif block.thinking:
            out.append(ReasoningDelta(block.thinking))

    def _take_piece(self, index: int, delta: _Delta, out: list[Delta] | None) -> None:
        opened = self._block(index)
        if delta.text is not None:
            opened.pieces.add(delta.text)
            if out is not None and delta.text:
                out.append(TextDelta(delta.text))
        elif delta.partial_json is not None:
            opened.pieces.add(delta.partial_json)
            if out is not None and delta.partial_json:
                out.append(ToolCallDelta(index, opened.block.id or "", "", delta.partial_json))
        elif delta.thinking is not None:
            opened.pieces.add(delta.thinking)
            if out is not None and delta.thinking:
                out.append(ReasoningDelta(delta.thinking))
        elif delta.signature is not None:
            opened.signature.append(delta.signature)
        elif delta.citation is not None:
            if len(opened.citations) >= MAX_CITATIONS:
                raise self._mark_broken(f"a text of it has more than {MAX_CITATIONS} citations")
            opened.citations.append(delta.citation)

    def _learn(self, parsed: _Event, event: bytes) -> None:
        """Prepare to find the pieces of events like this one without decoding them."""
        only = _read_only_piece(parsed)
        if only is None:
            return
        opened = self._blocks[parsed.index]
        delta: Callable[[str], Delta]
        if only[0] == "partial_json":
            delta = partial(ToolCallDelta, parsed.index, opened.block.id or "", "")
        else:
            delta = TextDelta if only[0] == "text" else ReasoningDelta
        self._repeats.learn(event, only[0], _read_piece, target=opened.pieces, delta=delta)

    def _block(self, index: int) -> _Open:
        opened = self._blocks.get(index)
        if opened is None or opened.closed:
            raise self._mark_broken("its content blocks are mixed up")
        return opened

    def _render_part(self, index: int) -> list[Part]:
        opened = self._blocks[index]
        block, text = opened.block, opened.pieces.text()
        if block.type == "text":
            if not text:
                return []
            if opened.citations:
                return [TextPart(text=text, citations=read_citations(opened.citations))]
            return [TextPart(text=text)]
        if block.type == "thinking":
            return [ReasoningPart(text=text, signature="".join(opened.signature))]
        if block.type == "redacted_thinking":
            return [ReasoningPart(text="", encrypted=block.data or "")]
        if block.type == "tool_use":
            if not text and block.input:
                # Some compatible servers give the whole input at once.
                text = msgspec.json.encode(block.input).decode()
            provider = self._endpoint.provider
            return [make_tool_part(provider, block.id or "", block.name or "", text)]
        return []

    def _keep_foreign(self, index: int, block: JsonObject) -> None:
        if block.get("type") and block["type"] not in _OURS:
            self._blocks[index].foreign = block

    def _render_back(self) -> JsonObject | None:
        """Return the turn as the provider wants it back; nothing if there is nothing in it."""
        content: list[JsonObject] = []
        for index in sorted(self._blocks):
            opened = self._blocks[index]
            block, text = opened.block, opened.pieces.text()
            if opened.foreign is not None:
                made = opened.foreign
                if text and "input" in made:
                    made = {**made, "input": self._read_again(text.encode())}
                content.append(made)
            elif block.type == "text" and text.strip():
                cited = {"citations": opened.citations} if opened.citations else {}
                content.append({"type": "text", "text": text, **cited})
            elif block.type == "thinking":
                signature = "".join(opened.signature)
                content.append({"type": "thinking", "thinking": text, "signature": signature})
            elif block.type == "redacted_thinking":
                content.append({"type": "redacted_thinking", "data": block.data or ""})
        if not content:
            return None
        container = self._container
        name = container.get("id") if isinstance(container, dict) else container
        where = {"container": name} if isinstance(name, str) and name else {}
        return {"content": content, **where}

    def _read_again(self, data: bytes) -> JsonObject:
        """Return an object with all that is in it, also what we do not know."""
        try:
            value = decode_whole(_decode_any, data)
        except UNREADABLE as error:
            raise self._report_unreadable(error) from None
        return value if isinstance(value, dict) else {}

    def _mark_broken(self, detail: str) -> LLMProtocolError:
        return LLMProtocolError(provider=self._endpoint.provider, detail=detail)

    def _report_unreadable(self, error: Exception) -> LLMError:
        return self._mark_broken(f"a piece is no event of Anthropic's API ({type(error).__name__})")


def _read_only_piece(event: _Event) -> tuple[str, str] | None:
    """Return the field and the piece, if that is all that an event adds to its block."""
    delta = event.delta
    if event.type != "content_block_delta" or delta is None:
        return None
    for name in _PIECES:
        piece = getattr(delta, name)
        if piece is not None:
            return name, piece
    return None


def _read_piece(event: bytes) -> str | None:
    only = _read_only_piece(_decode(event))
    return only[1] if only is not None else None


def _read_refusal(details: object) -> ModelRefusal:
    """Return what the provider says about a refusal; mostly it says nothing."""
    said = details if isinstance(details, dict) else {}
    text, category = said.get("explanation"), said.get("category")
    return ModelRefusal(
        text=text if isinstance(text, str) else "",
        category=category if isinstance(category, str) else "",
    )


def _read_usage(data: JsonObject) -> TokenUsage | None:
    if not data:
        return None
    details = data.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, dict) else 0
    output = count(data.get("output_tokens"))
    reasoning = min(count(thinking), output)
    return TokenUsage(
        input=count(data.get("input_tokens")),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=count(data.get("cache_read_input_tokens")),
        cache_write=count(data.get("cache_creation_input_tokens")),
    )
