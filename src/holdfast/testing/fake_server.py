"""A real HTTP server that speaks all three model APIs from a script.

As its own process, for benchmarks: `python -m holdfast.testing.fake_server` prints one
line of JSON with the base URL and serves a tool conversation until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias

import msgspec
from aiohttp import web

from holdfast.canonical import JsonObject
from holdfast.messages import TokenUsage
from holdfast.testing.fake_embeddings import build_embeddings_body
from holdfast.testing.fake_rules import RefusedRequest, check_request
from holdfast.testing.fake_wires import (
    Failure,
    HoldPoint,
    Place,
    RawAnswer,
    Reply,
    Scripted,
    ScriptedCall,
    Wire,
    build_error_body,
    make_cancelled_body,
    make_open_body,
    read_whole_body,
    stream_events,
)

__all__ = [
    "Failure",
    "FakeServer",
    "HoldPoint",
    "RawAnswer",
    "Recorded",
    "Reply",
    "ScriptedCall",
    "Wire",
    "make_obedient_reply",
    "make_tool_conversation",
]

_PATHS: dict[str, Wire] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
}
_LATER = re.compile(r"/v1/responses/(?P<id>[^/]+)(?P<step>/cancel)?")
_MAX_BODY = 256 * 1024 * 1024


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came; header names are in lower case."""

    wire: Wire | None
    path: str
    headers: dict[str, str]
    body: bytes
    json: Any = None
    query: dict[str, str] = {}


class _Later(msgspec.Struct):
    """A response in the background: what it will be, and how often it is still open."""

    reply: Reply
    model: str
    left: int
    is_cancelled: bool = False


Script: TypeAlias = Callable[[Recorded], Scripted]


class FakeServer:
    """Answers requests in the order of a script, and keeps each of them.

    Requests that the real API would refuse are refused, also when an answer waits.
    With a `key` every request must carry it. Use as `async with FakeServer(...) as s`,
    then `s.base_url`. `disconnected` is set when a client leaves before its answer ends.

    Responses that are asked for in the background can be asked for again, also as a stream
    from a place on, and cancelled; `cancelled` is set with the first that is.
    """

    def __init__(
        self,
        answers: Iterable[Scripted] = (),
        *,
        script: Script | None = None,
        key: str = "",
        wires: Iterable[Wire] = ("chat", "responses", "anthropic"),
        models: Iterable[str] = ("fake-model",),
        unknown: Scripted | None = None,
        check: bool = True,
        dimension: int = 64,
    ) -> None:
        """Prepare; nothing listens yet. `unknown` answers paths that are not served.

        `/v1/embeddings` gives texts with words in common similar vectors of `dimension`, in
        a space of its own for every model.
        """
        self.answers: deque[Scripted] = deque(answers)
        self.requests: list[Recorded] = []
        self.disconnected = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._later: dict[str, _Later] = {}
        self.meanings: dict[str, str] = {}
        """Words that embeddings take for another one."""
        self._script = script
        self._key = key
        self._wires = frozenset(wires)
        self._models = tuple(models)
        self._unknown = unknown or Failure(status=404, message="unknown path")
        self._check = check
        self._dimension = dimension
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._seen: dict[int, object] = {}

    @property
    def connections(self) -> int:
        """How many connections brought a request."""
        return len(self._seen)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """What an `Endpoint` takes, for all three APIs."""
        return f"{self.origin}/v1"

    async def __aenter__(self) -> Self:
        """Listen on a free port of the loopback interface."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening and close every connection."""
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on the loopback interface."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.disconnected.set()
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        # Kept, so that no later connection can look like an earlier one.
        self._seen.setdefault(id(request.transport), request.transport)
        if request.method == "GET" and request.path == "/v1/models":
            listed = [{"id": name, "object": "model"} for name in self._models]
            return _parse_json(200, msgspec.json.encode({"object": "list", "data": listed}))
        recorded = await self._record(request)
        self.requests.append(recorded)
        wire = recorded.wire
        if request.path == "/v1/embeddings" and request.method == "POST":
            return await self._embed(request, recorded)
        later = _LATER.fullmatch(request.path)
        if later is not None and later["id"] in self._later and self._has_key(recorded):
            return await self._send_later(request, recorded, later)
        if wire is None or wire not in self._wires or request.method != "POST":
            return await self._send(request, wire or "chat", recorded, self._unknown)
        if self._key and not self._has_key(recorded):
            refused = Failure(status=401, message=f"Incorrect API key provided: {self._key}")
            return await self._send(request, wire, recorded, refused)
        if self._check:
            try:
                check_request(wire, recorded.json, request.headers)
            except RefusedRequest as reason:
                refused = Failure(status=400, message=str(reason))
                return await self._send(request, wire, recorded, refused)
        return await self._send(request, wire, recorded, self._take_next(recorded))

    async def _embed(self, request: web.Request, recorded: Recorded) -> web.StreamResponse:
        answer: Scripted | None = self.answers.popleft() if self.answers else None
        if self._key and not self._has_key(recorded):
            answer = Failure(status=401, message=f"Incorrect API key provided: {self._key}")
        if answer is not None:
            return await self._send(request, "chat", recorded, answer)
        try:
            body = build_embeddings_body(recorded.json, self._dimension, self.meanings)
        except RefusedRequest as reason:
            refused = Failure(status=400, message=str(reason))
            return await self._send(request, "chat", recorded, refused)
        return _parse_json(200, body)

    async def _record(self, request: web.Request) -> Recorded:
        body = await request.read()
        try:
            data = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            data = None
        headers = {name.lower(): value for name, value in request.headers.items()}
        wire = _PATHS.get(request.path)
        return Recorded(
            wire=wire,
            path=request.path,
            headers=headers,
            body=body,
            json=data,
            query=dict(request.query),
        )

    def _has_key(self, recorded: Recorded) -> bool:
        if recorded.wire == "anthropic":
            return recorded.headers.get("x-api-key") == self._key
        return recorded.headers.get("authorization") == f"Bearer {self._key}"

    def _take_next(self, recorded: Recorded) -> Scripted:
        if self.answers:
            return self.answers.popleft()
        if self._script is not None:
            return self._script(recorded)
        return Failure(status=400, message="the script has no answer for this request")

    async def _send(
        self, request: web.Request, wire: Wire, recorded: Recorded, answer: Scripted
    ) -> web.StreamResponse:
        if isinstance(answer, Failure):
            return _parse_json(answer.status, build_error_body(wire, answer), answer.headers)
        if isinstance(answer, RawAnswer):
            return await _send_raw(request, answer)
        data = recorded.json if isinstance(recorded.json, dict) else {}
        model = str(data.get("model", "fake-model"))
        if wire == "responses" and data.get("background"):
            return await self._send_open(request, answer, model, is_stream=bool(data.get("stream")))
        if data.get("stream"):
            return await _send_stream(request, answer, stream_events(wire, answer, model))
        await _stand(answer, "head")
        await _stand(answer, "first")
        body = read_whole_body(wire, answer, model)
        if answer.break_at or answer.end_at:
            return await _send_stream(request, answer, [body[:9], body[9:40], body[40:]])
        return _parse_json(200, body, answer.headers)

    async def _send_open(
        self, request: web.Request, answer: Reply, model: str, *, is_stream: bool
    ) -> web.StreamResponse:
        """Begin a response in the background."""
        self._later["resp_1"] = _Later(answer, model, answer.open_for)
        if is_stream:
            events = stream_events("responses", answer, model, in_background=True)
            return await _send_stream(request, answer, events)
        return _parse_json(200, make_open_body(answer, model, "queued"), answer.headers)

    async def _send_later(
        self, request: web.Request, recorded: Recorded, asked: re.Match[str]
    ) -> web.StreamResponse:
        """Say how a response in the background stands, go on with it, or cancel it."""
        later = self._later[asked["id"]]
        if asked["step"]:
            later.is_cancelled = True
            self.cancelled.set()
        if later.is_cancelled:
            return _parse_json(200, make_cancelled_body(later.model))
        if self.answers and isinstance(self.answers[0], Failure | RawAnswer):
            return await self._send(request, "responses", recorded, self.answers.popleft())
        whole = msgspec.structs.replace(later.reply, break_at=None, end_at=None, gate=None)
        if recorded.query.get("stream") == "true":
            events = stream_events("responses", whole, later.model, in_background=True)
            after = int(recorded.query.get("starting_after", "-1"))
            return await _send_stream(request, whole, events[after + 1 :])
        if later.left > 0:
            later.left -= 1
            return _parse_json(200, make_open_body(later.reply, later.model, "in_progress"))
        return _parse_json(200, read_whole_body("responses", whole, later.model))


async def _stand(answer: Reply, place: Place) -> None:
    if answer.gate is not None and answer.gate_at == place:
        answer.gate.reached.set()
        await answer.gate.release.wait()


async def _send_stream(
    request: web.Request, answer: Reply, events: list[bytes]
) -> web.StreamResponse:
    await _stand(answer, "head")
    headers = {"x-request-id": "req_head", **answer.headers}
    response = web.StreamResponse(headers=headers)
    response.content_type = "text/event-stream"
    await response.prepare(request)
    if answer.in_one_piece:
        _cork(request, True)
    places: dict[int, Place] = {0: "first", len(events) // 2: "middle", len(events) - 1: "end"}
    for index, event in enumerate(events):
        place = places.get(index)
        if place is not None:
            await _stand(answer, place)
            if answer.break_at == place:
                assert request.transport is not None
                request.transport.abort()
                return response
            if answer.end_at == place:
                break
        await response.write(event)
    await response.write_eof()
    if answer.in_one_piece:
        _cork(request, False)
    if answer.hang_up:
        assert request.transport is not None
        request.transport.close()
    return response


def _cork(request: web.Request, is_corked: bool) -> None:
    """Let the kernel hold back what is written, or send it."""
    assert request.transport is not None
    connection = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, int(is_corked))


async def _send_raw(request: web.Request, answer: RawAnswer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    if answer.content_type:
        response.headers["Content-Type"] = answer.content_type
    await response.prepare(request)
    for chunk in answer.chunks:
        if chunk:
            await response.write(chunk)
        elif answer.gate is not None:
            answer.gate.reached.set()
            await answer.gate.release.wait()
    await response.write_eof()
    return response


def _parse_json(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    sent = {"x-request-id": "req_head", **(headers or {})}
    return web.Response(status=status, body=body, content_type="application/json", headers=sent)


def make_obedient_reply(recorded: Recorded) -> Reply:
    """Answer like a very plain model that does what the request demands.

    One output token gives a cut answer, an output schema gives JSON that fits a flat
    one, a demanded tool is called, and anything else gets a text.
    """
    data = recorded.json
    if 1 in (data.get(name) for name in _LIMITS):
        return Reply(text="One", stop_reason="length")
    schema = _find_schema(data)
    if schema is not None:
        return Reply(text=msgspec.json.encode(_make_example(schema)).decode())
    choice = data.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind in ("required", "any", "function", "tool"):
        tool = data["tools"][0]
        tool = tool.get("function", tool)
        schema = tool.get("parameters") or tool.get("input_schema")
        arguments = msgspec.json.encode(_make_example(schema)).decode()
        return Reply(calls=(ScriptedCall(name=tool["name"], arguments=arguments),))
    return Reply(text="Grüße aus 東京, all is well. 🦀", reasoning="Say hello.")


_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def _find_schema(data: JsonObject) -> JsonObject | None:
    chat = (data.get("response_format") or {}).get("json_schema") or {}
    responses = (data.get("text") or {}).get("format") or {}
    anthropic = (data.get("output_config") or {}).get("format") or {}
    found = chat.get("schema") or responses.get("schema") or anthropic.get("schema")
    return found if isinstance(found, dict) else None


def _make_example(schema: JsonObject) -> JsonObject:
    values: JsonObject = {"integer": 7, "number": 1.5, "boolean": True, "string": "x"}
    properties = schema.get("properties", {})
    return {name: values.get(node.get("type"), "x") for name, node in properties.items()}


def make_tool_conversation(
    rounds: int,
    *,
    text_chars: int = 400,
    said_chars: int = 20,
    piece_chars: int = 8,
    in_one_piece: bool = False,
) -> Script:
    """Return a script that calls the first tool `rounds` times, then answers in text.

    It says `said_chars` with each call and `text_chars` in the end; the others are those of
    `Reply`. It reads the number of rounds out of the request, so any number of conversations
    may run at once.
    """

    def say(begin: str, chars: int) -> str:
        return (begin * (chars // len(begin) + 1))[:chars]

    def answer(recorded: Recorded) -> Reply:
        body = recorded.body
        done = body.count(b'"tool_call_id"') + body.count(b'"function_call_output"')
        done += body.count(b'"tool_use_id"')
        usage = TokenUsage(input=100 + 50 * done, output=20)
        text = say("All is done. ", text_chars)
        calls: tuple[ScriptedCall, ...] = ()
        if done < rounds:
            text = say("Let me compute that. ", said_chars)
            arguments = f'{{"a": {done}, "b": 23, "note": "multiply these two numbers"}}'
            calls = (ScriptedCall(name="multiply", arguments=arguments, id=f"call_{done}"),)
        return Reply(
            text=text,
            calls=calls,
            usage=usage,
            piece_chars=piece_chars,
            in_one_piece=in_one_piece,
        )

    return answer


async def _serve(port: int, script: Script, check: bool) -> None:
    server = FakeServer(script=script, check=check)
    # A benchmark sends more than a test: do not keep what was received.
    server.requests = _Forgetful()
    await server.start(port)
    line = msgspec.json.encode({"base_url": server.base_url}).decode()
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


class _Forgetful(list[Recorded]):
    def append(self, item: Recorded, /) -> None:
        """Keep nothing."""


def main(arguments: list[str] | None = None) -> None:
    """Serve a tool conversation on the loopback interface until ended."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.fake_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-check", action="store_true", help="take any request")
    parser.add_argument("--text-chars", type=int, default=400, help="of the last answer")
    parser.add_argument("--said-chars", type=int, default=20, help="of what is said with a call")
    parser.add_argument("--piece-chars", type=int, default=8, help="of each event of a stream")
    parser.add_argument("--in-one-piece", action="store_true", help="events arrive together")
    given = parser.parse_args(arguments)
    script = make_tool_conversation(
        given.rounds,
        text_chars=given.text_chars,
        said_chars=given.said_chars,
        piece_chars=given.piece_chars,
        in_one_piece=given.in_one_piece,
    )
    try:
        asyncio.run(_serve(given.port, script, not given.no_check))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
