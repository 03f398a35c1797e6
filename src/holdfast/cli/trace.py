"""`holdfast runs trace`: send the trace of a run to an OTLP receiver."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.runtime import SentTrace


@click.command("trace")
@click.argument("run")
@click.option("--otlp", "url", default="", metavar="URL", help="Receiver (telemetry.otlp_url).")
@click.option("--content", is_flag=True, default=None, help="Send texts too, without secrets.")
@pass_invocation
def trace(invocation: Invocation, run: str, url: str, content: bool | None) -> None:
    """Send the trace of a run and of all below it to an OpenTelemetry receiver.

    It is made from the journal, so the run may have ended last week, in other processes. The
    same run always makes the same trace.

    \b
    holdfast runs trace RUN --otlp http://127.0.0.1:4318
    """
    sent = run_async(_send(invocation, run, url, content))
    if invocation.is_text:
        say(f"Sent {sent.spans} spans of the trace {sent.trace_id} to {sent.url}.")
    else:
        emit(msgspec.to_builtins(sent))


async def _send(invocation: Invocation, run: str, url: str, content: bool | None) -> SentTrace:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        return await client.runs.trace(run, url, has_content=content)
