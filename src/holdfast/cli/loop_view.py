"""How a loop looks while it works: lines for files and pipes, a living plan on a terminal.

Both are fed with the same news, live or read back from the journal, so that a replay shows what
was shown. Everything that a model or a file said is made harmless first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import click
import msgspec

from holdfast.cli.frame import Invocation
from holdfast.cli.output import has_color, make_printable, paint
from holdfast.clock import SYSTEM
from holdfast.messages import ToolPart
from holdfast.orchestration.loop import LoopNews, LoopState, Plan
from holdfast.orchestration.loop import events as facts
from holdfast.sessions import RunCancelled, RunParked, RunResumed
from holdfast.tools import ApprovalAnswer, ApprovalRequest, Approver

_SHOWN = 110
_MOST_ROWS = 30


class LoopView(Protocol):
    """Whatever shows a loop."""

    def hear(self, news: LoopNews) -> None:
        """Show one thing that happened."""

    def pause(self) -> None:
        """Leave the screen to another writer for a while."""

    def go_on(self) -> None:
        """Take the screen back."""

    def close(self) -> None:
        """Show the last state and leave the screen for good."""


def choose_view(invocation: Invocation) -> LoopView:
    """Return what suits the call: a living plan on a terminal, else lines, JSON or silence."""
    if invocation.output == "stream-json":
        return StreamView()
    if not invocation.is_text:
        return SilentView()
    if sys.stderr.isatty():
        return LiveView(invocation)
    return LinesView(invocation)


class SilentView:
    """Shows nothing: the report comes at the end, in one piece."""

    def hear(self, news: LoopNews) -> None:
        """Nothing is shown."""

    def pause(self) -> None:
        """There is nothing to pause."""

    def go_on(self) -> None:
        """There is nothing to take back."""

    def close(self) -> None:
        """There is nothing to close."""


class StreamView(SilentView):
    """One JSON object per line, for programs."""

    def hear(self, news: LoopNews) -> None:
        """Print facts and finished calls; pieces of texts are left out."""
        line = to_line(news)
        if line is not None:
            click.echo(msgspec.json.encode(line))


class LinesView(SilentView):
    """One line per thing that happened, on stderr unless told otherwise."""

    def __init__(self, invocation: Invocation, *, err: bool = True) -> None:
        """Write to stderr, so that stdout holds the report alone; a replay writes to stdout."""
        self._invocation = invocation
        self._err = err

    def hear(self, news: LoopNews) -> None:
        """Print the lines of one piece of news."""
        for text, color in list_lines(news):
            stream = sys.stderr if self._err else sys.stdout
            shown = paint(make_printable(text)[:_SHOWN], color, self._invocation, stream=stream)
            click.echo(shown, err=self._err)


class LiveView:
    """The plan with a spinner at each step that is worked on, and what it has taken so far."""

    def __init__(self, invocation: Invocation) -> None:
        """Load the terminal library, and show at once that something is under way."""
        self._state = LoopState()
        self._now = ""
        self._notes: list[str] = []
        self._began = SYSTEM.monotonic()
        console = importlib.import_module("rich.console").Console(
            file=sys.stderr, no_color=not has_color(invocation, sys.stderr), highlight=False
        )
        self._spinner = importlib.import_module("rich.spinner").Spinner("dots")
        self._live: Any = importlib.import_module("rich.live").Live(
            get_renderable=self._draw, console=console, refresh_per_second=8, transient=False
        )
        self._live.start(refresh=True)

    def hear(self, news: LoopNews) -> None:
        """Take one piece of news in; the screen is drawn again by itself."""
        if news.fact is not None:
            self._state.apply(news.fact, news.time)
            self._note(news.fact)
        elif isinstance(news.heard, ToolPart):
            part = news.heard
            self._now = f"{news.role}: {part.tool} {part.title or _format_arguments(part)}"
        elif news.role and not self._now.startswith(news.role):
            self._now = f"{news.role} is thinking"

    def pause(self) -> None:
        """Stop drawing, so that a person can be asked."""
        self._live.stop()

    def go_on(self) -> None:
        """Draw again."""
        self._live.start(refresh=True)

    def close(self) -> None:
        """Draw a last time."""
        self._now = ""
        self._live.stop()

    def _note(self, fact: object) -> None:
        match fact:
            case facts.PlanRefused(problems=problems):
                self._notes.append(f"✗ plan refused: {'; '.join(problems)}")
            case facts.PlanRevised(revision=revision, reason=reason):
                self._notes.append(f"↻ plan revised ({revision}): {reason}")
            case facts.LoopWaited():
                self._notes.append(_describe_wait(fact))
            case facts.StepStarted(attempt=attempt, because=because) if attempt > 1:
                self._notes.append(f"↻ {fact.step_id}, attempt {attempt}: {because}")
        self._notes = self._notes[-3:]

    def _draw(self) -> object:
        tables, texts = importlib.import_module("rich.table"), importlib.import_module("rich.text")
        group = importlib.import_module("rich.console").Group
        table = tables.Table(box=None, show_header=False, pad_edge=False)
        for width in (2, None, None):
            table.add_column(width=width, overflow="ellipsis", no_wrap=True)
        for mark, title, note in self._list_rows():
            spinner = self._spinner if mark == "…" else texts.Text(mark, style=_COLORS[mark])
            table.add_row(spinner, texts.Text(make_printable(title)), texts.Text(note, style="dim"))
        cut = {"no_wrap": True, "overflow": "ellipsis"}
        notes = [texts.Text(_shorten(note), style="yellow", **cut) for note in self._notes]
        current = texts.Text(_shorten(self._now), style="dim", **cut)
        return group(table, *notes, current, texts.Text(self._take(), style="dim"))

    def _list_rows(self) -> list[tuple[str, str, str]]:
        state = self._state
        if state.plan is None:
            return [("…", "Planning", "")]
        rows = []
        for step in state.steps.values():
            mark = {"done": "✓", "failed": "✗", "working": "…"}.get(step.status, "·")
            tries = f"attempt {len(step.attempts)}" if len(step.attempts) > 1 else ""
            rows.append((mark, f"{step.step.id}  {step.step.title}", tries))
        if len(rows) <= _MOST_ROWS:
            return rows
        # A long plan: what is under way, and a little around it.
        at = next((n for n, row in enumerate(rows) if row[0] != "✓"), len(rows))
        low = max(0, min(at - 5, len(rows) - _MOST_ROWS))
        return [
            ("·", f"{low} steps before", ""),
            *rows[low : low + _MOST_ROWS],
            ("·", f"{max(0, len(rows) - low - _MOST_ROWS)} steps after", ""),
        ]

    def _take(self) -> str:
        state = self._state
        done = f"{len(state.done)}/{len(state.steps)} steps" if state.steps else "no plan yet"
        seconds = SYSTEM.monotonic() - self._began
        spent = state.spent
        return f"{done} · {spent.tokens} tokens · ${spent.cost_usd:.4f} · {seconds:.0f} s"


_COLORS = {"✓": "green", "✗": "red", "·": "dim", "…": ""}


class PausingApprover:
    """Asks with the screen free of everything else."""

    def __init__(self, approver: Approver, view: LoopView) -> None:
        """Ask with this approver, over this view."""
        self._approver = approver
        self._view = view

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Pause the view, ask, and go on."""
        self._view.pause()
        try:
            return await self._approver.approve(request)
        finally:
            self._view.go_on()


def to_line(news: LoopNews) -> dict[str, object] | None:
    """Return a piece of news as one JSON object; `None` for what only a screen needs."""
    if news.fact is not None:
        data: object = msgspec.to_builtins(news.fact)
        return {"type": news.fact.kind, "time": news.time, "data": data}
    if isinstance(news.heard, ToolPart):
        told = {"type": "tool", "time": news.time, "role": news.role, "step_id": news.step_id}
        return {**told, "data": msgspec.to_builtins(news.heard)}
    return None


def list_lines(news: LoopNews) -> list[tuple[str, str]]:
    """Return the lines that tell a piece of news, each with a colour."""
    if isinstance(news.heard, ToolPart):
        part = news.heard
        mark, color = ("✓", "green") if part.state == "completed" else ("✗", "red")
        told = f"  {mark} {news.role}: {part.tool} {part.title or _format_arguments(part)}"
        return [(_flatten(told + (f": {part.error}" if part.error else "")), color)]
    teller = _TELLERS.get(type(news.fact))
    return teller(news.fact) if teller is not None else []


def _plan_lines(plan: Plan) -> list[tuple[str, str]]:
    shown = [
        (
            _flatten(
                f"  {step.id}  {step.title}"
                + (f"  (after {', '.join(step.depends_on)})" if step.depends_on else "")
            ),
            "",
        )
        for step in plan.steps[:_MOST_ROWS]
    ]
    more = len(plan.steps) - _MOST_ROWS
    return [*shown, (f"  and {more} more", "")] if more > 0 else shown


def _render_step_started(fact: facts.StepStarted) -> list[tuple[str, str]]:
    again = f", attempt {fact.attempt}" if fact.attempt > 1 else ""
    lines = [(f"→ {fact.step_id}{again}", "cyan")]
    return lines + ([(_flatten(f"  because: {fact.because}"), "yellow")] if fact.because else [])


def _render_step_worked(fact: facts.StepWorked) -> list[tuple[str, str]]:
    if fact.status == "completed":
        return []
    return [(_flatten(f"  ✗ executor {fact.status}: {fact.error.get('message', '')}"), "red")]


def _render_step_checked(fact: facts.StepChecked) -> list[tuple[str, str]]:
    lines = []
    for result in fact.results:
        mark, color = ("✓", "green") if result.is_passed else ("✗", "red")
        why = f": {result.detail}" if result.detail and not result.is_passed else ""
        lines.append((_flatten(f"  {mark} check: {result.check.label}{why}"), color))
    return lines + [(f"  {f.change} {f.path} (+{f.added} -{f.removed})", "") for f in fact.files]


def _render_step_reviewed(fact: facts.StepReviewed) -> list[tuple[str, str]]:
    mark, color = ("✓", "green") if fact.verdict == "accept" else ("✗", "yellow")
    return [(_flatten(f"  {mark} review: {fact.verdict}: {fact.reason}"), color)]


def _describe_wait(fact: facts.LoopWaited) -> str:
    when = "when it is resumed"
    if fact.next_try:
        when = f"at {datetime.fromtimestamp(fact.next_try, UTC):%H:%M:%S} UTC"
    return f"… the {fact.role} waits for its model, asked again {when}: {fact.reason}"


def _render_step_ended(fact: facts.StepEnded) -> list[tuple[str, str]]:
    mark, color = ("✓", "green") if fact.status == "done" else ("✗", "red")
    return [(_flatten(f"{mark} {fact.step_id} {fact.status} {fact.reason}"), color)]


def _render_reported(fact: facts.LoopReported) -> list[tuple[str, str]]:
    outcome = str(fact.report.get("outcome", ""))
    return [(f"loop ended: {outcome}", "green" if outcome == "done" else "red")]


_TELLERS: dict[type, Callable[[Any], list[tuple[str, str]]]] = {
    facts.LoopBegan: lambda fact: [(_flatten(f"goal: {fact.goal}"), "")],
    facts.PlanCreated: lambda fact: [
        (f"plan: {len(fact.plan.steps)} steps", "cyan"),
        *_plan_lines(fact.plan),
    ],
    facts.PlanRefused: lambda fact: [
        (_flatten(f"✗ plan refused: {'; '.join(fact.problems)}"), "red")
    ],
    facts.PlanRevised: lambda fact: [
        (_flatten(f"plan revised ({fact.revision}): {fact.reason}"), "yellow"),
        *_plan_lines(fact.plan),
    ],
    facts.StepStarted: _render_step_started,
    facts.StepWorked: _render_step_worked,
    facts.StepChecked: _render_step_checked,
    facts.StepReviewed: _render_step_reviewed,
    facts.StepEnded: _render_step_ended,
    facts.LoopReported: _render_reported,
    facts.LoopWaited: lambda fact: [(_flatten(_describe_wait(fact)), "yellow")],
    RunParked: lambda fact: [(f"waits: {fact.reason}", "yellow")],
    RunResumed: lambda fact: [(f"goes on ({fact.cause})", "yellow")],
    RunCancelled: lambda fact: [(f"cancelled {fact.reason}".rstrip(), "red")],
}


def _flatten(text: str) -> str:
    lead = len(text) - len(text.lstrip())
    return " " * lead + " ".join(text.split())


def _shorten(text: str) -> str:
    return make_printable(" ".join(text.split()))[:_SHOWN]


def _format_arguments(part: ToolPart) -> str:
    return ", ".join(f"{key}={value}" for key, value in part.input.items())
