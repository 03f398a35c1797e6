"""Run a loop from the command line: `holdfast "goal"`, `run --plan`, `--resume`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from holdfast.canonical import JsonObject
from holdfast.cli.approve import AskInTerminal
from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Invocation
from holdfast.cli.hooks import say_what_is_left_out
from holdfast.cli.loop_view import LoopView, PausingApprover, choose_view
from holdfast.cli.output import emit, say
from holdfast.cli.promote import Promotion
from holdfast.client import AsyncClient
from holdfast.errors import GoalNotReached, UsageError, make_error_from_dict
from holdfast.ids import is_id, make_id
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.orchestration.loop import LoopLimits, LoopOptions, LoopReport
from holdfast.policy import Budget, OnAsk
from holdfast.sessions import Run
from holdfast.tools import AutoConfirm, NoApprover


@dataclass(frozen=True, kw_only=True)
class LoopWishes:
    """What the options of a call say about a loop."""

    agent: str = ""
    model: str = ""
    run_id: str = ""
    auto_confirm: bool = False
    park: bool = False
    parallel: int = 1
    max_attempts: int = 3
    max_cost: float | None = None
    max_tokens: int | None = None
    max_time: float = 3_600.0
    continues: str = ""
    plugins: bool = False
    promote: bool = False
    check: tuple[str, ...] = ()

    @property
    def limits(self) -> LoopLimits:
        """The limits of a loop that begins now."""
        return LoopLimits(
            parallel=self.parallel,
            max_attempts=self.max_attempts,
            wall_s=self.max_time,
            budget=Budget(max_cost_usd=self.max_cost, max_tokens=self.max_tokens),
        )


def run_loop(
    invocation: Invocation, goal: str, wishes: LoopWishes, promotion: Promotion | None = None
) -> None:
    """Run a loop, show it, print its report, and end with the exit code that fits.

    With a promotion, what a loop did that reached its goal is checked and merged.
    """
    report = run_async(_LoopJob(invocation, wishes).run(goal))
    told: JsonObject = report.to_json()
    if invocation.is_text:
        say(report.to_markdown())
    if promotion is not None and report.is_done:
        told["promotion"] = promotion.carry_out(report.session_id, report.goal)
    if not invocation.is_text:
        emit(told)
    end_with(invocation, report)
    if promotion is not None:
        promotion.end()


async def find_run(client: AsyncClient, name: str) -> tuple[str, bool]:
    """Return the id of a run, brought in from a file if need be, and whether it is a loop's.

    `name` is an id, or a `run-<id>.jsonl`.

    Raises:
        NotFound: there is no such run.
        UsageError: the name is neither an id nor a file.
    """
    turns = await client.runs.turns()
    is_file = await asyncio.to_thread(Path(name).is_file)
    if not is_file:
        known = await turns.find(name)
        kept = client.base_dir / f"run-{name}.jsonl"
        if known is None and "/" not in name and await asyncio.to_thread(kept.is_file):
            run = await client.loops.load(kept)
            return run.id, True
        if known is None and not is_id(name):
            detail = f"There is no run and no file {name!r}. See: holdfast runs list."
            raise UsageError(detail=detail)
        run = await turns.get(name)
        return run.id, run.agent == LOOP_AGENT
    run = await client.loops.load(name)
    return run.id, True


def describe_going_on(run: Run) -> str:
    """Return the command that goes on with a run of whichever kind."""
    if run.agent == LOOP_AGENT:
        return f"holdfast runs resume {run.id}"
    way = "run"
    if not run.agent:  # only that of the person who called a tool by hand
        way = "tools run"
    elif run.agent.startswith(AGENT_PREFIX):
        way = "workflows run"
    return f"holdfast {way} --run-id {run.id}"


async def say_how_to_answer(client: AsyncClient, run_ids: Collection[str]) -> None:
    """Name the calls that answer what these runs wait for."""
    for item in await client.approvals.questions():
        if item.run_id in run_ids:
            words = {
                "approval": f"approve {item.id}",
                "unknown_outcome": f"decide {item.id} happened|not-happened|abort",
            }.get(item.reason, f"answer {item.id} TEXT")
            say(f"{item.tool} waits. Answer: holdfast approvals {words}", err=True)


async def say_what_is_left(client: AsyncClient, run_id: str) -> None:
    """Say how an interrupted run stands, and where; its session can go on."""
    run = await (await client.runs.turns()).find(run_id)
    if run is not None:
        say(f"{run.status}. Session {run.session_id}, run {run.id}.", err=True)


def end_with(invocation: Invocation, report: LoopReport) -> None:
    """End with the exit code of a report."""
    if report.is_done or report.outcome == "working":
        return
    if report.outcome in ("waiting", "waiting_for_model"):
        sys.exit(ExitCode.WAITING)
    if report.outcome == "cancelled":
        sys.exit(ExitCode.FAILED)
    if report.outcome in ("budget", "failed") and report.error.get("code"):
        raise make_error_from_dict(report.error)
    del invocation
    reason = " ".join(report.reason.split())[:500]
    raise GoalNotReached(outcome=report.outcome, reason=reason, run_id=report.run_id)


class _LoopJob:
    """One call that runs a loop."""

    def __init__(self, invocation: Invocation, wishes: LoopWishes) -> None:
        self._invocation = invocation
        self._wishes = wishes

    async def run(self, goal: str) -> LoopReport:
        async with AsyncClient(
            self._invocation.place, settings=self._invocation.settings
        ) as client:
            run_id = self._wishes.run_id
            known = await (await client.runs.turns()).find(run_id) if run_id else None
            if known is None and not goal.strip() and not self._wishes.continues:
                raise UsageError(detail="Say what to do: holdfast GOAL.")
            if self._wishes.plugins:
                await client.agents.load_installed()
            ready = await client.providers.model(self._wishes.model)
            notice = ready.notice
            say_what_is_left_out(await client.hooks.list())
            policies = await client.policies.store()
            if threading.current_thread() is threading.main_thread():
                policies.reload_on_hangup()
            view = choose_view(self._invocation)
            self._choose_approver(client, view)
            run_id = run_id or make_id("run")
            try:
                report = await self._stream(client, goal, run_id, view, notice)
            except asyncio.CancelledError:
                view.close()
                await say_what_is_left(client, run_id)
                raise
            finally:
                view.close()
            if report.outcome == "waiting":
                await self._say_how_to_answer(client, report)
            elif report.outcome == "waiting_for_model":
                say(f"The model cannot be reached. When it can: holdfast runs resume {run_id}")
            return report

    async def _stream(
        self, client: AsyncClient, goal: str, run_id: str, view: LoopView, notice: str
    ) -> LoopReport:
        wishes = self._wishes
        on_ask: OnAsk = "park" if wishes.park else "deny"
        options = LoopOptions(
            limits=wishes.limits,
            executor=wishes.agent,
            model=wishes.model,
            on_ask=on_ask,
            continues=wishes.continues,
        )
        items = client.loops.stream(goal, run_id=run_id, options=options)
        async with contextlib.aclosing(items):
            async for item in items:
                if notice:
                    say(notice, err=True, color="yellow")
                    notice = ""
                if isinstance(item, LoopReport):
                    return item
                view.hear(item)
        raise AssertionError("a stream ends with a report")

    def _choose_approver(self, client: AsyncClient, view: LoopView) -> None:
        if self._wishes.auto_confirm:
            client.approver = AutoConfirm()
        elif sys.stdin.isatty() and self._invocation.is_text and not self._wishes.park:
            client.approver = PausingApprover(AskInTerminal(), view)
        else:
            client.approver = NoApprover()

    async def _say_how_to_answer(self, client: AsyncClient, report: LoopReport) -> None:
        below = await client.runs.children(report.run_id)
        await say_how_to_answer(client, {report.run_id, *[child.id for child in below]})
        say(f"Then go on: holdfast --resume {report.run_id}", err=True)
