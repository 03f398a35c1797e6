"""A run, told as a task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, NotPermitted
from holdfast.messages import Message
from holdfast.operations import Caller, messages, runs
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.a2a.failures import A2aRefused
from holdfast.server.openai.asked import describe_question
from holdfast.server.problems import make_problem
from holdfast.sessions import Run

ARTIFACT: Final = "response"
WORKING: Final = "TASK_STATE_WORKING"
STATES: Final = {
    "queued": "TASK_STATE_SUBMITTED",
    "running": WORKING,
    "parked": WORKING,
    "completed": "TASK_STATE_COMPLETED",
    "failed": "TASK_STATE_FAILED",
    "cancelled": "TASK_STATE_CANCELED",
}
_SHOWN: Final = 2_000


async def find_run(runtime: Runtime, caller: Caller, task_id: str, agent: str) -> Run:
    """Return the run of a task.

    Raises:
        A2aRefused: there is none, it is of another agent, or the caller may not know of it.
    """
    refused = A2aRefused("TASK_NOT_FOUND", f"there is no task {task_id!r:.80}", "id")
    try:
        run = await runs.get.perform(runtime, caller, task_id)
    except NotFound:
        raise refused from None
    except NotPermitted:
        if caller.find_allowed_agents("runs:read"):
            # A key for other agents: what it may not see is not there.
            raise refused from None
        raise
    if agent and run.agent != agent:
        raise refused
    return run


async def make_task(
    runtime: Runtime,
    caller: Caller,
    run: Run,
    *,
    history: int | None = None,
    with_artifacts: bool = True,
) -> JsonObject:
    """Return a run as a task."""
    result: AgentResult[Any] | None = None
    if run.has_ended:
        result = await runs.result.perform(runtime, caller, run.id, raise_on_failure=False)
    status = await make_status(runtime, caller, run, result)
    task: JsonObject = {"id": run.id, "contextId": run.session_id, "status": status}
    if with_artifacts and result is not None and result.response:
        task["artifacts"] = [make_artifact(result.response)]
    if history != 0:
        if said := await _list_history(runtime, caller, run, history):
            task["history"] = said
    return task


async def make_status(
    runtime: Runtime, caller: Caller, run: Run, result: AgentResult[Any] | None = None
) -> JsonObject:
    """Return the state of a run, with a message where a person has to do something."""
    state, text = STATES[run.status], ""
    if run.status == "parked":
        waiting = await runs.waiting.perform(runtime, caller, run.id)
        state, text = tell_waiting(waiting)
    elif result is not None and result.status == "failed" and result.error is not None:
        problem, _ = make_problem(result.error, "")
        text = problem.detail or problem.title
    at = run.time_ended or run.time_started or run.time_queued
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    status: JsonObject = {"state": state, "timestamp": stamp.replace("+00:00", "Z")}
    if text:
        status["message"] = {
            "messageId": f"{run.id}.status",
            "role": "ROLE_AGENT",
            "taskId": run.id,
            "contextId": run.session_id,
            "parts": [{"text": text[:_SHOWN]}],
        }
    return status


def tell_waiting(waiting: Sequence[OpenQuestion]) -> tuple[str, str]:
    """Return the state of a run that waits, and what for; a question goes before an approval."""
    for one in waiting:
        if one.reason == "question":
            return "TASK_STATE_INPUT_REQUIRED", describe_question(one)
    for one in waiting:
        if one.reason == "approval":
            arguments = msgspec.json.encode(one.request.get("arguments", {})).decode()
            who = one.agent_path or "The agent"
            return (
                "TASK_STATE_AUTH_REQUIRED",
                f"{who} wants to call {one.tool}: {arguments}\nA person of the server decides; "
                'a key that may consent sends the data part {"approved": true}.',
            )
    return WORKING, ""


def make_artifact(text: str) -> JsonObject:
    """Return an answer as the artifact of its task."""
    return {"artifactId": ARTIFACT, "name": "Response", "parts": [{"text": text}]}


async def _list_history(
    runtime: Runtime, caller: Caller, run: Run, most: int | None
) -> list[JsonObject]:
    """Return what was said in a run, oldest first; nothing where the caller may not read it."""
    try:
        page = await messages.list_.perform(
            runtime, caller, run.session_id, limit=100, newest_first=True
        )
    except NotPermitted:
        return []
    found = [_tell(one, run) for one in page.items if one.run_id == run.id and one.text]
    return [one for one in found if one][: most if most is not None else 100][::-1]


def _tell(message: Message, run: Run) -> JsonObject:
    roles = {"user": "ROLE_USER", "assistant": "ROLE_AGENT"}
    if message.role not in roles:
        return {}
    return {
        "messageId": message.id,
        "role": roles[message.role],
        "taskId": run.id,
        "contextId": run.session_id,
        "parts": [{"text": message.text}],
    }


__all__ = [
    "ARTIFACT",
    "STATES",
    "WORKING",
    "find_run",
    "make_artifact",
    "make_status",
    "make_task",
    "tell_waiting",
]
