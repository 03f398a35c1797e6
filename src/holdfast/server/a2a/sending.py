"""A message of a peer: a task that begins, or one that goes on with what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from holdfast.errors import NotFound, NotPermitted
from holdfast.ids import make_id
from holdfast.operations import Caller, agents, approvals, runs, sessions
from holdfast.runs import StreamItem
from holdfast.runtime import Runtime
from holdfast.server.a2a.asked import AskedMessage
from holdfast.server.a2a.failures import A2aRefused
from holdfast.server.a2a.tasks import find_run
from holdfast.server.face_runs import start_run
from holdfast.sessions import Run
from holdfast.tools import keep_labels


async def begin_task(
    runtime: Runtime, caller: Caller, agent: str, message: AskedMessage, *, follows: bool = True
) -> tuple[Run, AsyncGenerator[StreamItem, None] | None]:
    """Begin a task, or go on with one, and return its run, with what that does if it `follows`.

    Leaving the items early leaves the run alone.

    Raises:
        A2aRefused: the message cannot be meant; nothing was begun.
        HoldfastError: as `runs.start`.
    """
    if message.task_id:
        run_id, session_id, agent = await _answer_task(runtime, caller, agent, message)
        content: object = ""
    else:
        if agent and await agents.get.perform(runtime, caller, agent) is None:
            raise NotFound(kind="agent", value=agent)
        for scope in ("runs:write", "runs:read"):
            # Known before a session is begun, and before a run that its caller may not see.
            if not caller.may(scope, agent):
                raise NotPermitted(subject=caller.subject, scope=scope)
        run_id, content = make_id("run"), message.content
        session_id = await _open_context(runtime, caller, message)
    asked: dict[str, Any] = {
        "agent_name": agent,
        "session_id": session_id,
        "user_message": content,
        "run_id": run_id,
        # What asks waits for a person of this server, for every peer.
        "on_ask": "park",
    }
    if not follows:
        # Nothing listens: the pieces of a long answer would only be kept.
        return await runs.start.perform(runtime, caller, **asked), None
    items = await start_run(runtime, caller, cancels=False, **asked)
    return await runs.get.perform(runtime, caller, run_id), items


async def _open_context(runtime: Runtime, caller: Caller, message: AskedMessage) -> str:
    """Return the session of a context, which carries that strangers speak in it."""
    if message.context_id:
        try:
            session = await sessions.get.perform(runtime, caller, message.context_id)
        except NotFound:
            said = "there is no such context; leave it out, and the answer names a new one"
            raise A2aRefused("INVALID_PARAMS", said, "message.contextId") from None
    else:
        session = await sessions.create.perform(runtime, caller, "A2A")
    await keep_labels(await sessions.manager.function(runtime), session.id, ("untrusted",))
    return session.id


async def _answer_task(
    runtime: Runtime, caller: Caller, agent: str, message: AskedMessage
) -> tuple[str, str, str]:
    """Give a run that waits what it waits for; returns it, its session and its agent."""
    run = await find_run(runtime, caller, message.task_id, agent)
    if message.context_id and message.context_id != run.session_id:
        said = "the task is of another context"
        raise A2aRefused("INVALID_PARAMS", said, "message.contextId")
    if run.has_ended:
        said = f"the task is over ({run.status}); send the message without taskId to begin another"
        raise A2aRefused("UNSUPPORTED_OPERATION", said, "message.taskId")
    waiting = await runs.waiting.perform(runtime, caller, run.id)
    for one in waiting:
        if one.reason == "question":
            await approvals.answer.perform(
                runtime, caller, one.session_id, one.call_id, message.text, by=caller.subject
            )
            break
        if one.reason == "approval" and message.decision is not None:
            answer = approvals.approve if message.decision else approvals.deny
            await answer.perform(runtime, caller, one.id, by=caller.subject, reason=message.reason)
            break
    else:
        said = "the task does not wait for a message; follow it, or cancel it"
        if any(one.reason == "approval" for one in waiting):
            said = 'the task waits for consent: send the data part {"approved": true} or false'
        raise A2aRefused("UNSUPPORTED_OPERATION", said, "message.taskId")
    return run.id, run.session_id, run.agent


__all__ = ["begin_task"]
