"""Answers of Chat Completions, put together from chunks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import LLMError
from holdfast.messages import ModelRefusal, Part, ReasoningPart, TextPart
from holdfast.providers.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.wire.chat import (
    NOTHING,
    ChatCall,
    Chunk,
    Function,
    Said,
    decode_chunk,
    find_usage,
    iterate_pieces,
    make_too_many_error,
    make_unfinished,
    report_unreadable,
    stop_reason_of,
)
from holdfast.providers.wire.citations import read_citations
from holdfast.providers.wire.codec import (
    MAX_CITATIONS,
    MAX_TOOL_CALLS,
    UNREADABLE,
    Answer,
    Halves,
    encode_json,
    make_tool_part,
)
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.failures import find_failure_in_answer
from holdfast.providers.wire.repeats import CallPieces, Pieces, Repeats

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


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
        self.open_id = ""
        self._endpoint = endpoint
        self._model = model
        self._text = Pieces()
        self._thoughts = Pieces()
        self._repeats = Repeats()
        self._calls: list[CallPieces] = []
        self._by_index: dict[int, int] = {}
        self._finish = ""
        self._refusal = Pieces()
        self._annotations: list[Any] = []
        self._usage = NOTHING
        self._id = ""
        self._served = ""
        self._halves = Halves()

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take chunks in order; append what is said to `out` if a subscriber listens."""
        repeats = self._repeats
        for event in repeats.others(events, out):
            if event[:1] != b"{" and event.strip() == b"[DONE]":
                self.done = True
                return
            try:
                chunk = decode_chunk(event)
            except UNREADABLE:
                chunk = self._halves.decode(decode_chunk, event, self._report_unreadable)
            self._take(chunk, event, out)
            if repeats.wants and (only := _read_only_piece(chunk)) is not None:
                self._learn(only, event)

    def finish(self) -> Answer:
        """Return the whole answer."""
        if not self._finish:
            raise make_unfinished(self._endpoint)
        parts: list[Part] = []
        thoughts, refusal = self._thoughts.text(), self._refusal.text()
        text = self._text.text() + refusal
        if thoughts:
            parts.append(ReasoningPart(text=thoughts))
        if text:
            cited = read_citations(self._annotations) if self._annotations else ()
            parts.append(TextPart(text=text, citations=cited))
        for call in self._calls:
            arguments = call.pieces.text()
            parts.append(
                make_tool_part(self._endpoint.provider, call.call_id, call.name, arguments)
            )
        return Answer(
            parts=tuple(parts),
            stop_reason=stop_reason_of(
                self._endpoint.provider, self._finish, bool(refusal), has_calls=bool(self._calls)
            ),
            usage=find_usage(self._usage),
            response_id=self._id,
            model=self._served,
            metadata={},
            refusal=ModelRefusal(text=refusal) if refusal else None,
        )

    def _report_unreadable(self, error: Exception) -> LLMError:
        return report_unreadable(self._endpoint, error)

    def _take(self, chunk: Chunk, event: bytes, out: list[Delta] | None) -> None:
        if chunk.error is not NOTHING and chunk.error != NOTHING:
            raise find_failure_in_answer(self._endpoint, self._model, event)
        if chunk.usage is not NOTHING and chunk.usage != NOTHING:
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
                self._take_piece(delta, out)
            if choice.finish_reason:
                self._finish = choice.finish_reason

    def _take_piece(self, delta: Said, out: list[Delta] | None) -> None:
        content = delta.content
        if content:
            if isinstance(content, str):
                self._say(content, out)
            else:
                self._raise_mixed(content, out)
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._think(thought, out)
        if delta.refusal:
            self.begun = True
            self._refusal.add(delta.refusal)
            if out is not None:
                out.append(TextDelta(delta.refusal))
        if isinstance(delta.annotations, list):
            room = MAX_CITATIONS - len(self._annotations)
            self._annotations += delta.annotations[:room]
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

    def _raise_mixed(self, content: list[Any], out: list[Delta] | None) -> None:
        for is_thought, text in iterate_pieces(content):
            if is_thought:
                self._think(text, out)
            else:
                self._say(text, out)

    def _call(self, call: ChatCall, out: list[Delta] | None) -> None:
        self.begun = True
        function = call.function or Function()
        name, call_id = function.name or "", call.id or ""
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = encode_json(arguments).decode()
        position = None
        if call.index is not None and not (call_id or name):
            position = self._by_index.get(call.index)
        if position is None:
            position = self._find_position(call.index, call_id, name)
        current = self._calls[position]
        if arguments:
            current.pieces.add(arguments)
        if out is not None and (name or arguments):
            out.append(ToolCallDelta(position, current.call_id, name, arguments))

    def _find_position(self, index: int | None, call_id: str, name: str) -> int:
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
            raise make_too_many_error(self._endpoint)
        self._calls.append(CallPieces(call_id, name))
        position = len(self._calls) - 1
        if index is not None:
            self._by_index[index] = position
        return position

    def _learn(self, only: _OnlyPiece, event: bytes) -> None:
        """Prepare to find the pieces of chunks like this one without decoding them."""
        delta: Callable[[str], Delta]
        if only.name == "arguments":
            position = self._by_index[only.call]
            call = self._calls[position]
            target, delta = call.pieces, partial(ToolCallDelta, position, call.call_id, "")
        elif only.name.startswith("reasoning"):
            target, delta = self._thoughts, ReasoningDelta
        elif only.name == "refusal":
            target, delta = self._refusal, TextDelta
        else:
            target, delta = self._text, TextDelta
        self._repeats.learn(event, only.name, _read_piece, target=target, delta=delta)


class _OnlyPiece(msgspec.Struct, frozen=True, gc=False):
    """All that a chunk adds to the answer: a piece, its field, and the index of its call."""

    name: str
    text: str
    call: int = 0


def _read_only_piece(chunk: Chunk) -> _OnlyPiece | None:
    if not chunk.choices or len(chunk.choices) > 1 or chunk.choices[0].index != 0:
        return None
    delta = chunk.choices[0].delta
    if delta is None or delta.annotations:
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


def _read_piece(event: bytes) -> str | None:
    only = _read_only_piece(decode_chunk(event))
    return only.text if only is not None else None
