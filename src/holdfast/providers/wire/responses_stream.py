"""Answers of the Responses API, put together from events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMError, LLMProtocolError
from holdfast.messages import Citation, ModelRefusal, Part, ReasoningPart, TextPart, TokenUsage
from holdfast.providers.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.wire.citations import read_citations
from holdfast.providers.wire.codec import (
    MAX_TOOL_CALLS,
    QUEUED,
    UNREADABLE,
    Answer,
    Halves,
    count,
    decode_object,
    decode_whole,
    make_tool_part,
    split_usage,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import find_failure_in_answer
from holdfast.providers.wire.repeats import Repeats

PHASES = "phases"
"""Key in a message's metadata: the phase of each text, which the model wants back."""

_ENDS = ("response.completed", "response.incomplete")
_FAILURES = ("response.failed", "response.cancelled", "error")
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_NOTHING = msgspec.Raw(b"null")


class _Content(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: Any = None


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    phase: str | None = None
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    object: str | None = None
    model: str | None = None
    status: str | None = None
    background: Any = None
    output: list[_Item] | None = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    error: msgspec.Raw = _NOTHING
    sequence_number: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_body = msgspec.json.Decoder(_Response).decode


class ResponsesDecoder:
    """Puts one streamed answer together.

    The closing event holds the whole answer, so the pieces are read only for those who
    listen. Rescued: a closing event without output, as some gateways send it; then the
    finished items that came before count. Not rescued: a stream without closing event.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        """Start before the first event."""
        self.done = False
        self.begun = False
        self.open_id = ""
        self.heard = -1
        """The number of the last event of an answer in the background."""
        self._endpoint = endpoint
        self._model = model
        self._items: dict[int, _Item] = {}
        self._names: dict[int, tuple[str, str]] = {}
        self._closing: _Response | None = None
        self._repeats = Repeats()
        self._halves = Halves()

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take events in order; append what is said to `out` if a subscriber listens."""
        repeats = self._repeats
        for event in repeats.others(events, out):
            if event[:1] != b"{" and event.strip() == b"[DONE]":
                continue
            try:
                parsed = _decode(event)
            except UNREADABLE:
                parsed = self._halves.decode(_decode, event, self._report_unreadable)
            if self.open_id and self._was_heard(parsed):
                continue
            self._take(parsed, event, out)
            if self.done:
                return
            # Events that are passed over are not counted either.
            if repeats.wants and not self.open_id:
                self._learn(parsed, event)

    def take_body(self, body: bytes) -> None:
        """Take an answer that came as one body."""
        try:
            response = decode_whole(_decode_body, body)
        except UNREADABLE as error:
            raise self._report_unreadable(error) from None
        if response.output is None or response.status in ("failed", "cancelled"):
            raise find_failure_in_answer(self._endpoint, self._model, body)
        if response.status in ("in_progress", "queued"):
            self.open_id = response.id or ""
            if not self.open_id:
                detail = f"the answer is still {response.status}, and has no id to ask for it"
                raise LLMProtocolError(provider=self._endpoint.provider, detail=detail)
            return
        self._closing = response

    def finish(self) -> Answer:
        """Return the whole answer."""
        closing = self._closing
        if closing is None and self.open_id:
            return Answer((), QUEUED, None, self.open_id, "", {})
        if closing is None:
            detail = "the answer ended without its closing event"
            raise LLMProtocolError(provider=self._endpoint.provider, detail=detail)
        items = closing.output or [self._items[index] for index in sorted(self._items)]
        if self.begun and not items and closing.status != "incomplete":
            detail = "the closing event holds nothing of what came before it"
            raise LLMProtocolError(provider=self._endpoint.provider, detail=detail)
        parts: list[Part] = []
        phases: list[str] = []
        refusals: list[str] = []
        calls = 0
        for item in items:
            if item.type == "message":
                _add_texts(item, parts, phases, refusals)
            elif item.type == "reasoning":
                parts.append(_read_reasoning(item))
            elif item.type == "function_call":
                calls += 1
                self._bound(calls)
                parts.append(self._call(item))
        return Answer(
            parts=tuple(parts),
            stop_reason=_stop_reason(closing, bool(refusals), calls),
            usage=_read_usage(closing.usage),
            response_id=closing.id or "",
            model=closing.model or "",
            metadata={PHASES: phases} if any(phases) else {},
            refusal=ModelRefusal(text="".join(refusals)) if refusals else None,
        )

    def _take(self, event: _Event, data: bytes, out: list[Delta] | None) -> None:
        kind = event.type
        if kind in _FAILURES or event.error != _NOTHING or not kind:
            self.open_id = ""
            raise find_failure_in_answer(self._endpoint, self._model, data)
        if kind in _ENDS and event.response is not None:
            self._closing = event.response
            self.done = True
            self.open_id = ""
        elif kind == "response.output_item.added" and event.item is not None:
            self.begun = True
            self._bound(len(self._names))
            self._names[event.output_index] = (event.item.call_id or "", event.item.name or "")
            if out is not None and event.item.type == "function_call":
                call_id, name = self._names[event.output_index]
                out.append(ToolCallDelta(event.output_index, call_id, name, ""))
        elif kind == "response.output_item.done" and event.item is not None:
            self._bound(len(self._items))
            self._items[event.output_index] = event.item
        elif event.response is not None and event.response.background is True:
            self.open_id = event.response.id or ""
            self._was_heard(event)
        elif event.delta:
            self.begun = True
            delta = self._make_delta(event) if out is not None else None
            if out is not None and delta is not None:
                out.append(delta(event.delta))

    def _was_heard(self, event: _Event) -> bool:
        """Say whether an event came before; a stream that is taken up again may repeat some."""
        number = event.sequence_number
        if type(number) is not int:
            return False
        if number <= self.heard:
            return True
        self.heard = number
        return False

    def _make_delta(self, event: _Event) -> Callable[[str], Delta] | None:
        """Return what makes a delta of an event's piece; none if no caller is to hear it."""
        if event.type in _TEXT:
            return TextDelta
        if event.type in _THOUGHT:
            return ReasoningDelta
        if event.type == "response.function_call_arguments.delta":
            call_id, _ = self._names.get(event.output_index, ("", ""))
            return partial(ToolCallDelta, event.output_index, call_id, "")
        return None

    def _learn(self, parsed: _Event, event: bytes) -> None:
        """Prepare to pass over events like this one; the closing event holds it all."""
        if _read_piece_of(parsed):
            delta = self._make_delta(parsed)
            self._repeats.learn(event, "delta", _read_piece, target=None, delta=delta)

    def _call(self, item: _Item) -> Part:
        arguments = item.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        return make_tool_part(
            self._endpoint.provider, item.call_id or "", item.name or "", arguments
        )

    def _bound(self, number: int) -> None:
        if number > MAX_TOOL_CALLS:
            detail = f"it has more than {MAX_TOOL_CALLS} items"
            raise LLMProtocolError(provider=self._endpoint.provider, detail=detail)

    def _report_unreadable(self, error: Exception) -> LLMError:
        detail = f"a piece is no event of the Responses API ({type(error).__name__})"
        return LLMProtocolError(provider=self._endpoint.provider, detail=detail)


def _read_piece_of(event: _Event) -> str | None:
    """Return the piece of an event that adds nothing else; it comes again as a whole."""
    return event.delta if event.type.endswith(".delta") else None


def _read_piece(event: bytes) -> str | None:
    return _read_piece_of(_decode(event))


def _add_texts(item: _Item, parts: list[Part], phases: list[str], refusals: list[str]) -> None:
    """Add a message's text with its citations, and what the model says where it refuses."""
    text = ""
    citations: tuple[Citation, ...] = ()
    for content in item.content or ():
        if content.annotations:
            citations += read_citations(content.annotations, len(text))
        if content.refusal:
            refusals.append(content.refusal)
        text += content.text or content.refusal or ""
    if text:
        parts.append(TextPart(text=text, citations=citations))
        phases.append(item.phase or "")


def _read_reasoning(item: _Item) -> ReasoningPart:
    shown = item.summary or item.content or ()
    return ReasoningPart(
        text="\n\n".join(content.text for content in shown if content.text),
        signature=item.id or "",
        encrypted=item.encrypted_content or "",
    )


def _stop_reason(closing: _Response, refused: bool, calls: int) -> str:
    if closing.status == "incomplete":
        details = closing.incomplete_details
        return "filtered" if details and details.reason == "content_filter" else "length"
    if refused:
        return "filtered"
    return "tool_calls" if calls else "stop"


def _read_usage(raw: msgspec.Raw) -> TokenUsage | None:
    data = decode_object(raw)
    if data is None:
        return None
    into, out = _read_details(data, "input"), _read_details(data, "output")
    return split_usage(
        count(data.get("input_tokens")),
        count(data.get("output_tokens")),
        reasoning=count(out.get("reasoning_tokens")),
        cache_read=count(into.get("cached_tokens")),
        cache_write=count(into.get("cache_write_tokens")),
    )


def _read_details(data: JsonObject, which: str) -> JsonObject:
    details = data.get(f"{which}_tokens_details")
    return details if isinstance(details, dict) else {}
