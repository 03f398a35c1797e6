"""One run: its line of time, what was said and done, its context, its events; and how to act."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.clock import SYSTEM
from holdfast.errors import HoldfastError, UsageError
from holdfast.journal import Event
from holdfast.operations import agents, events, runs, sessions
from holdfast.policy import Budget
from holdfast.server.dashboard.asks import Ask, GoTo, Shown, ShownPage, Streamed
from holdfast.server.dashboard.charts import draw_waterfall
from holdfast.server.dashboard.history import Bar, read_history
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.rows import (
    RunFigures,
    find_title,
    measure_duration,
    read_figures,
)
from holdfast.server.dashboard.views.plan import has_plan, read_plan
from holdfast.server.dashboard.words import format_count, format_money, format_span
from holdfast.server.streams import send_download, view_event
from holdfast.sessions import Run

_WINDOW: Final = 400
"""Events that are read for one view: a run with many is looked at part by part."""
_MOST_CHILDREN: Final = 50
_TABS: Final = ("story", "plan", "events", "context", "fork")
_MOST_SHARED: Final = 5_000
"""Events of a run that is saved as a page."""


class EventWindow(msgspec.Struct, frozen=True):
    """Some events of a run, and where they stand in it."""

    events: list[Event]
    first: int
    last: int
    upto: int
    """The last event that is shown."""


class Limit(msgspec.Struct, frozen=True):
    """What a run used, in words, and how much of what it may."""

    name: str
    used: str
    most: float | None
    amount: float | None = None
    write: Callable[[float], str] = format_count

    @property
    def share(self) -> float | None:
        """How much of it is used; `None` where there is no limit."""
        if self.most is None or self.amount is None:
            return None
        return self.amount / self.most if self.most else 1.0


async def read_window(ask: Ask, run: Run, upto: int = 0, *, most: int = _WINDOW) -> EventWindow:
    """Return the last events of a run up to one, no more than fit into a page."""
    first = max(1, run.queued_at)
    last = run.ended_at or await ask.perform(events.count, run.session_id)
    end = min(max(upto, first), last) if upto else last
    begin = max(first, end - most + 1)
    found = await ask.perform(
        events.list_, run.session_id, after=begin - 1, limit=max(1, end - begin + 1)
    )
    own = [one for one in found if one.run_id == run.id and one.session_seq <= end]
    return EventWindow(own, first, last, end)


async def _show(ask: Ask) -> Shown:
    run = await ask.perform(runs.get, ask.words["run_id"])
    tab = ask.query.get("tab", "story")
    if tab not in _TABS:
        raise UsageError(detail=f"A run is shown as one of {', '.join(_TABS)}.")
    window = await read_window(ask, run, _read_number(ask.query.get("at", "")))
    session = await ask.perform(sessions.get, run.session_id)
    figures = await read_figures(ask, run)
    values: dict[str, Any] = {
        "run": run,
        "tab": tab,
        "session": session,
        "title": figures.title,
        "figures": figures,
        "has_plan": has_plan(run),
        "window": window,
        "is_past": window.upto < window.last,
        "earlier": max(window.first, window.upto - _WINDOW),
        "later": min(window.last, window.upto + _WINDOW),
        "live": f"topic=all&session={run.session_id}" if not run.has_ended else "",
        "place": "runs",
    }
    if tab == "story":
        values |= await _tell_story(ask, run, window)
    elif tab == "plan":
        values["plan"] = await read_plan(ask, run) if has_plan(run) else None
    elif tab == "events":
        values["rows"] = [(one, view_event(one)) for one in reversed(window.events)]
    elif tab == "context":
        values |= await _read_context(ask, run, figures)
    else:
        values["message"] = await _find_message(ask, run)
        may_choose = ask.may("agents:read")
        listed = await ask.perform(agents.list_) if may_choose else []
        values["agents"] = [one.name for one in listed]
        values["at"] = _read_number(ask.query.get("at", "")) or max(1, run.queued_at - 1)
    return ShownPage("run.html", values)


async def _tell_story(ask: Ask, run: Run, window: EventWindow) -> dict[str, Any]:
    history = read_history(window.events, now=SYSTEM.now())
    found = (await ask.perform(runs.children, run.id))[:_MOST_CHILDREN]
    below = [await ask.perform(runs.get, one.id) for one in found]
    bars = [
        Bar(
            kind="child",
            label=child.agent or "child",
            began=child.time_started,
            ended=child.time_ended or SYSTEM.now(),
            at=0,
        )
        for child in below
        if child.time_started
    ]
    zoom = min(8, max(1, _read_number(ask.query.get("zoom", "1"))))
    ordered = sorted([*history.bars, *bars], key=lambda bar: bar.began)
    return {
        "history": history,
        "below": below,
        "zoom": zoom,
        "waterfall": draw_waterfall(ordered, zoom=zoom),
        "is_interrupted": await _is_interrupted(ask, run),
    }


async def _is_interrupted(ask: Ask, run: Run) -> bool:
    if run.status not in ("running", "queued") or not ask.may("runs:write"):
        return False
    return any([one.id == run.id for one in await ask.perform(runs.interrupted)])


def _list_limits(budget: Budget | None, run: Run, figures: RunFigures) -> list[Limit]:
    """Return what was used, of how much; the limits of an agent hold for each of its runs."""
    known = budget or Budget()
    cost, took = figures.cost_usd, measure_duration(run, SYSTEM.now())
    return [
        Limit("Dollars", format_money(cost), known.max_cost_usd, cost, format_money),
        Limit("Tokens", format_count(figures.tokens), known.max_tokens, figures.tokens),
        Limit("Model calls", str(len(figures.points)), known.max_calls, len(figures.points)),
        Limit("Tool calls", str(figures.calls), known.max_tool_calls, figures.calls),
        Limit("Time", format_span(took), known.max_wall_s, took, format_span),
    ]


async def _read_context(ask: Ask, run: Run, figures: RunFigures) -> dict[str, Any]:
    record = await ask.perform(agents.get, run.agent) if ask.may("agents:read") else None
    limits = _list_limits(record.budget if record is not None else None, run, figures)
    try:
        view = await ask.perform(sessions.context, run.session_id, run.agent)
    except HoldfastError as error:
        return {"account": None, "wrong": str(error), "limits": limits}
    found = {"account": view.account, "wrong": "", "limits": limits}
    return found | {"system_prompt": view.system_prompt}


async def _find_message(ask: Ask, run: Run) -> str:
    got = await ask.perform(events.list_, run.session_id, after=run.queued_at - 1, limit=1)
    if not got:
        return ""
    parts = (msgspec.json.decode(got[0].payload).get("message") or {}).get("parts", ())
    return "\n".join([part["text"] for part in parts if part.get("type") == "text"])


def _read_number(text: str) -> int:
    """Return a number of an address; what is none counts as not given."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


async def _cancel(ask: Ask) -> Shown:
    run_id = ask.words["run_id"]
    await ask.perform(runs.cancel, run_id, reason=ask.form.get("reason", ""))
    return GoTo(ask.link("runs", run_id), "cancelled")


async def _steer(ask: Ask) -> Shown:
    run_id = ask.words["run_id"]
    words = ask.form.get("message", "").strip()
    if not words:
        raise UsageError(detail="Say something to the run.")
    await ask.perform(runs.steer_run, run_id, words)
    return GoTo(ask.link("runs", run_id), "steered")


async def _resume(ask: Ask) -> Shown:
    run = await ask.perform(runs.get, ask.words["run_id"])
    await ask.perform(runs.start, run.agent, run.session_id, "", run_id=run.id, on_ask="park")
    return GoTo(ask.link("runs", run.id), "resumed")


async def _fork(ask: Ask) -> Shown:
    """Begin a copy at an event, let it go on with other words or another model, show both."""
    run = await ask.perform(runs.get, ask.words["run_id"])
    at = _read_number(ask.form.get("at", ""))
    words = ask.form.get("message", "").strip()
    if not words:
        raise UsageError(detail="Say what the copy is asked.")
    copy = await ask.perform(runs.fork, run.id, at=at or None, title=ask.form.get("title", ""))
    begun = await ask.perform(
        runs.start,
        ask.form.get("agent", "") or run.agent,
        copy.id,
        words,
        model=ask.form.get("model", ""),
        on_ask="park",
    )
    return GoTo(ask.link("runs", run.id, "beside", begun.id), "forked")


async def _compare(ask: Ask) -> Shown:
    """Show two runs side by side."""
    sides = []
    for name in ("run_id", "other_id"):
        run = await ask.perform(runs.get, ask.words[name])
        window = await read_window(ask, run)
        history = read_history(window.events, now=SYSTEM.now())
        sides.append((run, await find_title(ask, run), history))
    values = {"sides": sides, "live": "topic=all", "place": "runs"}
    return ShownPage("beside.html", values)


async def _download(ask: Ask) -> Shown:
    """Send the whole session of a run as a file that `holdfast import` takes."""
    assert ask.send is not None
    run = await ask.perform(runs.get, ask.words["run_id"])
    await ask.perform(sessions.get, run.session_id)
    name = f"{run.session_id}.jsonl".encode()
    headers = [(b"content-disposition", b'attachment; filename="%s"' % name)]
    items = ask.stream(sessions.lines, run.session_id)
    async with contextlib.aclosing(items):
        await send_download(
            items, ask.request, ask.send, headers=headers, media_type="application/x-ndjson"
        )
    return Streamed()


async def _save_page(ask: Ask) -> Shown:
    """Send the run as one file that any browser shows, without a server and without scripts."""
    run = await ask.perform(runs.get, ask.words["run_id"])
    window = await read_window(ask, run, most=_MOST_SHARED)
    history = read_history(window.events, now=SYSTEM.now())
    values = {
        "run": run,
        "figures": await read_figures(ask, run),
        "session": await ask.perform(sessions.get, run.session_id),
        "history": history,
        "is_cut": len(window.events) >= _MOST_SHARED,
        "waterfall": draw_waterfall(history.bars),
        "plan": await read_plan(ask, run) if has_plan(run) else None,
        "saved_at": SYSTEM.now(),
    }
    return ShownPage("saved.html", values, file_name=f"{run.id}.html")


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "runs/{run_id}", _show)
    routes.add("GET", "runs/{run_id}/page", _save_page)
    routes.add("GET", "runs/{run_id}/download", _download)
    routes.add("GET", "runs/{run_id}/beside/{other_id}", _compare)
    for word, view in (
        ("cancel", _cancel),
        ("steer", _steer),
        ("resume", _resume),
        ("fork", _fork),
    ):
        routes.add("POST", f"runs/{{run_id}}/{word}", view)


__all__ = ["EventWindow", "add_to", "read_window"]
