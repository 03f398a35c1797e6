"""What a loop did: evidence, cost and changed files, for programs and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.orchestration.loop.events import FileDelta
from holdfast.orchestration.loop.state import LoopState, StepState

LoopOutcome: TypeAlias = Literal[
    "done",
    "gave_up",
    "retries",
    "stalled",
    "no_plan",
    "budget",
    "time",
    "failed",
    "cancelled",
    "waiting",
    "waiting_for_model",
    "working",
]
"""How a loop ended; the last three have not."""

_TOLD: dict[str, str] = {
    "done": "The goal is reached: every step passed its checks and was accepted.",
    "gave_up": "The reviewer gave up.",
    "retries": "A step was not good enough after all its attempts.",
    "stalled": "Nothing changed any more from one attempt to the next.",
    "no_plan": "No sound plan was handed in.",
    "budget": "The budget is spent.",
    "time": "The time is over.",
    "failed": "An agent failed.",
    "cancelled": "The run was cancelled on request.",
    "waiting": "The run waits for a person.",
    "waiting_for_model": "The model cannot be reached. Resume the run when it can be again.",
    "working": "The run is not over yet.",
}
_MOST_DIFF = 60_000


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check, and whether it held."""

    check: str
    is_passed: bool
    detail: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: what came of it, and what proves it."""

    id: str
    title: str
    status: str
    attempts: int = 0
    depends_on: tuple[str, ...] = ()
    answer: str = ""
    checks: tuple[CheckReport, ...] = ()
    verdict: str = ""
    reason: str = ""
    tools_used: tuple[str, ...] = ()
    session_id: str = ""


class LoopReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """Everything about a loop that somebody wants to know afterwards."""

    run_id: str
    session_id: str
    goal: str
    outcome: LoopOutcome
    reason: str = ""
    answer: str = ""
    steps: tuple[StepReport, ...] = ()
    files: tuple[FileDelta, ...] = ()
    revisions: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    error: JsonObject = msgspec.field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Say whether the goal is reached."""
        return self.outcome == "done"

    def to_json(self) -> JsonObject:
        """Return it as JSON values."""
        return msgspec.json.decode(msgspec.json.encode(self), type=JsonObject)

    def to_markdown(self) -> str:
        """Return it as a page for people."""
        return "\n".join(_find_markdown(self)).rstrip() + "\n"


def make_report(
    state: LoopState,
    *,
    run_id: str,
    session_id: str,
    outcome: LoopOutcome,
    reason: str = "",
    error: JsonObject | None = None,
    files: Sequence[FileDelta] = (),
    now: float = 0.0,
) -> LoopReport:
    """Put a report together from where a loop stands."""
    last = state.plan.list_last_steps() if state.plan is not None else []
    answers = [_answer(state.steps[step.id]) for step in last if step.id in state.steps]
    return LoopReport(
        run_id=run_id,
        session_id=session_id,
        goal=state.goal,
        outcome=outcome,
        reason=reason,
        answer="\n\n".join(answer for answer in answers if answer),
        steps=tuple(_make_step(step) for step in state.steps.values()),
        files=tuple(files),
        revisions=state.revision,
        tokens=state.spent.tokens,
        cost_usd=state.spent.cost_usd,
        seconds=round(state.measure_elapsed(now), 3) if now else state.worked_s,
        error=error or {},
    )


def _answer(state: StepState) -> str:
    for attempt in reversed(state.attempts):
        if attempt.worked is not None and attempt.worked.answer:
            return attempt.worked.answer
    return ""


def _make_step(state: StepState) -> StepReport:
    last = state.attempts[-1] if state.attempts else None
    worked = last.worked if last else None
    checked = last.checked if last else None
    reviewed = last.reviewed if last else None
    return StepReport(
        id=state.step.id,
        title=state.step.title,
        status=state.status,
        attempts=len(state.attempts),
        depends_on=state.step.depends_on,
        answer=worked.answer if worked else "",
        checks=tuple(
            CheckReport(check=r.check.label, is_passed=r.is_passed, detail=r.detail)
            for r in (checked.results if checked else ())
        ),
        verdict=reviewed.verdict if reviewed else "",
        reason=state.reason or (reviewed.reason if reviewed else ""),
        tools_used=worked.tools_used if worked else (),
        session_id=last.started.session_id if last else "",
    )


def _find_markdown(report: LoopReport) -> list[str]:
    lines = [f"# {' '.join(report.goal.split())[:200]}", ""]
    lines += [f"**{report.outcome}**: {_TOLD[report.outcome]}"]
    if report.reason:
        lines += ["", report.reason]
    if report.answer:
        lines += ["", "## Result", "", report.answer.strip()]
    lines += ["", "## Steps and evidence", ""]
    lines += _list_step_lines(report) or ["There was no plan."]
    lines += ["", "## Files changed", ""]
    changed = [f"- {f.change} `{f.path}` (+{f.added} -{f.removed})" for f in report.files]
    lines += changed or ["None."]
    diff = "\n".join(f.diff for f in report.files if f.diff)
    if diff:
        fence = "````"
        lines += ["", f"{fence}diff", diff[:_MOST_DIFF].replace(fence, "` ` ` `"), fence]
    cost = f"${report.cost_usd:.4f}" if report.cost_usd else "no known cost"
    lines += [
        "",
        "## What it took",
        "",
        f"{report.seconds:.1f} s, {report.tokens} tokens, {cost}"
        + (f", {report.revisions} revision(s) of the plan" if report.revisions else "")
        + f". Run `{report.run_id}`, session `{report.session_id}`.",
    ]
    return lines


def _list_step_lines(report: LoopReport) -> list[str]:
    lines = []
    marks = {"done": "x", "failed": "!"}
    for step in report.steps:
        mark = marks.get(step.status, " ")
        tries = f", {step.attempts} attempts" if step.attempts > 1 else ""
        lines.append(f"- [{mark}] **{step.id}** {step.title} ({step.status}{tries})")
        lines += [
            f"  - check {'passed' if check.is_passed else 'FAILED'}: {check.check}"
            + (f" ({_format_one_line(check.detail)})" if check.detail else "")
            for check in step.checks
        ]
        if step.verdict:
            lines.append(f"  - review: {step.verdict}. {_format_one_line(step.reason)}")
        elif step.reason:
            lines.append(f"  - {_format_one_line(step.reason)}")
    return lines


def _format_one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 160 else flat[:159] + "…"
