"""`holdfast runs`: what agents and loops did, do, and wait for."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.loop import LoopWishes, describe_going_on, find_run, run_loop
from holdfast.cli.loop_view import LinesView, choose_view, to_line
from holdfast.cli.output import emit, say
from holdfast.cli.trace import trace
from holdfast.client import AsyncClient
from holdfast.errors import UsageError
from holdfast.orchestration import LOOP_AGENT
from holdfast.orchestration.loop import LoopNews, LoopReport, StepStarted
from holdfast.runtime import read_news
from holdfast.sessions import ENDED, Run

_STATUSES = ("queued", "running", "parked", *ENDED)
_ENDS = ("run.completed", "run.failed", "run.cancelled", "run.parked")


@click.group("runs", cls=Group)
def command() -> None:
    """List, show, watch, resume, cancel or report runs.

    A loop (`holdfast GOAL`) is a run; so is every run of one of its agents, and every call
    of `holdfast run`.
    """


command.add_command(trace)


@command.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs in this state.")
@click.option("--all", "all_kinds", is_flag=True, help="Runs of agents too, not only loops.")
@click.option("--limit", default=20, type=click.IntRange(1, 10_000), help="How many.")
@pass_invocation
def list_(invocation: Invocation, status: str | None, all_kinds: bool, limit: int) -> None:
    """List runs, newest first."""

    async def work() -> list[dict[str, object]]:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            runs = await client.runs.list(
                status=status,  # type: ignore[arg-type]
                kind="" if all_kinds else "loop",
                limit=limit,
            )
            return [await _make_row(client, run) for run in runs]

    rows = run_async(work())
    if not rows and invocation.is_text:
        which = f"{status} " if status else ""
        what = "runs" if all_kinds else "loops; --all lists the runs of agents too"
        say(f'There are no {which}{what}. Begin one: holdfast "Describe this workspace".')
        return
    emit(rows, columns=["id", "status", "steps", "began", "goal"])


@command.command("show")
@click.argument("run")
@pass_invocation
def show(invocation: Invocation, run: str) -> None:
    """Replay RUN: everything that happened in it, in order."""

    async def work() -> tuple[Run, list[LoopNews], LoopReport | None]:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            found = await client.runs.get(run)
            if found.agent != LOOP_AGENT:
                return found, [], None
            return found, await client.loops.replay(run), await client.loops.report(run)

    found, news, report = run_async(work())
    if report is None:
        emit(msgspec.to_builtins(found))
        if invocation.is_text:
            say(f"See `holdfast sessions show {found.session_id}` for its messages.", err=True)
        return
    if not invocation.is_text:
        lines = [line for one in news if (line := to_line(one)) is not None]
        emit(lines if invocation.output == "stream-json" else {"run": found, "events": lines})
        return
    view = LinesView(invocation, err=False)
    for one in news:
        view.hear(one)
    say(
        f"{report.outcome}: {len([s for s in report.steps if s.status == 'done'])} of "
        f"{len(report.steps)} steps done. `holdfast runs report {run}` shows the report."
    )


@command.command("watch")
@click.argument("run")
@pass_invocation
def watch(invocation: Invocation, run: str) -> None:
    """Follow RUN until it rests, from this or any other terminal.

    Ctrl-C stops watching; the run goes on.
    """
    report = run_async(_watch(invocation, run))
    if not invocation.is_text:
        emit(report.to_json())
    else:
        say(f"{report.outcome}. `holdfast runs report {run}` shows the report.")


@command.command("resume")
@click.argument("run", metavar="RUN|FILE")
@click.option("--model", default="", metavar="NAME", help="Another model than it began with.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="After an end: budget.")
@click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="After an end: budget.")
@click.option("--max-time", type=click.FloatRange(1), metavar="S", help="After an end: seconds.")
@pass_invocation
def resume(
    invocation: Invocation,
    /,
    run: str,
    model: str,
    auto_confirm: bool,
    **limits: float | None,
) -> None:
    """Go on with RUN where it stopped, or with a run-ID.jsonl from another machine.

    What is done is not repeated: the unfinished step goes on from its last recorded call.

    A run that has ended stays as it is. If it ended before its goal, for example because its
    budget was spent, new limits (--max-cost, --max-tokens, --max-time) begin another run, which
    takes over the plan and what is done; without them its report is shown.
    """

    async def find() -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            run_id, _ = await find_run(client, run)
            return await client.runs.get(run_id)

    found = run_async(find())
    if found.agent != LOOP_AGENT:
        raise UsageError(
            detail=f"The run {found.id} is none of a loop: {describe_going_on(found)}."
        )
    given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    wishes = LoopWishes(model=model, auto_confirm=auto_confirm, **given)
    if given and not found.has_ended:
        detail = f"The run {found.id} has not ended; it goes on with the limits it began with."
        raise UsageError(detail=detail)
    if given:
        run_loop(invocation, "", dataclasses.replace(wishes, continues=found.id))
        return
    if found.status == "failed" and invocation.is_text:
        again = f"holdfast runs resume {found.id} --max-cost USD"
        say(f"It has ended. To go on with what it did, with limits anew: {again}", err=True)
    run_loop(invocation, "", dataclasses.replace(wishes, run_id=found.id))


@command.command("cancel")
@click.argument("run")
@click.option("--reason", default="", help="Kept with the run.")
@pass_invocation
def cancel(invocation: Invocation, run: str, reason: str) -> None:
    """Ask RUN to end, in whichever process it works; its agents end with it."""

    async def work() -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await client.runs.cancel(run, reason=reason)

    found = run_async(work())
    if invocation.is_text:
        told = {"cancelled": "is cancelled", "running": "was asked to end"}
        say(f"The run {found.id} {told.get(found.status, 'has ended already: ' + found.status)}.")
    else:
        emit(msgspec.to_builtins(found))


@command.command("report")
@click.argument("run")
@click.option("--to", "target", metavar="FILE", help="Write it to a file.")
@pass_invocation
def report_(invocation: Invocation, run: str, target: str | None) -> None:
    """Print what RUN did: result, evidence, cost, changed files; Markdown, or JSON with --json."""

    async def work() -> LoopReport:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await client.loops.report(run)

    report = run_async(work())
    if target:
        text = report.to_markdown()
        if not invocation.is_text:
            text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        Path(target).write_text(text, encoding="utf-8")
        return
    if invocation.is_text:
        say(report.to_markdown())
    else:
        emit(report.to_json())


async def _watch(invocation: Invocation, run_id: str) -> LoopReport:
    view = choose_view(invocation)
    try:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            after = await (await client.storage.journal()).read_last_seq()
            steps: dict[str, str] = {}
            for news in await client.loops.replay(run_id):
                view.hear(news)
                if isinstance(news.fact, StepStarted):
                    steps[news.fact.session_id] = news.fact.step_id
            run = await client.runs.get(run_id)
            if run.has_ended or run.status == "parked":
                return await client.loops.report(run_id)
            feed = client.events.watch(after=after)
            async with contextlib.aclosing(feed):
                async for event in feed:
                    if event.session_id != run.session_id and event.session_id not in steps:
                        continue
                    if event.kind == StepStarted.kind:
                        fact = event.expect(StepStarted)
                        steps[fact.session_id] = fact.step_id
                    news_found = read_news(event, steps)
                    if news_found is not None:
                        view.hear(news_found)
                    if event.kind in _ENDS and event.run_id == run_id:
                        break
            return await client.loops.report(run_id)
    finally:
        view.close()


async def _make_row(client: AsyncClient, run: Run) -> dict[str, object]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.time_queued))
    goal, steps = "", ""
    if run.agent == LOOP_AGENT:
        state = await client.loops.state(run.id)
        steps = f"{len(state.done)}/{len(state.steps)}" if state.steps else "-"
    session = await client.get_session(run.session_id)
    goal = session.title
    return {
        "id": run.id,
        "status": run.status,
        "steps": steps or "-",
        "began": began,
        "goal": goal,
        "agent": run.agent,
        "session_id": run.session_id,
        "reason": run.reason,
    }
