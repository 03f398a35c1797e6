"""`holdfast resume`: go on with what stopped."""

from __future__ import annotations

import click

from holdfast.cli import runs
from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.client import AsyncClient
from holdfast.errors import UsageError


@click.command("resume", cls=CliCommand)
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--model", default="", metavar="NAME", help="Another model than it began with.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@pass_invocation
def command(invocation: Invocation, run: str | None, model: str, auto_confirm: bool) -> None:
    """Go on with a run where it stopped, by default the last.

    Of any kind: an agent's, a workflow's, a loop's, or a tool called by hand. What is done is
    not repeated. `holdfast runs resume` takes limits for loops too.
    """

    async def find() -> str:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            for found in await client.runs.list(is_top=True, limit=100):
                if not found.has_ended:
                    return found.id
        raise UsageError(detail="No run has stopped before its end: holdfast runs list.")

    name = run or run_async(find())
    click.get_current_context().invoke(
        runs.resume, run=name, model=model, auto_confirm=auto_confirm
    )


__all__ = ["command"]
