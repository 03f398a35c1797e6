"""Requests as they stand on the line, and answers from servers that do odd things with it."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from wire_kit import KEY, answer, ask, user
from yarl import URL

from holdfast.errors import LLMAuthError, LLMBadRequest, LLMConnectionError, LLMError
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, WireModel
from holdfast.providers.wire import connection as wire_line
from holdfast.providers.wire.connection import HttpConnection as Kept
from holdfast.providers.wire.connection import Route
from holdfast.testing.fake_server import Reply
from holdfast.testing.fake_wires import read_whole_body

BODY = read_whole_body("chat", Reply(text="Hello."), "m")
OTHER = read_whole_body("chat", Reply(text="Not for you."), "m")
Serve = Callable[["Line"], Awaitable[None]]


def http(body: bytes, *more: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", *more]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


class Line:
    """One connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heads: list[bytes] = []

    async def request(self) -> bytes:
        """Take one request; return its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(size)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def arrived(self) -> None:
        """Wait until all that was said lies with the other side, ready to be read."""
        socket = self.writer.get_extra_info("socket")
        under_way = bytearray(b"\xff" * 4)
        while any(under_way):
            await asyncio.sleep(0)
            fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, under_way)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[str, list[Line]]]:
    """Give the address of a server, and its connections in order."""
    lines: list[Line] = []
    served: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        lines.append(Line(reader, writer))
        try:
            await serve(lines[-1])
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1", lines
    finally:
        server.close()
        for line in lines:
            line.writer.close()
        await asyncio.gather(*filter(None, served), return_exceptions=True)


def model_at(base_url: str, transport: HttpTransport, **more: object) -> WireModel:
    endpoint = Endpoint(provider="p", base_url=base_url, key=Secret(KEY), **more)  # type: ignore[arg-type]
    return WireModel(endpoint, "m", transport)


async def answering(line: Line) -> None:
    while True:
        await line.request()
        await line.say(http(BODY))


async def ask_quietly(model: WireModel, text: str = "Hello.") -> str:
    request = ask(user(text))
    return (await asyncio.wait_for(answer(model, request, deltas=False), 10)).text


async def test_a_request_has_each_header_once_and_the_users_words_count(
    transport: HttpTransport,
) -> None:
    async with serving(answering) as (base_url, lines):
        more = {"content-type": "application/json; v=2", "X-Team": "blue"}
        model = model_at(base_url + "?tenant=a%20b", transport, headers=more)
        assert await ask_quietly(model) == await ask_quietly(model) == "Hello."
    (line,) = lines
    assert line.heads[0] == line.heads[1]
    first, *pairs = line.heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    found = {name.lower(): value for name, _, value in (pair.partition(": ") for pair in pairs)}
    assert first == "POST /v1/chat/completions?tenant=a%20b HTTP/1.1"
    assert len(found) == len(pairs)
    assert found.pop("content-length").isdigit()
    assert found == {
        "host": base_url.removeprefix("http://").removesuffix("/v1"),
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "holdfast",
        "content-type": "application/json; v=2",
        "authorization": f"Bearer {KEY}",
        "x-team": "blue",
    }


async def test_what_comes_before_the_answer_is_no_answer(transport: HttpTransport) -> None:
    async def hinting(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        await line.say(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http(BODY))

    async with serving(hinting) as (base_url, _):
        assert await ask_quietly(model_at(base_url, transport)) == "Hello."


async def test_a_second_answer_to_one_question_is_not_taken_for_the_next_one(
    transport: HttpTransport,
) -> None:
    async def doubling(line: Line) -> None:
        await line.request()
        await line.say(http(BODY) + http(OTHER))
        await line.reader.read()

    async with serving(doubling) as (base_url, lines):
        model = model_at(base_url, transport)
        assert await ask_quietly(model) == await ask_quietly(model) == "Hello."
        assert len(lines) == 2


async def test_what_a_server_says_unasked_is_not_taken_for_an_answer(
    transport: HttpTransport,
) -> None:
    speak, spoken = asyncio.Event(), asyncio.Event()

    async def intruding(line: Line) -> None:
        await line.request()
        await line.say(http(BODY))
        await speak.wait()
        await line.say(http(OTHER))
        await line.arrived()
        spoken.set()
        await line.reader.read()

    async with serving(intruding) as (base_url, lines):
        model = model_at(base_url, transport)
        assert await ask_quietly(model) == "Hello."
        speak.set()
        await asyncio.wait_for(spoken.wait(), 30)
        # This very loop reads it with its next turn, and passes it on with those that follow.
        for _ in range(20):
            await asyncio.sleep(0)
        assert await ask_quietly(model) == "Hello."
        assert len(lines) == 2


async def test_a_refusal_before_the_request_is_read_is_that_refusal(
    transport: HttpTransport,
) -> None:
    refused = asyncio.Event()

    async def hasty(line: Line) -> None:
        if refused.is_set():
            await answering(line)
        await line.reader.readuntil(b"\r\n\r\n")
        refused.set()
        await line.say(http(b'{"error": "no"}', status="400 Bad Request"))
        await line.reader.read()

    async with serving(hasty) as (base_url, lines):
        model = model_at(base_url, transport)
        with pytest.raises(LLMBadRequest):
            await ask_quietly(model, "x" * 8_000_000)
        # The rest of that request must not run into the next one.
        assert await ask_quietly(model) == "Hello."
        assert len(lines) == 2


@pytest.mark.parametrize(
    "noise",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
        b"",
    ],
    ids=range(7),
)
async def test_what_is_no_http_is_an_error_without_the_key(
    transport: HttpTransport, noise: bytes
) -> None:
    async def babbling(line: Line) -> None:
        await line.request()
        await line.say(noise)

    async with serving(babbling) as (base_url, _):
        with pytest.raises(LLMError) as caught:
            await ask_quietly(model_at(base_url, transport))
    assert KEY not in repr(caught.value) + str(caught.value.to_dict())
    assert caught.value.is_retryable


async def test_a_cancelled_call_lets_go_of_its_connection(transport: HttpTransport) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(line: Line) -> None:
        await line.request()
        asked.set()
        await line.reader.read()
        gone.set()

    async with serving(silent) as (base_url, _):
        task = asyncio.create_task(ask_quietly(model_at(base_url, transport)))
        await asyncio.wait_for(asked.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 30)


async def test_a_transport_that_was_closed_opens_again(transport: HttpTransport) -> None:
    async with serving(answering) as (base_url, lines):
        model = model_at(base_url, transport)
        assert await ask_quietly(model) == "Hello."
        await transport.close()
        assert await ask_quietly(model) == "Hello."
        assert len(lines) == 2


async def test_a_header_that_breaks_a_line_is_never_sent(transport: HttpTransport) -> None:
    async with serving(answering) as (base_url, lines):
        headers = {"X-Team": "blue"}
        model = model_at(base_url, transport, headers=headers)
        headers["X-Team"] = "blue\r\nX-Other: red"
        with pytest.raises(LLMConnectionError):
            await ask_quietly(model)
        assert not any(line.heads for line in lines)


class Faucet(asyncio.Transport):
    """A connection that gives as much as it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol | None = None
        self.is_paused = False
        self.asked = asyncio.Event()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: object) -> None:
        self.asked.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        assert self.protocol is not None
        self.protocol.connection_lost(None)

    def pour(self, data: bytes, times: int) -> int:
        """Give some bytes again and again until it is enough; return how often."""
        given = 0
        while not self.is_paused and given < times:
            assert isinstance(self.protocol, asyncio.Protocol)
            self.protocol.data_received(data)
            given += 1
        return given


def kept_line(transport: HttpTransport, faucet: Faucet, idle: list[Kept]) -> Kept:
    loop = asyncio.get_running_loop()
    request = aiohttp.ClientRequest("POST", URL("http://h.example/v1"))
    keeper = ResponseHandler(loop)
    keeper.connection_made(faucet)
    pool = transport.pool().connector
    connection = Connection(pool, request.connection_key, keeper, loop)
    return Kept(connection, keeper, idle, b"POST / HTTP/1.1\r\nContent-Length: ")


async def test_an_answer_that_nobody_reads_does_not_pile_up(transport: HttpTransport) -> None:
    faucet = Faucet()
    idle: list[Kept] = []
    line = kept_line(transport, faucet, idle)
    posting = line.post(b"{}")
    await asyncio.sleep(0)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    faucet.pour(head, 1)
    await posting
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    assert faucet.pour(chunk, 1_000) < 50
    await line.more()
    held = line.take()
    assert len(held) < 500_000 and not faucet.is_paused
    assert faucet.pour(chunk, 10) == 10 and len(line.take()) == 100_000
    # The end is here and much is unread: the connection waits for more and must be heard again.
    faucet.pour(chunk, 1_000)
    line.data_received(b"0\r\n\r\n")
    assert line.is_received
    line.release()
    assert not faucet.is_paused and idle == [line]
    line.cut()
    assert idle == []


async def test_a_refusal_counts_though_its_connection_broke_before_it_was_heard(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    faucet = Faucet()
    line = kept_line(transport, faucet, [])
    monkeypatch.setattr(Route, "kept", lambda _: line)
    asking = asyncio.create_task(ask_quietly(model_at("http://h.example/v1", transport)))
    await faucet.asked.wait()
    refused = http(b'{"error": {"message": "no such key"}}', status="401 Unauthorized")
    line.data_received(refused[:-5])
    line.connection_lost(ConnectionResetError())
    with pytest.raises(LLMAuthError):
        await asking


async def test_a_connection_that_nobody_needs_for_long_is_closed(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_line, "KEEPALIVE_S", 0.01)
    gone = asyncio.Event()

    async def waiting(line: Line) -> None:
        await line.request()
        await line.say(http(BODY))
        await line.reader.read()
        gone.set()

    async with serving(waiting) as (base_url, lines):
        model = model_at(base_url, transport)
        assert await ask_quietly(model) == "Hello."
        await asyncio.wait_for(gone.wait(), 30)
        assert await ask_quietly(model) == "Hello."
        assert len(lines) == 2


async def test_models_of_one_place_share_connections_whatever_their_keys(
    transport: HttpTransport,
) -> None:
    async with serving(answering) as (base_url, lines):
        endpoint = Endpoint(provider="p", base_url=base_url, key=Secret("other-key"))
        other = WireModel(endpoint, "m", transport)
        assert await ask_quietly(model_at(base_url, transport)) == "Hello."
        assert await ask_quietly(other) == "Hello."
        (line,) = lines
        assert KEY.encode() in line.heads[0] and KEY.encode() not in line.heads[1]
        assert b"Bearer other-key" in line.heads[1]
