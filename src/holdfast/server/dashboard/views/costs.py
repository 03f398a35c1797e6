"""Costs: by day, agent, model and session, against the budget; counted from the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from holdfast.clock import SYSTEM
from holdfast.operations import tenants, usage
from holdfast.providers import UsageTotals
from holdfast.runtime import UsageReport
from holdfast.server.dashboard.asks import Ask, Shown, ShownPage
from holdfast.server.dashboard.charts import draw_columns
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import format_count, format_money

T = TypeVar("T")
_BELIEVED_S: Final = 30.0
_DAYS: Final = 30
_NOTHING: Final = UsageTotals()


async def read_usage(ask: Ask) -> UsageReport:
    """Return what all used; it reads every answer, so one that is half a minute old will do."""
    return await _read_recent(ask, ("usage",), lambda: ask.perform(usage.get))


async def _read_recent(ask: Ask, what: tuple[str, ...], read: Callable[[], Awaitable[T]]) -> T:
    """Return what this caller read a moment ago, or read it; each caller has its own."""
    key = (*what, ask.caller.tenant, ask.caller.subject)
    known: tuple[float, T] | None = ask.kept.get(key)
    if known is not None and SYSTEM.monotonic() - known[0] < _BELIEVED_S:
        return known[1]
    found = await read()
    ask.keep(key, (SYSTEM.monotonic(), found))
    return found


async def _read_tenants(ask: Ask) -> dict[str, UsageTotals]:
    """Return what each tenant used, for the operator; of other callers only their own counts."""
    if ask.runtime.tenant != ask.runtime.control.operator or not ask.may("tenants:read"):
        return {}
    return await _read_recent(ask, ("tenants",), lambda: ask.perform(tenants.usage))


async def _show(ask: Ask) -> Shown:
    report = await read_usage(ask)
    today = datetime.fromtimestamp(SYSTEM.now(), UTC).date()
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(_DAYS))]
    of_day = [(day, report.by_day.get(day, _NOTHING)) for day in days]
    charts = [
        (
            "Dollars by day",
            draw_columns(
                [(d, t.known_cost_usd, format_money(t.known_cost_usd)) for d, t in of_day],
                title="Dollars by day, 30 days",
            ),
        ),
        (
            "Tokens by day",
            draw_columns(
                [(d, float(t.usage.total), format_count(t.usage.total)) for d, t in of_day],
                title="Tokens by day, 30 days",
            ),
        ),
    ]
    tables = [
        ("Model", _sort(report.by_model)),
        ("Agent", _sort(report.by_agent)),
        ("Session", _sort(report.by_session)[:25]),
    ]
    by_tenant = await _read_tenants(ask)
    tables = [*tables, ("Tenant", _sort(by_tenant))] if len(by_tenant) > 1 else tables
    values = {
        "total": report.total,
        "today": report.by_day.get(today.isoformat(), _NOTHING),
        "charts": charts if report.total.calls else [],
        "tables": tables,
        "budget": ask.runtime.settings.budget,
    }
    return ShownPage("costs.html", values)


async def _show_today(ask: Ask) -> Shown:
    """Return the figure of the first page, fetched when that one is there."""
    report = await read_usage(ask)
    today = datetime.fromtimestamp(SYSTEM.now(), UTC).date().isoformat()
    budget = ask.runtime.settings.budget
    values = {
        "today": report.by_day.get(today, _NOTHING),
        "total": report.total,
        "budget": budget,
    }
    return ShownPage("costs_today.html", values)


def _sort(totals: dict[str, UsageTotals]) -> list[tuple[str, UsageTotals]]:
    return sorted(totals.items(), key=lambda one: (-one[1].cost_pico_usd, -one[1].usage.total))


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "costs", _show)
    routes.add("GET", "costs/today", _show_today)


__all__ = ["add_to", "read_usage"]
