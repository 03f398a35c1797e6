"""Requests below `/openai/v1`, and their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.agents import AgentRecord
from holdfast.canonical import JsonObject
from holdfast.errors import ServerDraining
from holdfast.ids import make_id
from holdfast.observability import Logger
from holdfast.operations import Caller, agents, runs
from holdfast.runtime import Runtime
from holdfast.server.faces import FrameStream, name_run
from holdfast.server.http import Disconnected, Send, ServerRequest, ServerResponse
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

_log = Logger("holdfast.server.openai")
PREFIX: Final = ("openai", "v1")


class OpenAIFace:
    """Answers OpenAI's clients."""

    def __init__(self, app: HttpApplication) -> None:
        """Answer for this application."""
        self._app = app

    async def close(self) -> None:
        """Nothing was opened."""

    async def answer(self, request: ServerRequest, send: Send) -> ServerResponse | None:
        """Return the answer, errors in the form of OpenAI; `None` if it was sent as a stream."""
        request_id = str(request.scope.get("holdfast.request_id", ""))
        try:
            return await self._answer(request, send, request_id)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - a door: told in the form of the protocol
            response = make_failure_response(error, request_id)
            if response.status >= 500:
                _log.warning("request failed", status=response.status, error=str(error))
            return response

    async def _answer(
        self, request: ServerRequest, send: Send, request_id: str
    ) -> ServerResponse | None:
        app, method, words = self._app, request.head.method, request.segments
        caller = await app.authenticator.authenticate(request.head)
        if app.is_draining:
            raise ServerDraining
        runtime = await app.runtimes.runtime_for(caller)
        rest = words[2:] if words[:2] == PREFIX else ()
        match (method, *rest):
            case ("GET", "models"):
                return await _list_models(runtime, caller)
            case ("GET", "models", name):
                return await _get_model(runtime, caller, name)
            case ("POST", "chat", "completions"):
                body = await self._read(request)
                return await self._chat(request, send, runtime, caller, body)
            case ("POST", "responses"):
                body = await self._read(request)
                return await self._respond(request, send, runtime, caller, body)
            case ("GET", "responses", id):
                return await self._read_response(request, send, runtime, caller, id)
            case ("POST", "responses", id, "cancel"):
                found = await open_response(runtime, caller, id)
                await runs.cancel.perform(runtime, caller, found.id.run_id, reason="by the client")
                await runs.result.perform(runtime, caller, found.id.run_id, raise_on_failure=False)
                return _make_ok(await found.read())
        path = "/".join(words)
        raise ProblemRaised(404, "request.path", f"there is no {method} /{path} here")

    async def _read(self, request: ServerRequest) -> dict[str, Any]:
        options = self._app.options
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise ProblemRaised(415, "request.encoding", "send the body as it is, not packed")
        data = await request.read_body(
            limit=options.max_body_bytes, timeout_s=options.body_timeout_s
        )
        try:
            body = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadRequest("the body is no JSON") from None
        if not isinstance(body, dict):
            raise BadRequest("the body is no JSON object")
        _check_depth(body, options.max_depth)
        return body

    async def _check_agent(self, runtime: Runtime, caller: Caller, body: dict[str, Any]) -> None:
        """Raise as OpenAI does for a model that is not there."""
        name = body.get("model")
        if isinstance(name, str) and name and await runtime.runs.get_agent(name) is None:
            raise BadRequest(f"there is no agent {name!r:.80}", "model", "model_not_found", 404)

    async def _chat(
        self,
        request: ServerRequest,
        send: Send,
        runtime: Runtime,
        caller: Caller,
        body: dict[str, Any],
    ) -> ServerResponse | None:
        await self._check_agent(runtime, caller, body)
        run_id = _choose_run(request, caller, "openai.chat")
        asked = await read_chat(runtime, caller, body, run_id=run_id)
        completion = Completion(asked, runtime, caller)
        if not body.get("stream"):
            return _make_ok(await completion.answer())
        options = body.get("stream_options")
        has_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        request_id = str(request.scope.get("holdfast.request_id", ""))
        frames = completion.stream(has_usage=has_usage, request_id=request_id)
        await self._send(frames, request, send)
        return None

    async def _respond(
        self,
        request: ServerRequest,
        send: Send,
        runtime: Runtime,
        caller: Caller,
        body: dict[str, Any],
    ) -> ServerResponse | None:
        await self._check_agent(runtime, caller, body)
        run_id = _choose_run(request, caller, "openai.responses")
        asked = await read_request(runtime, caller, body, run_id=run_id)
        id = ResponseId(asked.run_id, asked.after)
        made = ResponseRun(runtime, caller, id, asked.client, asked.agent)
        if body.get("background") is True:
            await made.begin(asked)
            if not body.get("stream"):
                return _make_ok(await made.read())
            await self._send(_number(made.follow(), 0), request, send)
            return None
        events = made.execute(asked)
        if body.get("stream"):
            await self._send(_number(events, 0), request, send)
            return None
        async for _ in events:
            pass
        return _make_ok(made.to_body())

    async def _read_response(
        self, request: ServerRequest, send: Send, runtime: Runtime, caller: Caller, id: str
    ) -> ServerResponse | None:
        found = await open_response(runtime, caller, id)
        query = dict(request.read_query())
        if query.get("stream") != "true":
            return _make_ok(await found.read())
        after = query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal() or len(after) > 12:
            raise BadRequest("starting_after is the number of an event", "starting_after")
        await self._send(_number(found.follow(), int(after) + 1), request, send)
        return None

    async def _send(
        self, frames: AsyncGenerator[bytes, None], request: ServerRequest, send: Send
    ) -> None:
        stream = FrameStream(frames, heartbeat_s=self._app.options.heartbeat_s)
        self._app.streams.add(stream)
        try:
            await stream.send_all(request, send)
        finally:
            self._app.streams.discard(stream)


def _choose_run(request: ServerRequest, caller: Caller, face: str) -> str:
    key = request.headers.get("idempotency-key", "")
    return name_run(caller, face, key) or make_id("run")


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


def _check_depth(value: object, most: int) -> None:
    """Refuse a body that is nested too deeply; raises BadRequest."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise BadRequest(f"the body is nested more than {most} levels deep")


__all__ = ["OpenAIFace"]
