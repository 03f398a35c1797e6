"""`holdfast resume`: go on with what stopped."""

from __future__ import annotations

import click

from holdfast.cli import runs
from holdfast.cli.frame import CliCommand


@click.command("resume", cls=CliCommand)
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--model", default="", metavar="NAME", help="Another model than it began with.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
def command(run: str | None, model: str, auto_confirm: bool) -> None:
    """Go on with a run where it stopped, by default the last.

    Of any kind: an agent's, a workflow's, a loop's, or a tool called by hand. What is done is
    not repeated. `holdfast runs resume` takes limits for loops too.
    """

    click.get_current_context().invoke(runs.resume, run=run, model=model, auto_confirm=auto_confirm)


__all__ = ["command"]
