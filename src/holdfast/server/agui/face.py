"""Requests below `/agui/AGENT`, and the streams that answer them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, NotFound, NotPermitted
from holdfast.ids import make_id
from holdfast.operations import Caller, agents, runs, sessions, state
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.agui.asked import AskedThread, read_input
from holdfast.server.agui.events import RunEvents, make_interrupt, make_patch, make_usage
from holdfast.server.face_runs import FrameStream, start_run
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.openai.failures import BadRequest
from holdfast.server.problems import ProblemRaised, make_problem, problem_response
from holdfast.state import check_key

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication

_CONSENT: Final = "approvals:answer"


def make_face(app: HttpApplication) -> Face:
    """Return the face of an application."""
    return Face(answer=AgUiFace(app).answer, explain=problem_response)


class AgUiFace:
    """Answers AG-UI clients."""

    def __init__(self, app: HttpApplication) -> None:
        """Answer for this application."""
        self._app = app

    async def answer(self, asked: FaceRequest) -> ServerResponse | None:
        """Send a run as a stream of events.

        Raises:
            HoldfastError, ProblemRaised: nothing was begun.
        """
        caller, runtime = await asked.authenticate(), await asked.open_runtime()
        if asked.method != "POST" or len(asked.words) != 1:
            path = "/".join(asked.words)
            raise ProblemRaised(404, "request.path", f"there is no {asked.method} {path} here")
        asked.name_operation("agui.run")
        [agent] = asked.words
        body = await asked.read_json()
        if not isinstance(body, dict):
            raise BadRequest("the body is no JSON object")
        try:
            if await agents.get.perform(runtime, caller, agent) is None:
                raise NotFound(kind="agent", value=agent)
        except NotPermitted:
            pass  # a key that may not look may still run it; the run says so otherwise
        wanted = await read_input(runtime, caller, body, agent, new_run=make_id("run"))
        events = ThreadRun(runtime, caller, wanted).stream()
        frames = _encode(events, wanted)
        stream = FrameStream(frames, heartbeat_s=self._app.options.heartbeat_s)
        await self._app.send_stream(stream, asked.request, asked.send)
        return None


class ThreadRun:
    """One run of a thread, as events."""

    def __init__(self, runtime: Runtime, caller: Caller, asked: AskedThread) -> None:
        """Answer this."""
        self._runtime, self._caller = runtime, caller
        self._asked = asked
        self._run_id: str = asked.arguments["run_id"]
        self._state: JsonObject | None = None
        self._session_id = ""
        self._events = RunEvents(self._run_id)

    async def stream(self) -> AsyncGenerator[JsonObject, None]:
        """Run the agent and yield its events; the last one says how it ended."""
        asked, arguments = self._asked, dict(self._asked.arguments)
        if asked.state and "history" in arguments:
            arguments["session_id"] = await self._begin_session()
        on_ask = "park" if self._caller.may(_CONSENT) else "deny"
        items = await start_run(self._runtime, self._caller, **arguments, on_ask=on_ask)
        run = await runs.get.perform(self._runtime, self._caller, self._run_id)
        self._session_id = run.session_id
        yield {"type": "RUN_STARTED", "threadId": asked.thread_id, "runId": asked.run_id}
        await self._read_state()
        if self._state is not None:
            yield {"type": "STATE_SNAPSHOT", "snapshot": self._state}
        result: AgentResult[Any] | None = None
        async for item in items:
            if isinstance(item, AgentResult):
                result = item
            for event in self._events.hear(item):
                yield event
                if event["type"] == "TOOL_CALL_RESULT":
                    for delta in await self._find_delta():
                        yield delta
        assert result is not None
        for event in self._events.close():
            yield event
        for event in await self._find_delta():
            yield event
        yield await self._end(result)

    # --- inside -----------------------------------------------------------------------

    async def _begin_session(self) -> str:
        """Begin a session with the state of the interface in it."""
        runtime, caller = self._runtime, self._caller
        for key in self._asked.state:
            check_key(key)
        made = await sessions.create.perform(runtime, caller, "AG-UI")
        for key, value in self._asked.state.items():
            await state.set_.perform(
                runtime, caller, f"session:{made.id}/{key}", value, labels=("untrusted",)
            )
        return made.id

    async def _read_state(self) -> None:
        """Look at the state of the session; a caller that may not read it gets none."""
        try:
            found = await state.snapshot.perform(
                self._runtime, self._caller, f"session:{self._session_id}"
            )
        except NotPermitted:
            return
        self._state = found.values

    async def _find_delta(self) -> list[JsonObject]:
        before = self._state
        if before is None:
            return []
        await self._read_state()
        patch = make_patch(before, self._state or {})
        return [{"type": "STATE_DELTA", "delta": patch}] if patch else []

    async def _end(self, result: AgentResult[Any]) -> JsonObject:
        asked = self._asked
        done: JsonObject = {
            "type": "RUN_FINISHED",
            "threadId": asked.thread_id,
            "runId": asked.run_id,
            "usage": make_usage(result),
        }
        if result.status == "failed":
            return _make_error(result.error)
        if result.status == "cancelled":
            return done | {"outcome": {"type": "cancelled"}}
        if result.status == "parked":
            waiting = await runs.waiting.perform(self._runtime, self._caller, self._run_id)
            return done | {"outcome": await self._rest(waiting)}
        return done | {"result": result.response, "outcome": {"type": "success"}}

    async def _rest(self, waiting: list[OpenQuestion]) -> JsonObject:
        """Return what a run waits for; what this client cannot answer ends it."""
        calls = [
            self._events.name_call(one.call_id) for one in waiting if one.reason == "client_call"
        ]
        asked = [one for one in waiting if one.reason in ("approval", "question")]
        if asked and self._caller.may(_CONSENT):
            made = [make_interrupt(self._run_id, one) for one in asked]
            return {"type": "interrupt", "interrupts": made}
        if calls:
            return {"type": "success", "pendingToolCallIds": calls}
        await runs.cancel.perform(
            self._runtime, self._caller, self._run_id, reason="the client cannot be asked"
        )
        return {"type": "cancelled"}


def _make_error(error: Exception | None) -> JsonObject:
    if error is None:
        return {"type": "RUN_ERROR", "message": "the run failed", "code": "run.failed"}
    problem, _ = make_problem(error, "")
    return {"type": "RUN_ERROR", "message": problem.detail or problem.title, "code": problem.code}


async def _encode(
    events: AsyncGenerator[JsonObject, None], asked: AskedThread
) -> AsyncGenerator[bytes, None]:
    """Yield events as they are sent; what goes wrong after the first one is the last."""
    has_begun = False
    try:
        async for event in events:
            has_begun = True
            yield b"data: " + msgspec.json.encode(event) + b"\n\n"
    except (HoldfastError, ProblemRaised) as error:
        if not has_begun:
            raise
        yield b"data: " + msgspec.json.encode(_make_error(error)) + b"\n\n"
    finally:
        await events.aclose()


__all__ = ["AgUiFace", "make_face"]
