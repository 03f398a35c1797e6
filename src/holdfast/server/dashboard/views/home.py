"""Home: what waits for me, what runs, what failed, what it cost, and whether all is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.clock import SYSTEM
from holdfast.errors import HoldfastError
from holdfast.mcp import EndpointInfo
from holdfast.operations import approvals, mcp, providers, runs, storage, workers
from holdfast.server.dashboard.asks import Ask, Shown, ShownPage
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.rows import describe_runs

_DAY_S: Final = 86_400
_FEW: Final = 6


async def _show(ask: Ask) -> Shown:
    waits = await ask.perform(approvals.questions) if ask.may("approvals:read") else []
    values: dict[str, Any] = {"waits": waits[:_FEW], "live": "topic=runs", "runs": None}
    if ask.may("runs:read"):
        running = await ask.perform(runs.find, status="running", limit=100)
        queued = await ask.perform(runs.find, status="queued", limit=100)
        failed = await ask.perform(runs.find, status="failed", limit=100)
        latest = await ask.perform(runs.find, limit=_FEW)
        since = SYSTEM.now() - _DAY_S
        today = [run for run in failed.items if run.time_ended >= since]
        values |= {
            "running": _count(running.items, running.next_cursor),
            "queued": _count(queued.items, queued.next_cursor),
            "failed": _count(today, failed.next_cursor if len(today) == len(failed.items) else ""),
            "runs": await describe_runs(ask, latest.items),
            "broken": await describe_runs(ask, today[:_FEW]),
        }
    values["health"] = await _look(ask)
    return ShownPage("home.html", values)


def _count(found: Sequence[object], next_cursor: str) -> str:
    """Return a number, with a plus if there are more; empty for none."""
    return f"{len(found)}+" if next_cursor else str(len(found) or "")


async def _look(ask: Ask) -> list[tuple[str, str, str]]:
    """Return what is well and what is not: what, `ok` or `failed`, and a word."""
    found: list[tuple[str, str, str]] = []
    if ask.may("storage:read"):
        try:
            stats = await ask.perform(storage.stats)
            count = stats.get("events", 0)
            found.append(("Store", "ok", f"{count:,} events" if isinstance(count, int) else ""))
        except HoldfastError as error:
            found.append(("Store", "failed", str(error)))
    if ask.may("providers:read"):
        known = await ask.perform(providers.list_)
        chosen = ask.runtime.settings.model.name or "the first that is found"
        found.append(("Providers", "ok", f"{len(known)} known; who names no model gets {chosen}"))
    if ask.may("mcp:read"):
        found.append(_judge_servers(await ask.perform(mcp.endpoints)))
    if ask.may("storage:read"):
        found.append(await _judge_workers(ask))
    return found


def _judge_servers(places: list[EndpointInfo]) -> tuple[str, str, str]:
    """Return how MCP servers are set up; whether they answer is asked on their own page."""
    doubted = [one.name for one in places if one.enabled and not one.trusted]
    if doubted:
        return ("MCP servers", "waiting", f"not trusted yet: {', '.join(doubted)}")
    return ("MCP servers", "ok", f"{len(places)} configured" if places else "none")


async def _judge_workers(ask: Ask) -> tuple[str, str, str]:
    living, dead = await ask.perform(workers.list_), await ask.perform(workers.list_dead)
    if dead:
        return ("Workers", "failed", f"{len(dead)} sessions were given up")
    held = sum(len(one.sessions) for one in living)
    if living:
        return ("Workers", "ok", f"{len(living)} live, {held} sessions held")
    return ("Workers", "ok", "the server executes runs itself")


def add_to(routes: Routes) -> None:
    """Put the page at its address."""
    routes.add("GET", "", _show)


__all__ = ["add_to"]
