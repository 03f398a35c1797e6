"""Requests below `/a2a` and `/a2a/AGENT`: JSON-RPC, and the streams that answer it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from holdfast.agents import AgentRecord
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, NotFound, NotPermitted, RequestInvalid
from holdfast.operations import Caller, agents, runs
from holdfast.runtime import Runtime
from holdfast.server.a2a.asked import read_count, read_id, read_message
from holdfast.server.a2a.card import VERSION, CardSigner, answer_card, find_address, make_card
from holdfast.server.a2a.events import stream_task
from holdfast.server.a2a.failures import A2aRefused, make_failure, make_failure_response
from holdfast.server.a2a.listing import list_tasks
from holdfast.server.a2a.sending import begin_task
from holdfast.server.a2a.tasks import find_run, make_task
from holdfast.server.face_runs import FrameStream
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.problems import ProblemRaised
from holdfast.server.redaction import hold_pieces

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication

_MOST_HISTORY: Final = 100
_CARD: Final = (".well-known", "agent-card.json")


class A2aCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: who asks which agent (empty at `/a2a` itself), and with what."""

    request: FaceRequest
    runtime: Runtime
    caller: Caller
    agent: str
    params: dict[str, Any]


_Method: TypeAlias = Callable[[A2aCall], Awaitable[JsonObject | AsyncGenerator[JsonObject, None]]]


def make_face(app: HttpApplication) -> Face:
    """Return the face of an application."""
    return Face(answer=A2aFace(app).answer, explain=make_failure_response)


class A2aFace:
    """Answers A2A clients."""

    def __init__(self, app: HttpApplication) -> None:
        """Answer for this application."""
        self._app = app
        self._signer = CardSigner(app.runtimes.operator.base_dir)
        self._methods: dict[str, _Method] = {
            "SendMessage": self._send,
            "SendStreamingMessage": self._stream,
            "GetTask": _get,
            "ListTasks": _list,
            "CancelTask": _cancel,
            "SubscribeToTask": _subscribe,
            "GetExtendedAgentCard": self._get_extended_card,
            "CreateTaskPushNotificationConfig": _refuse_push,
            "GetTaskPushNotificationConfig": _refuse_push,
            "ListTaskPushNotificationConfigs": _refuse_push,
            "DeleteTaskPushNotificationConfig": _refuse_push,
        }

    async def answer(self, asked: FaceRequest) -> ServerResponse | None:
        """Answer a call, or send a stream.

        Raises:
            HoldfastError, ProblemRaised: the caller is not known, or the path is none.
        """
        caller, runtime = await asked.authenticate(), await asked.open_runtime()
        words = asked.words
        if asked.method in ("GET", "HEAD") and words[1:] == _CARD:
            asked.name_operation("a2a.card")
            card = await self._make_card(asked, runtime, caller, words[0])
            return answer_card(asked, card, is_open=False)
        if asked.method != "POST" or len(words) > 1:
            path = "/".join(words)
            raise ProblemRaised(404, "request.path", f"there is no {asked.method} {path} here")
        id: Any = None
        try:
            body = await _read_body(asked)
            id = body.get("id") if isinstance(body.get("id"), str | int) else None
            method, params = _read_call(body)
            _check_version(asked)
            if method not in self._methods:
                raise A2aRefused("METHOD_NOT_FOUND", f"there is no method {method!r:.80}")
            asked.name_operation(f"a2a.{method}")
            agent = words[0] if words else ""
            call = A2aCall(
                request=asked, runtime=runtime, caller=caller, agent=agent, params=params
            )
            made = await self._methods[method](call)
            if isinstance(made, dict):
                told = {"jsonrpc": "2.0", "id": id, "result": made}
                return ServerResponse(200, msgspec.json.encode(told))
            frames = _encode(made, id, asked.id)
            stream = FrameStream(frames, heartbeat_s=self._app.options.heartbeat_s)
            await self._app.send_stream(stream, asked.request, asked.send)
        except (A2aRefused, HoldfastError, ProblemRaised) as error:
            return make_failure_response(error, asked.id, id)
        return None

    # --- the methods that need the application ----------------------------------------

    async def _send(self, asked: A2aCall) -> JsonObject:
        message = read_message(asked.params)
        run, items = await begin_task(
            asked.runtime, asked.caller, asked.agent, message, follows=message.waits
        )
        if items is not None:
            async with contextlib.aclosing(items):
                # Later than that the client learns that the task goes on, and comes back for it.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._app.options.request_timeout_s * 0.8):
                        async for _ in items:
                            pass
        run = await runs.get.perform(asked.runtime, asked.caller, run.id)
        task = await make_task(asked.runtime, asked.caller, run, history=message.history)
        return {"task": task}

    async def _stream(self, asked: A2aCall) -> AsyncGenerator[JsonObject, None]:
        message = read_message(asked.params)
        run, items = await begin_task(asked.runtime, asked.caller, asked.agent, message)
        assert items is not None
        return stream_task(asked.runtime, asked.caller, run, items, history=message.history)

    async def _get_extended_card(self, asked: A2aCall) -> JsonObject:
        return await self._make_card(asked.request, asked.runtime, asked.caller, asked.agent)

    async def _make_card(
        self, asked: FaceRequest, runtime: Runtime, caller: Caller, agent: str
    ) -> JsonObject:
        address = find_address(asked)
        if not agent:
            skills = await agents.list_.perform(runtime, caller)
            return await self._signer.sign(make_card(address, skills=skills), address)
        record: AgentRecord | None = await agents.get.perform(runtime, caller, agent)
        if record is None:
            raise NotFound(kind="agent", value=agent)
        return await self._signer.sign(make_card(address, record), address)


async def _get(asked: A2aCall) -> JsonObject:
    history = read_count(asked.params, "historyLength", _MOST_HISTORY)
    run = await find_run(asked.runtime, asked.caller, read_id(asked.params, "id"), asked.agent)
    return await make_task(asked.runtime, asked.caller, run, history=history)


async def _list(asked: A2aCall) -> JsonObject:
    return await list_tasks(asked.runtime, asked.caller, asked.agent, asked.params)


async def _cancel(asked: A2aCall) -> JsonObject:
    runtime, caller = asked.runtime, asked.caller
    run = await find_run(runtime, caller, read_id(asked.params, "id"), asked.agent)
    if not caller.may("runs:write", run.agent):
        raise NotPermitted(subject=caller.subject, scope="runs:write")
    if run.has_ended:
        raise A2aRefused("TASK_NOT_CANCELABLE", f"the task is over: {run.status}", "id")
    await runs.cancel.perform(runtime, caller, run.id, reason="the A2A client cancelled it")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await runs.wait.perform(runtime, caller, run.id)
    run = await runs.get.perform(runtime, caller, run.id)
    return await make_task(runtime, caller, run)


async def _subscribe(asked: A2aCall) -> AsyncGenerator[JsonObject, None]:
    runtime, caller = asked.runtime, asked.caller
    run = await find_run(runtime, caller, read_id(asked.params, "id"), asked.agent)
    if run.has_ended:
        raise A2aRefused("UNSUPPORTED_OPERATION", f"the task is over: {run.status}", "id")
    follow = runs.follow.perform(runtime, caller, run.id, raise_on_failure=False)
    return stream_task(runtime, caller, run, hold_pieces(follow))


async def _refuse_push(asked: A2aCall) -> JsonObject:
    raise A2aRefused(
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "there are no push notifications here; subscribe to the task, or ask for it again",
    )


# --- the envelope -------------------------------------------------------------------------


async def _read_body(asked: FaceRequest) -> dict[str, Any]:
    kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "application/a2a+json"):
        raise A2aRefused("INVALID_REQUEST", "send application/json")
    try:
        body = await asked.read_json()
    except RequestInvalid as error:
        raise A2aRefused("JSON_PARSE", f"{error}") from error
    if not isinstance(body, dict):
        raise A2aRefused("INVALID_REQUEST", "a call is an object; send one at a time")
    return body


def _read_call(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    method, params, id = body.get("method"), body.get("params", {}), body.get("id")
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise A2aRefused("INVALID_REQUEST", 'a call has "jsonrpc": "2.0" and a method')
    if not isinstance(id, str | int) or isinstance(id, bool):
        raise A2aRefused("INVALID_REQUEST", "a call has an id, a text or a number")
    params = {} if params is None else params
    if not isinstance(params, dict):
        raise A2aRefused("INVALID_PARAMS", "params is an object", "params")
    return method, params


def _check_version(asked: FaceRequest) -> None:
    """Return if the client speaks our version; one that names none speaks 0.3."""
    named = asked.headers.get("a2a-version") or "0.3"
    if named.split(".")[:2] != VERSION.split("."):
        said = f"this server speaks A2A {VERSION}, not {named:.20}; send the header A2A-Version"
        raise A2aRefused("VERSION_NOT_SUPPORTED", said)


async def _encode(
    events: AsyncGenerator[JsonObject, None],
    id: Any,  # noqa: ANN401 - JSON
    request_id: str,
) -> AsyncGenerator[bytes, None]:
    """Yield events as they are sent; what goes wrong after the first one is the last."""
    has_begun = False
    try:
        async for event in events:
            has_begun = True
            told = {"jsonrpc": "2.0", "id": id, "result": event}
            yield b"data: " + msgspec.json.encode(told) + b"\n\n"
    except (A2aRefused, HoldfastError, ProblemRaised) as error:
        if not has_begun:
            raise
        _, failure, _ = make_failure(error, request_id)
        told = {"jsonrpc": "2.0", "id": id, "error": failure}
        yield b"data: " + msgspec.json.encode(told) + b"\n\n"
    finally:
        await events.aclose()


__all__ = ["A2aFace", "make_face"]
