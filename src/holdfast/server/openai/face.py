"""Requests below `/openai/v1`, and their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents import AgentRecord
from holdfast.canonical import JsonObject
from holdfast.errors import NotPermitted
from holdfast.ids import make_id
from holdfast.operations import Caller, agents, runs
from holdfast.runtime import Runtime
from holdfast.server.face_runs import FrameStream
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.idempotency import key_of
from holdfast.server.openai.chat import Completion, read_chat
from holdfast.server.openai.failures import BadRequest, make_failure, make_failure_response
from holdfast.server.openai.responses import (
    ResponseId,
    ResponseRun,
    encode_event,
    open_response,
    read_request,
)
from holdfast.server.problems import ProblemRaised

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication


def make_face(app: HttpApplication) -> Face:
    """Return the face of an application."""
    return Face(answer=OpenAIFace(app).answer, explain=make_failure_response)


class OpenAIFace:
    """Answers OpenAI's clients."""

    def __init__(self, app: HttpApplication) -> None:
        """Answer for this application."""
        self._app = app

    async def answer(self, asked: FaceRequest) -> ServerResponse | None:
        """Return the answer; `None` if it was sent as a stream."""
        caller, runtime = await asked.authenticate(), await asked.open_runtime()
        match (asked.method, *asked.words):
            case ("GET", "models"):
                return await _list_models(runtime, caller)
            case ("GET", "models", name):
                return await _get_model(runtime, caller, name)
            case ("POST", "chat", "completions"):
                body = await _read_object(asked)
                return await self._chat(asked, runtime, caller, body)
            case ("POST", "responses"):
                body = await _read_object(asked)
                return await self._respond(asked, runtime, caller, body)
            case ("GET", "responses", id):
                return await self._read_response(asked, runtime, caller, id)
            case ("POST", "responses", id, "cancel"):
                found = await open_response(runtime, caller, id)
                run_id = found.id.run_id
                await asked.perform(runs.cancel, run_id=run_id, reason="by the client")
                await asked.perform(runs.result, run_id=run_id, raise_on_failure=False)
                return _make_ok(await found.read())
        path = "/".join(asked.words)
        raise ProblemRaised(404, "request.path", f"there is no {asked.method} {path} here")

    async def _check_agent(self, runtime: Runtime, caller: Caller, body: dict[str, Any]) -> None:
        """Raise as OpenAI does for a model that is not there."""
        name = body.get("model")
        if not isinstance(name, str) or not name:
            return  # told with the rest of what is wrong
        try:
            found = await agents.get.perform(runtime, caller, name)
        except NotPermitted:
            return  # who may not look is told by the run
        if found is None:
            raise BadRequest(f"there is no agent {name!r:.80}", "model", "model_not_found", 404)

    async def _chat(
        self, asked: FaceRequest, runtime: Runtime, caller: Caller, body: dict[str, Any]
    ) -> ServerResponse | None:
        await self._check_agent(runtime, caller, body)
        run_id = await _choose_run(asked, "openai.chat", body)
        wanted = await read_chat(runtime, caller, body, run_id=run_id)
        completion = Completion(wanted, runtime, caller)
        if not body.get("stream"):
            return _make_ok(await self._wait(asked, completion.answer()))
        options = body.get("stream_options")
        has_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        await self._send(completion.stream(has_usage=has_usage, request_id=asked.id), asked)
        return None

    async def _respond(
        self, asked: FaceRequest, runtime: Runtime, caller: Caller, body: dict[str, Any]
    ) -> ServerResponse | None:
        await self._check_agent(runtime, caller, body)
        run_id = await _choose_run(asked, "openai.responses", body)
        wanted = await read_request(runtime, caller, body, run_id=run_id)
        id = ResponseId(wanted.run_id, wanted.after)
        made = ResponseRun(runtime, caller, id, wanted.client, wanted.agent)
        if body.get("background") is True:
            await made.begin(wanted)
            if not body.get("stream"):
                return _make_ok(await made.read())
            await self._send(_number(made.follow(), 0), asked)
            return None
        events = made.execute(wanted)
        if body.get("stream"):
            await self._send(_number(events, 0), asked)
            return None
        return _make_ok(await self._wait(asked, _finish(made, events)))

    async def _read_response(
        self, asked: FaceRequest, runtime: Runtime, caller: Caller, id: str
    ) -> ServerResponse | None:
        found = await open_response(runtime, caller, id)
        query = dict(asked.request.read_query())
        if query.get("stream") != "true":
            return _make_ok(await found.read())
        after = query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal() or len(after) > 12:
            raise BadRequest("starting_after is the number of an event", "starting_after")
        await self._send(_number(found.follow(), int(after) + 1), asked)
        return None

    async def _wait(self, asked: FaceRequest, work: Coroutine[Any, Any, JsonObject]) -> JsonObject:
        """Return an answer, no later than a request may take.

        With a key the run goes on, and is found again under it; without one it is cancelled.
        """
        return await self._app.bound(work, goes_on="idempotency-key" in asked.headers)

    async def _send(self, frames: AsyncGenerator[bytes, None], asked: FaceRequest) -> None:
        stream = FrameStream(frames, heartbeat_s=self._app.options.heartbeat_s)
        await self._app.send_stream(stream, asked.request, asked.send)


async def _read_object(asked: FaceRequest) -> dict[str, Any]:
    body = await asked.read_json()
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return body


async def _choose_run(asked: FaceRequest, face: str, body: dict[str, Any]) -> str:
    """Return the id of the run that a request is for: with a key, that of the first with it.

    Raises:
        RequestInvalid: it is no key.
        IdempotencyKeyReused: the key was used for another request.
    """
    key = asked.headers.get("idempotency-key", "")
    if not key:
        return make_id("run")
    caller, runtime = await asked.authenticate(), await asked.open_runtime()
    known, _ = await runtime.idempotency.accept(
        key_of(caller, face, key), operation=face, asked=body, starts_run=True
    )
    return known.run_id


async def _finish(made: ResponseRun, events: AsyncGenerator[JsonObject, None]) -> JsonObject:
    """Return the answer of a run when it rests; given up before, the run is cancelled."""
    try:
        async for _ in events:
            pass
    finally:
        await events.aclose()
    return made.to_body()


async def _number(
    events: AsyncGenerator[JsonObject, None], first: int
) -> AsyncGenerator[bytes, None]:
    """Yield events as they are sent, from a number on; what goes wrong is the last one."""
    at = -1
    try:
        async for event in events:
            at += 1
            if at >= first:
                yield encode_event(event, at)
    except Exception as error:
        if at < first:
            raise  # nothing was sent: it is answered with a status of its own
        _, body, _ = make_failure(error, "")
        told = body["error"]
        failed = {"type": "error", "code": told["code"], "message": told["message"], "param": None}
        yield encode_event(failed, at + 1)
    finally:
        await events.aclose()


async def _list_models(runtime: Runtime, caller: Caller) -> ServerResponse:
    found = await agents.list_.perform(runtime, caller)
    return _make_ok({"object": "list", "data": [_to_model(one) for one in found]})


async def _get_model(runtime: Runtime, caller: Caller, name: str) -> ServerResponse:
    found = await agents.get.perform(runtime, caller, name)
    if found is None:
        raise BadRequest(f"there is no agent {name!r:.80}", "model", "model_not_found", 404)
    return _make_ok(_to_model(found))


def _to_model(agent: AgentRecord) -> JsonObject:
    return {"id": agent.name, "object": "model", "created": 0, "owned_by": "holdfast"}


def _make_ok(body: JsonObject) -> ServerResponse:
    return ServerResponse(200, msgspec.json.encode(body))


__all__ = ["OpenAIFace", "make_face"]
