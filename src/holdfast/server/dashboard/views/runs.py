"""Runs: a list that follows what happens, with its filter in the address, and bulk cancel."""

from __future__ import annotations

import re
from typing import Final, cast, get_args

from holdfast.errors import HoldfastError, NotFound, NotPermitted, UsageError
from holdfast.observability import make_trace_id
from holdfast.operations import approvals, runs
from holdfast.server.dashboard.asks import Ask, GoTo, Shown, ShownPage
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.rows import RunRow, describe_runs, read_figures
from holdfast.sessions import Run, RunStatus

_PAGE: Final = 50
_MOST_SEARCHED: Final = 500
_STATUSES: Final = get_args(RunStatus)
_MOST_TRACED: Final = 10_000
_ID: Final = re.compile(r"(run|apr)_[0-9a-z]+")
_TRACE: Final = re.compile(r"[0-9a-f]{32}")


async def _show(ask: Ask) -> Shown:
    status = ask.query.get("status", "")
    if status and status not in _STATUSES:
        raise UsageError(detail=f"The status of a run is one of {', '.join(_STATUSES)}.")
    words = ask.query.get("q", "").strip()
    if _ID.fullmatch(words) and (found := await _find_named(ask, words)):
        return GoTo(ask.link("runs", found))
    if _TRACE.fullmatch(words) and (traced := await _find_traced(ask, words)):
        return GoTo(ask.link("runs", traced))
    rows, cursor = await _search(ask, status, words)
    values = {
        "rows": rows,
        "cursor": cursor,
        "statuses": _STATUSES,
        "status": status,
        "agent": ask.query.get("agent", ""),
        "words": words,
        "older": ask.link(
            "runs", status=status, agent=ask.query.get("agent", ""), q=words, cursor=cursor
        ),
        "live": "topic=runs",
    }
    return ShownPage("runs.html", values)


async def _search(ask: Ask, status: str, words: str) -> tuple[list[RunRow], str]:
    """Return the runs of a page; with words, those of the newest 500 that have them."""
    cursor = ask.query.get("cursor", "")
    found: list[RunRow] = []
    looked = 0
    while True:
        page = await ask.perform(
            runs.find,
            status=cast(RunStatus, status) if status else None,
            agent=ask.query.get("agent", ""),
            limit=_PAGE,
            cursor=cursor,
        )
        rows = await describe_runs(ask, page.items)
        found += [row for row in rows if not words or _has(row, words)]
        looked, cursor = looked + len(rows), page.next_cursor
        if not cursor or not words or len(found) >= _PAGE or looked >= _MOST_SEARCHED:
            return found, cursor


async def _find_named(ask: Ask, id: str) -> str:
    """Return the run of an id, its own or that of a request for consent; empty if there is none."""
    try:
        if id.startswith("run_"):
            return (await ask.perform(runs.get, id)).id
        return (await ask.perform(approvals.get, id)).approval.run_id
    except (NotFound, NotPermitted):
        return ""


async def _find_traced(ask: Ask, trace_id: str) -> str:
    """Return the run of a trace: of its own, or, among the newest ones, of its caller's.

    The id of its own trace is made of that of the run; the other one stands in its first event.
    """
    cursor, looked = "", 0
    while looked < _MOST_TRACED:
        page = await ask.perform(runs.find, limit=100, cursor=cursor)
        for run in page.items:
            if make_trace_id(run.id).hex() == trace_id:
                return run.id
        if looked < _MOST_SEARCHED:
            for run in page.items:
                if (await read_figures(ask, run)).trace_id == trace_id:
                    return run.id
        looked, cursor = looked + len(page.items), page.next_cursor
        if not cursor:
            break
    return ""


def _has(row: RunRow, words: str) -> bool:
    session = row.session
    texts = [row.run.id, row.run.session_id, row.run.agent, row.title, row.run.reason]
    texts += [session.title, session.slug] if session is not None else []
    return words.casefold() in "\n".join(texts).casefold()


async def _cancel_many(ask: Ask) -> Shown:
    chosen = [value for name, value in ask.fields if name == "run"]
    kept = {name: ask.form.get(name, "") for name in ("status", "agent", "q")}
    back = ask.link("runs", **kept)
    if not chosen:
        return GoTo(back, "nothing-chosen")
    wrong: list[HoldfastError] = []
    for run_id in chosen[:_PAGE]:
        try:
            run: Run = await ask.perform(runs.get, run_id)
            if not run.has_ended:
                await ask.perform(runs.cancel, run_id, reason="cancelled in the dashboard")
        except HoldfastError as error:
            wrong.append(error)
    if wrong:
        raise wrong[0]
    return GoTo(back, "cancelled-many")


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "runs", _show)
    routes.add("POST", "runs/cancel", _cancel_many)


__all__ = ["add_to"]
