"""`holdfast metrics`: what was worked on the records, for Prometheus."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.private_files import open_whole_file


@click.command("metrics", cls=CliCommand)
@click.option("--to", "target", metavar="FILE", help="File to write, such as for node_exporter.")
@click.option(
    "--every", type=click.FloatRange(1, 86_400), metavar="SECONDS", help="Again and again."
)
@pass_invocation
def command(invocation: Invocation, target: str | None, every: float | None) -> None:
    """Show metrics of the work, counted since the records began.

    A server shows them at /metrics, with its own. Where none runs, write a file that
    node_exporter picks up (--collector.textfile.directory), which is seen whole or not at all:

    \b
    holdfast metrics --to /var/lib/node_exporter/holdfast.prom --every 15
    """
    pause = threading.Event()
    with open_client(invocation) as client:
        while True:
            text = client.usage.metrics()
            if target is not None:
                with open_whole_file(Path(target)) as file:
                    file.write(text.encode())
            elif invocation.is_text:
                click.echo(text, nl=False)
            else:
                emit({"metrics": text})
            if every is None:
                break
            pause.wait(every)
    if target is not None:
        say(f"Wrote {target}.")
