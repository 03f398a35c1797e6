"""Home: what waits for me, what runs, what failed, what it cost, and whether all is well."""

from __future__ import annotations

from typing import Any, Final

from holdfast.clock import SYSTEM
from holdfast.errors import HoldfastError
from holdfast.operations import approvals, mcp, providers, runs, storage
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
            "running": len(running.items),
            "queued": len(queued.items),
            "failed": len(today),
            "runs": await describe_runs(ask, latest.items),
            "broken": await describe_runs(ask, today[:_FEW]),
        }
    values["health"] = await _look(ask)
    return ShownPage("home.html", values)


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
        names = [one.name for one in await ask.perform(providers.list_)]
        word = ", ".join(names) if names else "none configured: the offline model answers"
        found.append(("Providers", "ok" if names else "open", word))
    if ask.may("mcp:read"):
        places = await ask.perform(mcp.endpoints)
        found.append(("MCP servers", "ok", f"{len(places)} configured" if places else "none"))
    found.append(("Workers", "ok", "this process"))
    return found


def add_to(routes: Routes) -> None:
    """Put the page at its address."""
    routes.add("GET", "", _show)


__all__ = ["add_to"]
