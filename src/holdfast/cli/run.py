"""`holdfast run`: give an agent a goal and watch it work."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from dataclasses import replace
from typing import Any

import click
import msgspec

from holdfast.agents import AgentResult
from holdfast.cli.approve import AskInTerminal
from holdfast.cli.detached import start_detached
from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.hooks import say_what_is_left_out
from holdfast.cli.loop import (
    LoopWishes,
    describe_going_on,
    find_run,
    run_loop,
    say_how_to_answer,
    say_what_is_left,
)
from holdfast.cli.output import emit, say
from holdfast.cli.promote import Promotion
from holdfast.cli.run_view import format_duration
from holdfast.cli.screen import Screen
from holdfast.client import AsyncClient
from holdfast.errors import NothingDone, UsageError, make_error_from_dict
from holdfast.ids import make_id
from holdfast.orchestration.loop import LoopOptions
from holdfast.policy import OnAsk
from holdfast.sessions import list_unfinished
from holdfast.tools import Approver, Attendant, AutoConfirm, NoApprover


@click.command("run", cls=CliCommand)
@click.argument("goal", nargs=-1)
@click.option(
    "--agent", default="", metavar="NAME", help="Agent; else the session's, or the default."
)
@click.option("--plugins", is_flag=True, help="Also agents of installed packages.")
@click.option("--model", default="", metavar="NAME", help="Model, as in openai:gpt-5.2.")
@click.option("--session", default="", metavar="ID", help="Go on in this session.")
@click.option("--run-id", default="", metavar="ID", help="Name the run; the same name resumes it.")
@click.option("--plan", is_flag=True, help="Plan, work, check and review, until it is done.")
@click.option("--resume", default="", metavar="ID|FILE", help="Go on with a run or its file.")
@click.option("--parallel", default=1, type=click.IntRange(1, 64), help="--plan: steps at once.")
@click.option(
    "--max-attempts", default=3, type=click.IntRange(1, 100), help="--plan: tries per step."
)
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="--plan: budget.")
@click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="--plan: budget.")
@click.option(
    "--max-time",
    default=3600.0,
    type=click.FloatRange(1),
    metavar="S",
    help="--plan: seconds.",
)
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option(
    "--park", is_flag=True, help="Let the run wait where a call asks; else it is refused."
)
@click.option(
    "--detach",
    is_flag=True,
    help="Work in the background and wait there for answers; see `runs attach`.",
)
@click.option("--submit", is_flag=True, help="Leave it to `holdfast worker`, on any machine.")
@click.option(
    "--promote",
    is_flag=True,
    help="Work in a git worktree of its own, and merge only what passes all checks.",
)
@click.option(
    "--check",
    multiple=True,
    metavar="COMMAND",
    help="--promote: a check, instead of those of promotion.checks; may be given again.",
)
@click.option("--attend", is_flag=True, hidden=True, help="Go on when what it waits for came.")
@pass_invocation
def command(
    invocation: Invocation,
    /,
    goal: tuple[str, ...],
    plan: bool,
    resume: str,
    session: str,
    detach: bool,
    submit: bool,
    attend: bool,
    **chosen: Any,  # noqa: ANN401 - the options above
) -> None:
    """Give an agent a goal and watch it work.

    With --plan (and so with `holdfast GOAL`) a planner makes steps with checks, an executor
    works on them, and a reviewer judges each one whose checks hold; see `holdfast runs`.

    Every step is kept: kill it at any moment and the same --run-id goes on. Without a key
    and without a model server, the built-in offline model answers; it can look around a
    workspace, show a file, outline a plan and use a calculator, and says so.

    With --promote the agent works in a git worktree beside the repository. When it is done, its
    changes are merged into the branch that is checked out, provided that every check passes on
    exactly what would be merged; else they stay on a branch of their own. Checks are commands,
    run in the sandbox: those of `promotion.checks`, or --check.

    A run that waits for a person ends with exit code 5 and says how to answer; afterwards
    --run-id alone goes on with it.
    """
    wishes = LoopWishes(**chosen)
    if detach or submit:
        if resume or wishes.promote or not goal or (detach and submit):
            option = "--detach" if detach else "--submit"
            raise UsageError(detail=f"{option} is for a new goal: holdfast run {option} GOAL.")
        leave = _detach if detach else _submit
        leave(invocation, session, " ".join(goal), wishes, plan=plan)
        return
    if resume:
        run_id, is_loop = run_async(_find(invocation, resume))
        wishes = replace(wishes, run_id=run_id)
        plan = is_loop
    if plan and session:
        raise UsageError(detail="A loop has a session of its own: leave --session out.")
    if wishes.check and not wishes.promote:
        raise UsageError(detail="--check belongs to --promote.")
    promotion = None
    if wishes.promote:
        promotion = Promotion(invocation, wishes.run_id or make_id("run"), wishes)
        invocation, wishes = promotion.inside, replace(wishes, run_id=promotion.run_id)
    if plan:
        run_loop(invocation, " ".join(goal), wishes, promotion)
        return
    job = _Job(invocation, session, wishes)
    result = run_async(job.attend(" ".join(goal)) if attend else job.run(" ".join(goal)))
    told = msgspec.to_builtins(result)
    if promotion is not None and result.status == "completed" and not _find_undone(result):
        told["promotion"] = promotion.carry_out(result.session_id, " ".join(goal))
    if not invocation.is_text:
        emit(told)
    end_with(result)
    if promotion is not None:
        promotion.end()


def _detach(
    invocation: Invocation, session: str, goal: str, wishes: LoopWishes, *, plan: bool
) -> None:
    if plan or invocation.place is not None:
        raise UsageError(detail="--detach is for a run of an agent, on this machine.")
    start_detached(invocation, goal, session, wishes)


def _submit(
    invocation: Invocation, session: str, goal: str, wishes: LoopWishes, *, plan: bool
) -> None:
    run_async(_submit_to_workers(invocation, session, goal, wishes, plan=plan))


async def _submit_to_workers(
    invocation: Invocation, session: str, goal: str, wishes: LoopWishes, *, plan: bool
) -> None:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        if plan:
            options = LoopOptions(limits=wishes.limits, model=wishes.model, on_ask="park")
            run = await client.loops.submit(goal, run_id=wishes.run_id, options=options)
        else:
            run = await client.runs.submit(
                wishes.agent, session, goal, run_id=wishes.run_id, model=wishes.model
            )
    if not invocation.is_text:
        emit(msgspec.to_builtins(run))
        return
    say(run.id)
    say(f"It waits for a worker. Follow it: holdfast runs watch {run.id}", err=True)


async def _find(invocation: Invocation, name: str) -> tuple[str, bool]:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        return await find_run(client, name)


class _Job:
    """One call of `holdfast run`."""

    def __init__(self, invocation: Invocation, session: str, wishes: LoopWishes) -> None:
        self._invocation = invocation
        self._agent = wishes.agent
        self._has_plugins = wishes.plugins
        self._model = wishes.model
        self._session = session
        self._run_id = wishes.run_id
        self._auto_confirm = wishes.auto_confirm
        self._on_ask: OnAsk = "park" if wishes.park else "deny"
        self._screen = Screen(invocation)

    async def attend(self, goal: str) -> AgentResult:
        """Run the agent, and go on by itself when an approver, anywhere, has answered."""
        result = await self.run(goal)
        while result.status == "parked":
            self._run_id = result.run_id
            settings = self._invocation.settings
            async with AsyncClient(self._invocation.place, settings=settings) as client:
                await client.runs.await_answer(result.run_id)
            result = await self.run("")
        return result

    async def run(self, goal: str) -> AgentResult:
        """Run the agent on the goal, here or on the server that was named."""
        if self._invocation.place is not None:
            return await self._run_there(goal)
        async with AsyncClient(
            self._invocation.place, settings=self._invocation.settings
        ) as client:
            if self._has_plugins:
                await client.agents.load_installed()
            agent = await self._look_up(client, goal)
            ready = await client.providers.model(self._model)
            notice = ready.notice
            say_what_is_left_out(await client.hooks.list())
            client.approver = self._make_approver()
            client.attendant = self._choose_attendant()
            policies = await client.policies.store()
            # `kill -HUP`, or `holdfast policies reload` elsewhere, holds from the next call on.
            if threading.current_thread() is threading.main_thread():
                policies.reload_on_hangup()
            await self._say_what_stands_before(client)
            run_id = self._run_id or make_id("run")
            items = client.stream_agent(
                agent,
                self._session,
                goal,
                run_id=run_id,
                model=self._model,
                on_ask=self._on_ask,
                with_children=True,
            )
            try:
                async with contextlib.aclosing(items):
                    async for item in items:
                        # Not before: what is refused has no model that would answer.
                        if notice:
                            say(notice, err=True, color="yellow")
                            notice = ""
                        if isinstance(item, AgentResult):
                            self._screen.tell(item)
                            if item.status == "parked":
                                await self._say_how_to_answer(client, item)
                            return item
                        self._screen.hear(item)
            except asyncio.CancelledError:
                self._screen.close()
                await say_what_is_left(client, run_id)
                raise
        raise AssertionError("a stream ends with a result")

    async def _run_there(self, goal: str) -> AgentResult:
        """Run the agent on a server; what asks there is refused, or parks with --park."""
        if self._auto_confirm or self._has_plugins:
            raise UsageError(
                detail="--auto-confirm and --plugins are for runs of this process; on a server, "
                "its own rules decide: use --park, and `holdfast approvals`."
            )
        if not goal and not self._run_id:
            raise UsageError(detail="Say what to do: holdfast run GOAL.")
        invocation = self._invocation
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            items = client.runs.stream(
                self._agent,
                self._session,
                goal,
                run_id=self._run_id,
                model=self._model,
                on_ask=self._on_ask,
            )
            async with contextlib.aclosing(items):
                async for item in items:
                    if isinstance(item, AgentResult):
                        self._screen.tell(item)
                        if item.status == "parked":
                            await self._say_how_to_answer(client, item)
                        return item
                    self._screen.hear(item)
        raise AssertionError("a stream ends with a result")

    async def _look_up(self, client: AsyncClient, goal: str) -> str:
        """Return the agent that was named, or that of the run that goes on, with its model."""
        turns = await client.runs.turns()
        known = await turns.find(self._run_id) if self._run_id else None
        if known is None and not goal:
            raise UsageError(detail="Say what to do: holdfast run GOAL.")
        if known is not None and not known.agent:
            # The approver who consented to this call did not consent to what an agent would do
            # next.
            raise UsageError(
                detail=f"The run {known.id} is a call by hand: {describe_going_on(known)}."
            )
        if known is None:
            return self._agent
        if not self._model:
            self._model = (await client.runs.request(known.id)).model
        return self._agent or known.agent

    async def _say_what_stands_before(self, client: AsyncClient) -> None:
        """Say which run of the session has to be answered before this one can begin, if any."""
        if not self._session or client.settings.sessions.on_busy not in ("queue", "steer"):
            return
        session = await client.get_session(self._session)
        first = next(iter(await list_unfinished(await client.storage.journal(), session.id)), None)
        if first is None or first.id == self._run_id:
            return
        if first.status == "running":
            since = f", for {format_duration(first)}" if first.time_started else ""
            holder = first.owner or "unknown"
            say(
                f"The run {first.id} holds this session{since} (process {holder}); "
                "yours begins when it ends, or a moment after its process died.",
                err=True,
                color="yellow",
            )
        if first.status != "parked":
            return
        say(f"The run {first.id} of this session waits for a person; yours waits for it.", err=True)
        below = await client.runs.children(first.id)
        await say_how_to_answer(client, {first.id, *[child.id for child in below]})
        say(
            f"Then go on: {describe_going_on(first)}; or end it: holdfast runs cancel {first.id}",
            err=True,
        )

    async def _say_how_to_answer(self, client: AsyncClient, result: AgentResult) -> None:
        below = await client.runs.children(result.run_id)
        await say_how_to_answer(client, {result.run_id, *[child.id for child in below]})
        say(f"Then go on: holdfast run --run-id {result.run_id}", err=True)

    def _choose_attendant(self) -> Attendant | None:
        """The person at the terminal answers questions, also where calls need no consent."""
        return AskInTerminal() if sys.stdin.isatty() and self._invocation.is_text else None

    def _make_approver(self) -> Approver:
        if self._auto_confirm:
            return AutoConfirm()
        if sys.stdin.isatty() and self._invocation.is_text:
            return AskInTerminal()
        return NoApprover()


def end_with(result: AgentResult) -> None:
    """End with the exit code that fits."""
    if result.status == "failed":
        raise make_error_from_dict(result.metadata.get("error", {}))
    if result.status == "parked":
        sys.exit(ExitCode.WAITING)
    if result.status == "cancelled":
        sys.exit(ExitCode.FAILED)
    if reason := _find_undone(result):
        raise NothingDone(reason=reason, run_id=result.run_id)


def _find_undone(result: AgentResult) -> str:
    return " ".join(str(result.metadata.get("not_done") or "").split())
