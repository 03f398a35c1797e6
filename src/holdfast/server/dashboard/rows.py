"""Runs as lines of a list: with the words that they began with, and what they used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.clock import SYSTEM
from holdfast.errors import HoldfastError
from holdfast.operations import events, sessions
from holdfast.server.dashboard.asks import Ask
from holdfast.sessions import Run, Session

_LONGEST_TITLE = 120


class RunRow(msgspec.Struct, frozen=True):
    """A run as a line of a list."""

    run: Run
    title: str
    session: Session | None
    duration: float | None
    """How long it worked, until now if it works still; `None` if it has not begun."""
    share: float = 0.0
    """Of the longest one in the list."""


async def describe_runs(ask: Ask, found: Sequence[Run]) -> list[RunRow]:
    """Return runs with what is shown of each; what may not be read is left out."""
    known: dict[str, Session] = {}
    if ask.may("sessions:read"):
        for session_id in dict.fromkeys(run.session_id for run in found):
            try:
                known[session_id] = await ask.perform(sessions.get, session_id)
            except HoldfastError:
                continue
    titles = await asyncio.gather(*(find_title(ask, run) for run in found))
    now = SYSTEM.now()
    spans = [_measure(run, now) for run in found]
    longest = max([span or 0.0 for span in spans], default=0.0) or 1.0
    return [
        RunRow(run, title, known.get(run.session_id), span, (span or 0.0) / longest)
        for run, title, span in zip(found, titles, spans, strict=True)
    ]


async def find_title(ask: Ask, run: Run) -> str:
    """Return the first line of the message that a run was given; empty if it cannot be read."""
    if not ask.may("sessions:read"):
        return ""
    try:
        got = await ask.perform(events.list_, run.session_id, after=run.queued_at - 1, limit=1)
    except HoldfastError:
        return ""
    if not got:
        return ""
    payload = msgspec.json.decode(got[0].payload)
    parts = (payload.get("message") or {}).get("parts", ())
    text = next((part["text"] for part in parts if part.get("type") == "text"), "")
    first = text.strip().split("\n", 1)[0]
    return first[:_LONGEST_TITLE] + ("…" if len(first) > _LONGEST_TITLE else "")


def _measure(run: Run, now: float) -> float | None:
    if not run.time_started:
        return None
    return max(0.0, (run.time_ended or now) - run.time_started)


__all__ = ["RunRow", "describe_runs", "find_title"]
