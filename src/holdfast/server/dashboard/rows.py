"""Runs as lines of a list: the words that they began with, what they used, and how it grew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.clock import SYSTEM
from holdfast.errors import HoldfastError
from holdfast.operations import events, sessions
from holdfast.server.dashboard.asks import Ask
from holdfast.sessions import Run, Session

_LONGEST_TITLE: Final = 120
_MOST_MESSAGES: Final = 400
_KEPT_S: Final = 600.0
"""What was forgotten or redacted meanwhile is gone from here too after this time."""
_QUEUED: Final = "run.queued"
_SAID: Final = "message.created"


class RunFigures(msgspec.Struct, frozen=True):
    """What a run was asked, and what its answers took."""

    title: str = ""
    tokens: int = 0
    cost_usd: float | None = 0.0
    """`None` if the price of one of its answers is not known."""
    points: tuple[int, ...] = ()
    """Tokens of each answer, in order."""
    calls: int = 0
    """Calls of tools that its answers ask for."""
    trace_id: str = ""
    """Of its caller's trace, if the caller had one."""


class RunRow(msgspec.Struct, frozen=True):
    """A run as a line of a list."""

    run: Run
    figures: RunFigures
    session: Session | None
    duration: float | None
    """How long it took, until now if it has not ended; `None` if it has not begun."""

    @property
    def title(self) -> str:
        """The first line of what the run was asked."""
        return self.figures.title


async def describe_runs(ask: Ask, found: Sequence[Run]) -> list[RunRow]:
    """Return runs with what is shown of each; what may not be read is left out."""
    known: dict[str, Session] = {}
    if ask.may("sessions:read"):
        for session_id in dict.fromkeys(run.session_id for run in found):
            try:
                known[session_id] = await ask.perform(sessions.get, session_id)
            except HoldfastError:
                continue
    figures = await asyncio.gather(*(read_figures(ask, run) for run in found))
    now = SYSTEM.now()
    return [
        RunRow(run, each, known.get(run.session_id), measure_duration(run, now))
        for run, each in zip(found, figures, strict=True)
    ]


async def read_figures(ask: Ask, run: Run) -> RunFigures:
    """Return what a run was asked and took; what has ended is read once, and kept.

    Nothing, if its session may not be read: what is kept is given only to who may read it.
    """
    if not ask.may("sessions:read"):
        return RunFigures()
    key = ("figures", ask.caller.tenant, run.id)
    kept: tuple[float, RunFigures] | None = ask.kept.get(key) if run.has_ended else None
    try:
        if kept is not None and SYSTEM.monotonic() - kept[0] < _KEPT_S:
            await ask.perform(sessions.get, run.session_id)
            return kept[1]
        got = await ask.perform(
            events.list_,
            run.session_id,
            after=run.queued_at - 1,
            limit=_MOST_MESSAGES,
            kinds=(_QUEUED, _SAID),
        )
    except HoldfastError:
        return RunFigures()
    own = [one for one in got if one.run_id == run.id or one.session_seq == run.queued_at]
    figures = _sum_up([msgspec.json.decode(one.payload) for one in own])
    if run.has_ended:
        ask.keep(key, (SYSTEM.monotonic(), figures))
    return figures


def _sum_up(payloads: Sequence[dict[str, Any]]) -> RunFigures:
    messages = [one.get("message") or {} for one in payloads]
    answers = [one for one in messages if one.get("role") == "assistant" or one.get("usage")]
    points = tuple([sum((one.get("usage") or {}).values()) for one in answers])
    cost: float | None = sum(float(one.get("cost_usd", 0.0)) for one in answers)
    if any([(one.get("metadata") or {}).get("cost") == "unknown" for one in answers]):
        cost = None
    parts = [part for one in answers for part in one.get("parts", ())]
    calls = sum(part.get("type") == "tool" for part in parts)
    trace = next((str(one["traceparent"]) for one in payloads if one.get("traceparent")), "")
    return RunFigures(
        title=_cut_title(messages[:1]),
        tokens=sum(points),
        cost_usd=cost,
        points=points,
        calls=calls,
        trace_id=trace.split("-")[1] if trace.count("-") == 3 else "",
    )


def _cut_title(messages: Sequence[dict[str, Any]]) -> str:
    parts = [part for one in messages for part in one.get("parts", ())]
    text = next((part["text"] for part in parts if part.get("type") == "text"), "")
    first = str(text).strip().split("\n", 1)[0]
    return first[:_LONGEST_TITLE] + ("…" if len(first) > _LONGEST_TITLE else "")


async def find_title(ask: Ask, run: Run) -> str:
    """Return the first line of the message that a run was given; empty if it cannot be read."""
    return (await read_figures(ask, run)).title


def measure_duration(run: Run, now: float) -> float | None:
    """Return how long a run took, until now if it has not ended; `None` if it has not begun."""
    if not run.time_started:
        return None
    return max(0.0, (run.time_ended or now) - run.time_started)


__all__ = [
    "RunFigures",
    "RunRow",
    "describe_runs",
    "find_title",
    "measure_duration",
    "read_figures",
]
