"""The plan of a run as a graph, with what proves each step: of a loop, or of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast.operations import loops, workflows
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.server.dashboard.asks import Ask
from holdfast.server.dashboard.charts import GraphStep, draw_graph
from holdfast.server.dashboard.words import Markup, format_json
from holdfast.sessions import Run

_MOST_DRAWN: Final = 300


class ShownProof(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at after a step: a check, a verdict, an output."""

    word: str
    """Its colour: `ok`, `failed`, or a verdict."""
    label: str
    detail: str = ""


class ShownAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at a step."""

    number: int
    run_id: str = ""
    status: str = ""
    failure: str = ""
    proofs: Sequence[ShownProof] = ()
    files: Sequence[tuple[str, str, str]] = ()
    """Changed files: the path, how, and the diff."""


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step with what became of it."""

    id: str
    title: str
    status: str
    reason: str = ""
    instruction: str = ""
    attempts: Sequence[ShownAttempt] = ()


class ShownPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as it is shown."""

    drawn: Markup
    steps: Sequence[ShownStep]
    words: str


def has_plan(run: Run) -> bool:
    """Say whether a run follows a plan."""
    return run.agent == LOOP_AGENT or run.agent.startswith(AGENT_PREFIX)


async def read_plan(ask: Ask, run: Run) -> ShownPlan:
    """Return the plan of a run that has one."""
    if run.agent == LOOP_AGENT:
        return await _read_loop(ask, run)
    return await _read_workflow(ask, run)


async def _read_loop(ask: Ask, run: Run) -> ShownPlan:
    state = await ask.perform(loops.state, run.id)
    planned = state.plan.steps if state.plan is not None else ()
    steps, boxes = [], []
    for one in planned:
        known = state.steps.get(one.id)
        status = known.status if known is not None else "pending"
        tries = known.attempts if known is not None else []
        boxes.append(
            GraphStep(
                name=one.id, needs=one.depends_on, status=status, link=f"#step-{quote(one.id)}"
            )
        )
        steps.append(
            ShownStep(
                id=one.id,
                title=one.title,
                status=status,
                reason=known.reason if known is not None else "",
                instruction=one.instruction,
                attempts=[_show_attempt(each) for each in tries],
            )
        )
    done = sum(one.status == "done" for one in steps)
    words = f"{done} of {len(steps)} steps are done" if steps else "There is no plan yet"
    if state.revision:
        words += f"; the plan was changed {state.revision} times"
    drawn = draw_graph(boxes[:_MOST_DRAWN], title="The plan")
    return ShownPlan(drawn=drawn, steps=steps, words=words)


def _show_attempt(attempt: Any) -> ShownAttempt:  # noqa: ANN401 - the loop's own, loaded on use
    proofs, files = [], []
    if attempt.checked is not None:
        for one in attempt.checked.results:
            word = "ok" if one.is_passed else "failed"
            proofs.append(ShownProof(word=word, label=one.check.label, detail=one.detail))
        files = [(one.path, one.change, one.diff) for one in attempt.checked.files]
    if attempt.reviewed is not None:
        verdict = attempt.reviewed.verdict
        word = "ok" if verdict == "accept" else "failed"
        label = f"reviewer: {verdict}"
        proofs.append(ShownProof(word=word, label=label, detail=attempt.reviewed.reason))
    return ShownAttempt(
        number=attempt.started.attempt,
        run_id=attempt.started.run_id,
        status=attempt.worked.status if attempt.worked is not None else "working",
        failure=attempt.failure,
        proofs=proofs,
        files=files,
    )


async def _read_workflow(ask: Ask, run: Run) -> ShownPlan:
    result = await ask.perform(workflows.get, run.id)
    steps, boxes = [], []
    for one in result.steps:
        # What a step followed: the last one that had ended when it began.
        ended = [
            (other.time_ended, other.path)
            for other in result.steps
            if 0 < other.time_ended <= one.time_started and other.path != one.path
        ]
        error = str(one.error.get("message", ""))
        output = "" if one.output is None else format_json(one.output)
        proofs = [ShownProof(word="ok", label="output", detail=output)] if output else []
        tried = ShownAttempt(
            number=max(1, one.attempts),
            run_id=one.child_run,
            status=one.status,
            failure=error,
            proofs=proofs,
        )
        boxes.append(
            GraphStep(
                name=one.path,
                needs=[max(ended)[1]] if ended else [],
                status=one.status,
                link=f"#step-{quote(one.path)}",
            )
        )
        steps.append(ShownStep(id=one.path, title=one.does, status=one.status, attempts=[tried]))
    drawn = draw_graph(boxes[:_MOST_DRAWN], title=f"Steps of {result.workflow}")
    done = sum(one.status == "completed" for one in steps)
    words = f"{result.workflow}: {done} of {len(steps)} begun steps are completed"
    return ShownPlan(drawn=drawn, steps=steps, words=words)


__all__ = ["ShownPlan", "has_plan", "read_plan"]
