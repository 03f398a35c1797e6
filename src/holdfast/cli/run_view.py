"""Runs of every kind as people read them: a row of a list, the course of one, a report."""

from __future__ import annotations

import msgspec

from holdfast.cli.call_view import Line, describe_after
from holdfast.cli.times import format_age, format_span
from holdfast.client import AsyncClient
from holdfast.clock import SYSTEM
from holdfast.errors import NotFound, UsageError
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.runs import ChildRun
from holdfast.sessions import Run, RunQueued

_MOST_MESSAGES = 500
_LONGEST_GOAL = 200


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of an agent, or a call by hand, said and did."""

    run: Run
    kind: str
    goal: str
    messages: tuple[Message, ...] = ()
    children: tuple[ChildRun, ...] = ()
    tokens: int = 0
    cost_usd: float = 0.0
    changed_files: tuple[str, ...] = ()

    def list_lines(self) -> list[Line]:
        """Return the course of the run: what was asked, each call, each answer."""
        lines: list[Line] = []
        for message in self.messages:
            for part in message.parts:
                if isinstance(part, ToolPart):
                    lines += describe_after(part)
                elif isinstance(part, TextPart) and part.text.strip():
                    is_person = message.role == "user"
                    mark = "> " if is_person else ""
                    lines.append((f"{mark}{part.text}", "bright_black" if is_person else ""))
        for child in self.children:
            lines.append((f"↳ {'/'.join(child.path) or child.agent}  {child.id}", "bright_black"))
        return lines

    def to_markdown(self) -> str:
        """Return a report for people."""
        run = self.run
        answers = [one.text for one in self.messages if one.role == "assistant" and one.text]
        parts = [f"# {self.goal}", f"**{run.status}**, {self.kind}, {self.describe_cost()}."]
        if run.error:
            parts.append(f"Error: {run.error.get('message', '')}")
        if answers:
            parts.append(answers[-1])
        calls = [part for one in self.messages for part in one.tool_calls]
        if calls:
            lines = [f"- {describe_after(part)[0][0]}" for part in calls]
            parts += ["## Calls", "\n".join(lines)]
        if self.changed_files:
            parts += ["## Files", "\n".join(f"- {path}" for path in self.changed_files)]
        return "\n\n".join(parts)

    def describe_cost(self) -> str:
        """Return how long it took, and what it used."""
        cost = f", ${self.cost_usd:.4f}" if self.cost_usd else ""
        return f"{format_duration(self.run) or 'not begun'}, {self.tokens:,} tokens{cost}"


def describe_kind(run: Run) -> str:
    """Return what kind of run it is: loop, workflow NAME, agent NAME, call."""
    if run.agent == LOOP_AGENT:
        return "loop"
    if run.agent.startswith(AGENT_PREFIX):
        return f"workflow {run.agent.removeprefix(AGENT_PREFIX)}"
    return f"agent {run.agent}" if run.agent else "call"


async def find_last_run(client: AsyncClient, name: str | None) -> Run:
    """Return a run by its id; without one, the newest that no other run has started.

    Raises:
        NotFound: there is no such run.
        UsageError: there is none at all.
    """
    if name:
        return await client.runs.get(name)
    found = await client.runs.list(is_top=True, limit=1)
    if not found:
        raise UsageError(detail='There are no runs yet. Begin one: holdfast "Describe this".')
    return found[0]


async def make_row(client: AsyncClient, run: Run) -> dict[str, object]:
    """Return a run as a row of a list, with the number of runs below it."""
    steps = ""
    if run.agent == LOOP_AGENT:
        state = await client.loops.state(run.id)
        steps = f"{len(state.done)}/{len(state.steps)}" if state.steps else ""
    return {
        "id": run.id,
        "kind": describe_kind(run),
        "status": run.status,
        "began": format_age(run.time_queued),
        "took": format_duration(run),
        "steps": steps,
        "inside": len(await client.runs.children(run.id)) or "",
        "goal": await read_goal(client, run),
        "agent": run.agent,
        "session_id": run.session_id,
        "reason": run.reason,
        "time_queued": run.time_queued,
        "time_ended": run.time_ended or None,
    }


async def read_goal(client: AsyncClient, run: Run) -> str:
    """Return what a run was asked to do, in one line."""
    text = ""
    events = await client.events.list(run.session_id, after=run.queued_at - 1, limit=1)
    if events and events[0].kind == RunQueued.kind:
        message = events[0].expect(RunQueued).message
        text = message.text if message is not None else ""
    if not text:
        try:
            text = (await client.get_session(run.session_id)).title
        except NotFound:
            text = ""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return " ".join(first.split())[:_LONGEST_GOAL]


async def read_account(client: AsyncClient, run: Run) -> RunAccount:
    """Return what a run said and did."""
    page = await client.list_messages(run.session_id, limit=_MOST_MESSAGES, newest_first=True)
    mine = tuple([one for one in reversed(page.items) if one.run_id == run.id])
    paths = [
        str(part.metadata["path"])
        for one in mine
        for part in one.tool_calls
        if part.state == "completed" and "after_hash" in part.metadata
    ]
    return RunAccount(
        run=run,
        kind=describe_kind(run),
        goal=await read_goal(client, run),
        messages=mine,
        children=tuple(await client.runs.children(run.id)),
        tokens=sum(one.usage.total for one in mine if one.usage is not None),
        cost_usd=sum(one.cost_usd for one in mine),
        changed_files=tuple(dict.fromkeys(paths)),
    )


def format_duration(run: Run) -> str:
    """Return how long a run took, or has taken so far."""
    if not run.time_started:
        return ""
    return format_span((run.time_ended or SYSTEM.now()) - run.time_started)


__all__ = [
    "RunAccount",
    "describe_kind",
    "find_last_run",
    "format_duration",
    "make_row",
    "read_account",
    "read_goal",
]
