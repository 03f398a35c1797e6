"""`holdfast run --promote`: work apart, and merge only what passes the checks."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.approve import AskInTerminal
from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Invocation
from holdfast.cli.output import say
from holdfast.client import AsyncClient
from holdfast.errors import PromotionRefused, UsageError
from holdfast.orchestration.promotion import CheckEvidence, PromotionGuard, PromotionReport
from holdfast.settings import Settings
from holdfast.tools import Approver, AutoConfirm, NoApprover

if TYPE_CHECKING:
    from holdfast.cli.loop import LoopWishes

_MOST_OUTPUT = 16_000


class Promotion:
    """One promoted run of the command line."""

    def __init__(self, invocation: Invocation, run_id: str, wishes: LoopWishes) -> None:
        """Make the worktree ready.

        Raises:
            UsageError: there is no check, or no repository that is fit; nothing was made.
        """
        if invocation.place is not None:
            raise UsageError(detail="--promote is for repositories of this machine.")
        settings = invocation.settings
        chosen = settings.promotion
        if wishes.check:
            chosen = chosen.model_copy(update={"checks": wishes.check})
        self.run_id = run_id
        self._is_confirmed = wishes.auto_confirm
        self._invocation = invocation
        self._timeout_s = chosen.check_timeout_s
        self._guard = PromotionGuard(settings.workspace, run_id, chosen)
        self._report: PromotionReport | None = None
        loaded = msgspec.structs.replace(
            invocation.loaded, settings=self._place_settings(self._guard.workspace)
        )
        self.inside = dataclasses.replace(invocation, _loaded=loaded)
        """The same call, for work in the worktree."""
        say(f"Working in {self._guard.workspace}.", err=True)

    def carry_out(self, session_id: str, goal: str) -> JsonObject:
        """Check and merge; returns the report, which is kept with the session too."""
        report = self._report = run_async(self._promote(session_id, goal))
        if self._invocation.is_text:
            say(report.to_markdown())
        return report.to_json()

    def end(self) -> None:
        """End with an error where there is work that was not merged.

        Raises:
            PromotionRefused: so it is.
        """
        report = self._report
        if report is not None and report.is_refused:
            raise PromotionRefused(
                outcome=report.outcome,
                reason=" ".join(report.reason.split())[:500],
                worktree=report.worktree,
                branch=report.branch,
                run_id=report.run_id,
            )

    async def _promote(self, session_id: str, goal: str) -> PromotionReport:
        async def run_check(command: str, directory: Path) -> CheckEvidence:
            return await self._run_check(session_id, command, directory)

        report = await self._guard.promote(run_check, goal=goal)
        async with AsyncClient(settings=self._invocation.settings) as client:
            await client.artifacts.save(
                f"promotion-{self.run_id}.md", report.to_markdown().encode(), session_id=session_id
            )
        return report

    async def _run_check(self, session_id: str, command: str, directory: Path) -> CheckEvidence:
        """Run a check as a call by hand: through the gate, in the sandbox, in the journal."""
        say(f"Checking: {command}", err=True)
        began = time.perf_counter()
        async with AsyncClient(settings=self._place_settings(directory)) as client:
            client.approver = self._make_approver()
            arguments: JsonObject = {
                "command": command,
                "description": f"Check {self.run_id} before it is merged",
                "timeout": self._timeout_s,
            }
            called = await client.tools.call("bash", arguments, session_id=session_id)
        part = called.part
        code = part.metadata.get("exit_code")
        output = part.error or part.output
        return CheckEvidence(
            command=command,
            is_passed=part.state == "completed" and code == 0,
            exit_code=code if isinstance(code, int) else None,
            seconds=round(time.perf_counter() - began, 3),
            output=output[-_MOST_OUTPUT:],
        )

    def _place_settings(self, directory: Path) -> Settings:
        # Policies and everything else stay those of the repository itself: what lies in the
        # worktree was written by the agent.
        return self._invocation.settings.model_copy(update={"workspace": directory})

    def _make_approver(self) -> Approver:
        if self._is_confirmed:
            return AutoConfirm()
        if sys.stdin.isatty() and self._invocation.is_text:
            return AskInTerminal()
        return NoApprover()
