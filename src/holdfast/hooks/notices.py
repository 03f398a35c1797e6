"""Callbacks for people: how far a call is, and what a caller should know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.hooks.names import BusEvent


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a call is; `fraction` is between 0 and 1 where the tool knows."""

    session_id: str
    run_id: str
    call_id: str
    text: str
    fraction: float | None = None


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know; `event` is the name of what happened."""

    event: str
    text: str
    session_id: str
    run_id: str


def to_progress(event: BusEvent) -> Progress:
    """Return a `tool.progress` event as its callback gets it."""
    return msgspec.convert(
        {"session_id": event.session_id, "run_id": event.run_id, **event.data}, Progress
    )


def to_notification(event: BusEvent) -> Notification:
    """Return an event as the callback for notifications gets it."""
    return Notification(
        event=event.name,
        text=_SENTENCES[event.name](event.data),
        session_id=event.session_id,
        run_id=event.run_id,
    )


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "run.completed": lambda data: "A run is done.",
    "run.failed": lambda data: f"A run failed: {data.get('error', {}).get('message', '')}",
    "run.parked": lambda data: f"A run waits for an answer: {data.get('reason', '')}",
    "run.cancelled": lambda data: "A run was cancelled.",
    "permission.asked": lambda data: f"{data.get('tool', 'A call')} needs consent.",
    "permission.denied": lambda data: f"{data.get('tool', 'A call')} was refused.",
    "tool.unknown_outcome": lambda data: (
        f"It is not known whether {data.get('tool', 'a call')} happened: {data.get('question', '')}"
    ),
}

NOTIFICATIONS: tuple[str, ...] = tuple(_SENTENCES)
"""The events that people are notified of."""
