"""`holdfast triggers`: what starts by itself."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.orchestration.triggers import Trigger, read_trigger
from holdfast.orchestration.workflows import SUFFIXES

_T = TypeVar("_T")


@click.group("triggers", cls=Group)
def command() -> None:
    """Start agents and workflows on events or a schedule."""


@command.command("add")
@click.argument("name")
@click.option("--on", "kinds", multiple=True, metavar="KIND", help="An event, as run.*; repeat.")
@click.option("--where", metavar="EXPR", help="A condition, as event.data.status == 'failed'.")
@click.option("--session", default="", metavar="ID", help="Only events of this session.")
@click.option("--project", default="", metavar="ID", help="Only events of this project.")
@click.option("--cron", metavar="FIELDS", help="A schedule, as '*/5 * * * *'.")
@click.option("--zone", default="UTC", show_default=True, help="The schedule's time zone.")
@click.option(
    "--missed",
    type=click.Choice(["skip", "once", "all"]),
    default="once",
    show_default=True,
    help="What becomes of times at which nothing ran.",
)
@click.option("--agent", metavar="NAME", help="The agent to start, with --message.")
@click.option("--message", metavar="TEXT", help="What it is told; ${event.kind} is filled in.")
@click.option("--workflow", metavar="NAME", help="The workflow to start: a name or a file.")
@click.option("--input", "-i", "inputs", multiple=True, metavar="NAME=VALUE", help="Its inputs.")
@click.option("--park", is_flag=True, help="Let runs wait where a call asks; else it is refused.")
@pass_invocation
def add(invocation: Invocation, /, name: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Add the trigger NAME: on events or at times, an agent or a workflow.

    It fires while `holdfast triggers run` is running somewhere on this state directory.
    """
    trigger = _trigger(name, options)

    async def work(client: AsyncClient) -> None:
        if trigger.workflow is not None:
            await client.workflows.validate(trigger.workflow)
        await client.triggers.add(trigger)

    _run(invocation, work)
    if invocation.is_text:
        say(f"Added the trigger {name}. It fires while `holdfast triggers run` is running.")
    else:
        emit({"added": name, "trigger": trigger.to_json()})


def _trigger(name: str, options: dict[str, Any]) -> Trigger:
    content: dict[str, Any] = {"name": name, "on_ask": "park" if options["park"] else "deny"}
    if options["kinds"]:
        content["on"] = {"kinds": list(options["kinds"])}
        content["on"] |= {k: options[k] for k in ("where", "session", "project") if options[k]}
    if options["cron"]:
        content["at"] = {k: options[k] for k in ("cron", "zone", "missed")}
    content |= {k: options[k] for k in ("agent", "message") if options[k]}
    workflow = options["workflow"]
    if workflow:
        # The loop may run in another directory.
        is_file = workflow.endswith(SUFFIXES)
        content["workflow"] = str(Path(workflow).absolute()) if is_file else workflow
    if options["inputs"]:
        content["with"] = dict(one.partition("=")[::2] for one in options["inputs"])
    return read_trigger(content)


@command.command("list")
@click.option("--firings", is_flag=True, help="List what triggers have started, newest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="So many at most.")
@pass_invocation
def list_(invocation: Invocation, firings: bool, limit: int) -> None:
    """List the triggers in force, or with --firings what they have started."""

    async def work(client: AsyncClient) -> list[dict[str, object]]:
        if firings:
            found = await client.triggers.firings(limit=limit)
            return [msgspec.to_builtins(one) for one in found]
        return [
            {
                "name": row.name,
                **_describe(row.trigger),
                "fired": row.fired,
                "trigger": row.definition,
            }
            for row in await client.triggers.list()
        ]

    shown = ["name", "occurrence", "status", "run_id"] if firings else ["name", "when", "starts"]
    emit(_run(invocation, work), columns=shown if firings else [*shown, "fired"])


def _describe(trigger: Trigger) -> dict[str, object]:
    if trigger.at is not None:
        when = f"{trigger.at.cron} {trigger.at.zone}"
    else:
        pattern = trigger.on
        assert pattern is not None
        when = ", ".join(pattern.kinds) + (f" where {pattern.where}" if pattern.where else "")
    starts = f"agent {trigger.agent}" if trigger.agent else f"workflow {trigger.workflow}"
    return {"when": when, "starts": starts}


@command.command("remove")
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove the trigger NAME; what it has started goes on."""

    async def work(client: AsyncClient) -> None:
        await client.triggers.remove(name)

    _run(invocation, work)
    if invocation.is_text:
        say(f"Removed the trigger {name}.")
    else:
        emit({"removed": name})


@command.command("run")
@click.option("--once", is_flag=True, help="Start what is due now, wait for it, and end.")
@click.option("--parallel", type=click.IntRange(1, 64), default=4, help="So many runs at once.")
@pass_invocation
def run(invocation: Invocation, once: bool, parallel: int) -> None:
    """Fire triggers until interrupted; several processes may do so at once.

    The first Ctrl-C lets what was started come to its end, the second ends it.
    """

    stop = asyncio.Event()

    def ask_to_stop() -> None:
        stop.set()
        say("Waiting for what is under way; Ctrl-C again ends it.", err=True)

    async def work(client: AsyncClient) -> None:
        loop = asyncio.get_running_loop()

        def terminate() -> None:
            loop.remove_signal_handler(signal.SIGTERM)  # the next one ends us, as it ends others
            ask_to_stop()

        # Only the main thread of a process hears signals.
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, terminate)
        if not once:
            count = len(await client.triggers.list())
            say(f"Firing {count} triggers; Ctrl-C ends.", err=True)
        await client.triggers.run(stop, once=once, most_parallel=parallel)

    _run(invocation, work, wind_down=ask_to_stop)
    if once and not invocation.is_text:
        emit({"done": True})


def _run(
    invocation: Invocation,
    work: Callable[[AsyncClient], Awaitable[_T]],
    *,
    wind_down: Callable[[], object] | None = None,
) -> _T:
    async def whole() -> _T:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await work(client)

    return run_async(whole(), wind_down=wind_down)
