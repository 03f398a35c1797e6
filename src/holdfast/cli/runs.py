"""`holdfast runs`: what agents and loops did, do, and wait for."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.call_view import describe_after
from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.loop import LoopWishes, find_run, run_loop, say_how_to_answer
from holdfast.cli.loop_view import LinesView, choose_view, to_line
from holdfast.cli.output import emit, say
from holdfast.cli.run_view import RunAccount, find_last_run, make_row, read_account
from holdfast.cli.screen import show_lines
from holdfast.cli.steps import StepLines
from holdfast.cli.times import format_age
from holdfast.cli.trace import trace
from holdfast.cli.workflows import show_result
from holdfast.client import AsyncClient
from holdfast.errors import UsageError
from holdfast.messages import ToolPart
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.orchestration.loop import LoopNews, LoopReport, StepStarted
from holdfast.orchestration.workflows import WorkflowResult
from holdfast.runtime import read_news
from holdfast.sessions import ENDED, MessageCreated, MessagePartUpdated, Run

_STATUSES = ("queued", "running", "parked", *ENDED)
_KINDS = ("loop", "workflow", "agent", "call")
_ENDS = ("run.completed", "run.failed", "run.cancelled", "run.parked")


@click.group("runs", cls=Group)
def command() -> None:
    """List, show, watch, attend, resume, cancel or report runs.

    A loop (`holdfast GOAL`) is a run; so is every run of one of its agents, every call of
    `holdfast run`, every turn of a chat, every workflow, and every tool called by hand.
    """


command.add_command(trace)


@command.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs in this state.")
@click.option("--kind", type=click.Choice(_KINDS), help="Only runs of this kind.")
@click.option("--all", "is_nested", is_flag=True, help="Also the runs inside of others.")
@click.option("--limit", default=20, type=click.IntRange(1, 10_000), help="How many.")
@pass_invocation
def list_(
    invocation: Invocation, status: str | None, kind: str | None, is_nested: bool, limit: int
) -> None:
    """List runs of agents, workflows and loops, newest first.

    Runs that another one started are counted with it (INSIDE); --all lists them below it.
    """

    async def work() -> list[dict[str, object]]:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            runs = await client.runs.list(
                status=status,  # type: ignore[arg-type]
                kind=kind or "",
                is_top=True,
                limit=limit,
            )
            rows = []
            for run in runs:
                rows.append(await make_row(client, run))
                below = await client.runs.children(run.id) if is_nested else []
                inside = [await make_row(client, await client.runs.get(one.id)) for one in below]
                inside.sort(key=lambda row: str(row["time_queued"]))
                rows += [{**row, "parent": run.id} for row in inside]
            return rows

    rows = run_async(work())
    if not rows and invocation.is_text:
        which = f"{status} " if status else ""
        say(f'There are no {which}runs. Begin one: holdfast "Describe this workspace".')
        return
    if invocation.is_text:
        rows = [{**row, "id": f"{'  ↳ ' if row.get('parent') else ''}{row['id']}"} for row in rows]
    columns = ["id", "kind", "status", "began", "took", "inside", "goal"]
    emit(rows, columns=[one for one in columns if one == "goal" or any(row[one] for row in rows)])


@command.command("show")
@click.argument("run", required=False)
@pass_invocation
def show(invocation: Invocation, run: str | None) -> None:
    """Replay RUN, by default the last: everything that happened in it, in order."""

    async def work() -> tuple[Run, list[LoopNews], LoopReport | RunAccount | WorkflowResult]:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            found = await find_last_run(client, run)
            if found.agent == LOOP_AGENT:
                report = await client.loops.report(found.id)
                return found, await client.loops.replay(found.id), report
            if found.agent.startswith(AGENT_PREFIX):
                return found, [], await client.workflows.get(found.id)
            return found, [], await read_account(client, found)

    found, news, told = run_async(work())
    if isinstance(told, WorkflowResult):
        show_result(invocation, told)
    elif isinstance(told, RunAccount):
        _show_account(invocation, told)
    elif not invocation.is_text:
        lines = [line for one in news if (line := to_line(one)) is not None]
        emit(lines if invocation.output == "stream-json" else {"run": found, "events": lines})
    else:
        view = LinesView(invocation, err=False)
        for one in news:
            view.hear(one)
        say(
            f"{told.outcome}: {len([s for s in told.steps if s.status == 'done'])} of "
            f"{len(told.steps)} steps done. `holdfast runs report {found.id}` shows the report."
        )


def _show_account(invocation: Invocation, account: RunAccount) -> None:
    run = account.run
    if not invocation.is_text:
        told = msgspec.to_builtins(account)
        emit({**told.pop("run"), **told})
        return
    say(f"{account.kind}, began {format_age(run.time_queued)}: {account.goal}", color="cyan")
    for text, colour in account.list_lines():
        say(text, color=colour)
    error = f": {run.error['message']}" if run.error.get("message") else ""
    say(f"{run.status}{error}. {account.describe_cost()}. Run {run.id}.", color="bright_black")
    if code := run.error.get("code"):
        say(f"code: {code} (explained by: holdfast docs {code})", color="bright_black")
    if not run.has_ended:
        say(f"Go on: holdfast runs resume {run.id}", err=True)


@command.command("watch")
@click.argument("run", required=False)
@pass_invocation
def watch(invocation: Invocation, run: str | None) -> None:
    """Follow RUN, by default the last, until it rests; from this or any other terminal.

    Ctrl-C stops watching; the run goes on.
    """

    async def find() -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await find_last_run(client, run)

    found = run_async(find())
    if found.agent == LOOP_AGENT:
        report = run_async(_watch(invocation, found.id))
        if not invocation.is_text:
            emit(report.to_json())
        else:
            say(f"{report.outcome}. `holdfast runs report {found.id}` shows the report.")
        return
    ended = run_async(_watch_events(invocation, found))
    if not invocation.is_text:
        emit(msgspec.to_builtins(ended))
    else:
        say(f"{ended.status}. `holdfast runs show {ended.id}` shows all of it.")


async def _watch_events(invocation: Invocation, run: Run) -> Run:
    """Show the calls and answers of a run, and the steps of a workflow, as they are kept."""
    lines = StepLines(invocation)
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        async with contextlib.aclosing(client.runs.events(run.id)) as events:
            async for event in events:
                if event.kind == MessagePartUpdated.kind:
                    part = event.expect(MessagePartUpdated).part
                    if isinstance(part, ToolPart) and invocation.is_text:
                        show_lines(describe_after(part))
                elif event.kind == MessageCreated.kind:
                    message = event.expect(MessageCreated).message
                    if message.text:
                        say(f"{'> ' if message.role == 'user' else ''}{message.text}")
                elif event.kind.startswith(("workflow.", "step.")):
                    lines.hear(event.decode())
        return await client.runs.get(run.id)


@command.command("attach")
@click.argument("run", required=False)
@pass_invocation
def attach(invocation: Invocation, run: str | None) -> None:
    """Follow RUN, by default the last, and attend it: what asks is put before you.

    Where it waits and no terminal is here, it goes on as soon as it was answered elsewhere
    (`holdfast approvals`). Ctrl-C leaves a run that works in another process alone.
    """

    async def find(name: str | None) -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await find_last_run(client, name)

    async def wait(parked: Run) -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            below = await client.runs.children(parked.id)
            await say_how_to_answer(client, {parked.id, *[one.id for one in below]})
            return await client.runs.await_answer(parked.id)

    found = run_async(find(run))
    if found.status in ("running", "queued") and found.agent != LOOP_AGENT:
        found = run_async(_watch_events(invocation, found))
    if found.status == "parked" and not (sys.stdin.isatty() and invocation.is_text):
        found = run_async(wait(found))
    if found.agent == LOOP_AGENT:
        run_loop(invocation, "", LoopWishes(run_id=found.id))
    elif found.has_ended:
        click.get_current_context().invoke(show, run=found.id)
    else:
        _resume_other(found, model="", auto_confirm=False)


@command.command("resume")
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option("--model", default="", metavar="NAME", help="Another model than it began with.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="After an end: budget.")
@click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="After an end: budget.")
@click.option("--max-time", type=click.FloatRange(1), metavar="S", help="After an end: seconds.")
@pass_invocation
def resume(
    invocation: Invocation,
    /,
    run: str | None,
    model: str,
    auto_confirm: bool,
    **limits: float | None,
) -> None:
    """Go on with RUN where it stopped, by default the last, or with a run-ID.jsonl from elsewhere.

    What is done is not repeated: the unfinished step goes on from its last recorded call.

    A run that has ended stays as it is. If it ended before its goal, for example because its
    budget was spent, new limits (--max-cost, --max-tokens, --max-time) begin another run, which
    takes over the plan and what is done; without them its report is shown.
    """

    async def find() -> Run:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            run_id, _ = await find_run(client, run or await _find_stopped(client))
            return await client.runs.get(run_id)

    found = run_async(find())
    if found.agent != LOOP_AGENT:
        if any(value is not None for value in limits.values()):
            raise UsageError(detail="New limits are for loops: leave --max-... out.")
        _resume_other(found, model=model, auto_confirm=auto_confirm)
        return
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


async def _find_stopped(client: AsyncClient) -> str:
    """Return the last run that stopped before its end."""
    for found in await client.runs.list(is_top=True, limit=100):
        if not found.has_ended:
            return found.id
    raise UsageError(detail="No run has stopped before its end: holdfast runs list.")


def _resume_other(run: Run, *, model: str, auto_confirm: bool) -> None:
    """Go on with a run that is none of a loop, as the command that began it would."""
    context = click.get_current_context()
    given: dict[str, object] = {}
    if run.agent.startswith(AGENT_PREFIX):
        other = importlib.import_module("holdfast.cli.workflows").run
    elif run.agent:
        given = {"model": model, "auto_confirm": auto_confirm}
        other = importlib.import_module("holdfast.cli.run").command
    else:
        given = {"auto_confirm": auto_confirm}
        other = importlib.import_module("holdfast.cli.tools").run
    known = {one.name for one in other.params}
    context.invoke(other, run_id=run.id, **{k: v for k, v in given.items() if k in known})


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
@click.argument("run", required=False)
@click.option("--to", "target", metavar="FILE", help="Write it to a file.")
@pass_invocation
def report_(invocation: Invocation, run: str | None, target: str | None) -> None:
    """Print what RUN, by default the last, did: Markdown, or JSON with --json.

    Result, evidence, cost, changed files.
    """

    async def work() -> LoopReport | RunAccount | WorkflowResult:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            found = await find_last_run(client, run)
            if found.agent == LOOP_AGENT:
                return await client.loops.report(found.id)
            if found.agent.startswith(AGENT_PREFIX):
                return await client.workflows.get(found.id)
            return await read_account(client, found)

    report = run_async(work())
    if isinstance(report, WorkflowResult):
        if not target:
            show_result(invocation, report)
            return
        text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        Path(target).write_text(text, encoding="utf-8")
        return
    if target:
        text = report.to_markdown()
        if not invocation.is_text:
            text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        Path(target).write_text(text, encoding="utf-8")
        return
    if invocation.is_text:
        say(report.to_markdown())
    else:
        emit(report.to_json() if isinstance(report, LoopReport) else msgspec.to_builtins(report))


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
