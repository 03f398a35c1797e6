"""Small words for the wire tests."""

from __future__ import annotations

from typing import Any

from holdfast.messages import Message, TextPart
from holdfast.providers.model import Delta, Finished, Model, ModelRequest

KEY = "sk-test-0123456789abcdef"
WIRES = ("chat", "responses", "anthropic")


def user(text: str = "Hello.") -> Message:
    return Message(id="m1", session_id="s", role="user", parts=(TextPart(text=text),))


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (user(),), **more)


async def collect(model: Model, request: ModelRequest, *, deltas: bool = True) -> list[Delta]:
    return [delta async for delta in model.stream(request, deltas=deltas)]


async def answer(model: Model, request: ModelRequest | None = None, **more: Any) -> Message:
    last = (await collect(model, request or ask(), **more))[-1]
    assert isinstance(last, Finished)
    return last.message
