"""`holdfast worker`: a process that goes on with whatever waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import click

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient


@click.command("worker", cls=CliCommand)
@click.argument("target", required=False, default="")
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=4, help="So many sessions at once."
)
@click.option(
    "--queues",
    default="",
    help="Take only what `workers.queues` binds to these queues, such as `review,plan`; `-` is "
    "the queue of all agents that are bound to none.",
)
@click.option("--triggers", is_flag=True, help="Fire triggers too, each event in one worker.")
@click.option("--name", default="", help="How `holdfast workers list` calls it.")
@click.option(
    "--most-failures",
    type=click.IntRange(1),
    default=5,
    help="After so many failed or lost attempts a session is left alone.",
)
@pass_invocation
def command(
    invocation: Invocation,
    target: str,
    concurrency: int,
    queues: str,
    triggers: bool,
    name: str,
    most_failures: int,
) -> None:
    """Go on with whatever waits in any session, until stopped.

    Without TARGET, with the agents of the project. With TARGET, such as `app:agents`, also with
    those of a Python module. Start as many as you like, on any machine that reaches the Postgres of
    `storage.url`; with SQLite, on the machine of the file.

    Ctrl-C, or SIGTERM, lets turns go on for `server.grace_s`; what has not ended then goes on in
    another worker. One that is killed loses its sessions to others after `sessions.lease_ttl_s`.

    \b
    holdfast worker app:agents --concurrency 8
    holdfast worker --queues review          # nothing but the agents that are bound to it
    """
    settings = invocation.settings
    stop = asyncio.Event()

    def ask_to_stop() -> None:
        stop.set()
        say("Handing over; Ctrl-C again ends it.", err=True)

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def terminate() -> None:
            loop.remove_signal_handler(signal.SIGTERM)
            ask_to_stop()

        # Only the main thread of a process hears signals.
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, terminate)
        async with AsyncClient(invocation.place, settings=settings) as client:
            if target:
                from holdfast.server import load_agents  # noqa: PLC0415 - an optional extra

                for agent in load_agents(target, directory=settings.workspace):
                    await client.agents.register(agent)
            if invocation.is_text:
                say("Working; Ctrl-C ends.", err=True)
            else:
                emit({"pid": os.getpid()})
                sys.stdout.flush()
            await client.workers.run(
                stop,
                concurrency=concurrency,
                name=name,
                most_failures=most_failures,
                triggers=triggers,
                queues=[("" if one.strip() == "-" else one.strip()) for one in queues.split(",")],
            )

    run_async(work(), wind_down=ask_to_stop)
