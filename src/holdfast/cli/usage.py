"""`holdfast usage`: what models used and what it cost."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.providers import UsageTotals
from holdfast.runtime import UsageReport

_SCOPES = ("agent", "run", "session", "model")


@click.command("usage", cls=CliCommand)
@click.option("--session", default="", metavar="ID", help="Only this session.")
@click.option("--by", type=click.Choice(_SCOPES), default="agent", help="Default: agent.")
@pass_invocation
def command(invocation: Invocation, session: str, by: str) -> None:
    """Show tokens and dollars by agent, run, session or model.

    Each answer is counted once. A cost that starts with >= leaves out calls whose price is
    not known; ~ marks tokens that were counted here because the server did not say.
    """
    report = run_async(_report(invocation, session))
    if not invocation.is_text:
        emit(msgspec.to_builtins(report))
        return
    rows: dict[str, UsageTotals] = getattr(report, f"by_{by}")
    costly = sorted(rows.items(), key=lambda item: (-item[1].cost_pico_usd, -item[1].usage.total))
    shown = [_make_row(by, name, totals) for name, totals in costly]
    emit(shown, columns=[by, "calls", "input", "output", "cached", "cost"])
    total = report.total
    say(f"{total.calls} calls, {_format_tokens(total)} tokens, {_format_cost(total)}.")


async def _report(invocation: Invocation, session: str) -> UsageReport:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        return await client.usage.get(session)


def _make_row(by: str, name: str, totals: UsageTotals) -> dict[str, object]:
    usage = totals.usage
    return {
        by: name,
        "calls": totals.calls,
        "input": usage.input + usage.cache_read + usage.cache_write,
        "output": usage.output + usage.reasoning,
        "cached": usage.cache_read,
        "cost": _format_cost(totals),
    }


def _format_tokens(totals: UsageTotals) -> str:
    return f"{'~' if totals.estimated_calls else ''}{totals.usage.total}"


def _format_cost(totals: UsageTotals) -> str:
    return f"{'>= ' if totals.unpriced_calls else ''}${totals.known_cost_usd:.4f}"
