"""How much room a model has, and how much of it a request takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.messages import (
    CompactionPart,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from holdfast.providers.model import Model, ModelInfo, ModelRequest

_TEXTS = (TextPart, ReasoningPart)
_LEAST_WINDOW = 256
_LEAST_USABLE = 64


@dataclass(frozen=True, kw_only=True)
class Room:
    """The tokens of a model's window, parted; made by `room_of`."""

    window: int
    """What the model can read and write together."""
    usable: int
    """What is left for input when the answer gets its share."""
    full: int
    """More input than this, and room is made first: before the limit is hit."""
    recent: int
    """How much of the newest conversation stays word for word."""


def room_of(info: ModelInfo, *, usable: int | None = None) -> Room:
    """Return the room of a model; `usable` is what a refusal taught us about the real limit."""
    return _room(info.context_window, info.max_output_tokens, usable)


@functools.lru_cache(maxsize=64)
def _room(context_window: int, max_output_tokens: int, usable: int | None) -> Room:
    window = max(context_window, _LEAST_WINDOW)
    answer = min(max(max_output_tokens, 0), window // 4)
    free = window - answer
    if usable is not None:
        free = max(_LEAST_USABLE, min(free, usable))
    # Counting is an estimate for most models, hence the distance to the limit.
    return Room(
        window=window,
        usable=free,
        full=free * 9 // 10,
        recent=free * 3 // 10,
    )


def may_be_full(model: Model, info: ModelInfo, request: ModelRequest) -> bool:
    """Say whether a request could be too large; cheap, and wrong only on the safe side.

    What the provider counted with its last answer is not counted again, only what came
    after it. What is certainly small is not counted at all.
    """
    messages = request.messages
    full = _room(info.context_window, info.max_output_tokens, None).full
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    used = messages[at - 1].usage if at and messages[at - 1].provider == info.provider else None
    read = used.input + used.cache_read + used.cache_write if used is not None else 0
    if used is not None and read > 0:
        behind, left = messages[at:], full - (read + used.output + used.reasoning)
        if _are_small(behind, left):
            return False
        return not behind or model.count_tokens(ModelRequest(messages=behind)) > left
    fixed = _size(request.system)
    for spec in request.tools:
        fixed += 64 + _size(spec.description) + len(msgspec.json.encode(spec.parameters))
    if _are_small(messages, full - fixed):
        return False
    return model.count_tokens(request) > full


def _are_small(messages: Sequence[Message], limit: int) -> bool:
    """No token is shorter than a byte, so few bytes are few tokens."""
    size = 0
    for message in messages:
        size += 32
        for part in message.parts:
            if isinstance(part, ToolPart):
                if part.attachments:
                    return False
                text = part.output + part.error + part.raw_input
                size += len(text) if text.isascii() else 4 * len(text)
                if part.input:
                    size += len(msgspec.json.encode(part.input))
            elif isinstance(part, _TEXTS):
                size += _size(part.text)
            elif isinstance(part, FilePart):
                return False
            elif isinstance(part, CompactionPart):
                size += _size(part.summary)
        if size > limit:
            return False
    return size <= limit


def _size(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
