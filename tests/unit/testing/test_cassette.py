from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import CassetteMismatch, ConfigError
from holdfast.testing import Cassette
from holdfast.testing.cassette_file import (
    CassetteFile,
    Exchange,
    Scrubber,
    load,
    read_chunk_bytes,
    record_request,
    record_response,
    save,
)

KEY = "planted-S3cr3t/key+42"
EVENTS = [b'data: {"text": "caf\xc3', b'\xa9"}\n\n', b"data: [DONE]\n\n"]


class Upstream:
    """A provider that streams, and says too much about the key it was given."""

    def __init__(self) -> None:
        self.calls = 0
        self.base_url = ""
        self.chunks = EVENTS
        self.breaks = False

    async def __aenter__(self) -> Upstream:
        app = web.Application()
        app.router.add_post("/v1/chat", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        headers = {
            "Content-Type": "text/event-stream",
            "X-Request-Id": "req_1",
            "Set-Cookie": "session=planted-cookie-value; Path=/",
            "Openai-Organization": "planted-organization",
        }
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(request)
        for chunk in self.chunks:
            await answer.write(chunk)
            await asyncio.sleep(0)
        if self.breaks:
            assert request.transport is not None
            request.transport.close()
        return answer


async def post(base_url: str, body: object, **headers: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {KEY}", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url}/chat?key={KEY}x", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.read()


async def record(path: Path, *bodies: object, upstream: Upstream | None = None) -> None:
    async with upstream or Upstream() as server:
        cassette = Cassette(path, upstream=server.base_url, mode="record")
        async with cassette:
            for body in bodies:
                await post(cassette.base_url, body)


async def test_a_replay_gives_the_recorded_answers_without_the_provider(tmp_path):
    path = tmp_path / "tapes" / "chat.yaml"
    server = Upstream()
    await record(path, {"n": 1, "a": [1, 2]}, {"n": 2}, upstream=server)
    assert server.calls == 2
    async with Cassette(path) as cassette:
        assert await post(cassette.base_url, {"n": 2}) == (200, b"".join(EVENTS))
        assert await post(cassette.base_url, {"a": [1, 2], "n": 1}) == (200, b"".join(EVENTS))
        assert cassette.unused == 0
    assert server.calls == 2


async def test_the_file_can_be_read_by_people(tmp_path):
    path = tmp_path / "chat.yaml"
    server = Upstream()
    server.chunks = [b'data: {"text": "hello"}\n\n', b"data: [DONE]\n\n"]
    await record(path, {"model": "m", "messages": [{"role": "user"}]}, upstream=server)
    exchange = yaml.safe_load(path.read_text())["exchanges"][0]
    assert exchange["request"]["body"]["json"]["messages"] == [{"role": "user"}]
    assert "".join(exchange["response"]["chunks"]) == b"".join(server.chunks).decode()
    assert exchange["response"]["headers"]["x-request-id"] == "req_1"
    assert "    - |+\n      data: {" in path.read_text()


async def test_no_planted_secret_reaches_the_file_a_log_or_a_repr(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "chat.yaml"
    token = "sk-planted1234567890abcdef"
    half = len(KEY) // 2
    async with Upstream() as server:
        server.chunks = [
            f'{{"error": "wrong key {KEY[:half]}'.encode(),
            f'{KEY[half:]} or {token}"}}'.encode(),
        ]
        cassette = Cassette(
            path, upstream=server.base_url, mode="record", secrets=["planted-by-hand"]
        )
        async with cassette:
            await post(
                cassette.base_url,
                {"note": f"my key is {KEY}", "nested": [{KEY: "planted-by-hand"}]},
                **{"X-Custom-Key": "planted-custom", "Cookie": "planted-cookie=1"},
            )
        shown = repr(cassette.exchanges) + repr(cassette._scrub) + caplog.text
    text = path.read_text() + shown
    assert "<removed>" in text
    for secret in (KEY, token, "planted", "S3cr3t"):
        assert secret not in text


async def test_a_request_that_was_not_recorded_is_refused_with_the_nearest_and_a_diff(tmp_path):
    path = tmp_path / "chat.yaml"
    await record(path, {"model": "m", "messages": ["hello"]}, {"other": True})
    cassette = Cassette(path)
    with pytest.raises(CassetteMismatch) as raised:
        async with cassette:
            status, body = await post(cassette.base_url, {"model": "m", "messages": ["bye"]})
            assert status == 400
            assert b"cassette_mismatch" in body
    assert raised.value.code == "testing.cassette_mismatch"
    difference = str(raised.value.context["difference"])
    assert "exchange 1 of 2" in difference
    assert '-    "hello"' in difference
    assert '+    "bye"' in difference
    assert cassette.unused == 2


async def test_the_mismatch_is_raised_even_if_the_test_failed_of_it_first(tmp_path):
    path = tmp_path / "chat.yaml"
    await record(path, {"n": 1})
    with pytest.raises(CassetteMismatch) as raised:
        async with Cassette(path) as cassette:
            await post(cassette.base_url, {"n": 2})
            raise ValueError("a consequence")
    assert isinstance(raised.value.__cause__, ValueError)


async def test_an_answer_is_given_once(tmp_path):
    path = tmp_path / "chat.yaml"
    await record(path, {"n": 1})
    with pytest.raises(CassetteMismatch) as raised:
        async with Cassette(path) as cassette:
            await post(cassette.base_url, {"n": 1})
            await post(cassette.base_url, {"n": 1})
    assert "already given" in str(raised.value)


async def test_a_connection_that_broke_breaks_again(tmp_path):
    path = tmp_path / "chat.yaml"
    async with Upstream() as server:
        server.breaks = True
        async with Cassette(path, upstream=server.base_url, mode="record") as cassette:
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(cassette.base_url, {"n": 1})
    async with Cassette(path) as cassette:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(cassette.base_url, {"n": 1})


async def test_auto_records_once_and_replays_from_then_on(tmp_path):
    path = tmp_path / "chat.yaml"
    async with Upstream() as server:
        for _ in range(3):
            async with Cassette(path, upstream=server.base_url, mode="auto") as cassette:
                await post(cassette.base_url, {"n": 1})
        assert server.calls == 1


async def test_nothing_is_written_when_the_recording_test_fails(tmp_path):
    path = tmp_path / "chat.yaml"
    with pytest.raises(ValueError, match="oops"):
        async with Upstream() as server, Cassette(path, upstream=server.base_url, mode="record"):
            raise ValueError("oops")
    assert list(tmp_path.iterdir()) == []


async def test_an_upstream_that_cannot_be_reached_is_said_at_the_end(tmp_path):
    async with Upstream() as server:
        base_url = server.base_url
    with pytest.raises(ConfigError):
        async with Cassette(tmp_path / "x.yaml", upstream=base_url, mode="record") as cassette:
            assert (await post(cassette.base_url, {}))[0] == 502
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [None, "[]", "a: [", "holdfast_cassette: 9\nupstream: x\nexchanges: []\n"]
)
async def test_a_missing_or_broken_cassette_is_a_clear_error(tmp_path, content):
    path = tmp_path / "chat.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError):
        async with Cassette(path):
            raise AssertionError("not reached")
    with pytest.raises(ConfigError):
        async with Cassette(path, mode="record"):
            raise AssertionError("not reached")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=60), max_size=6), st.text(max_size=200), json_values)
@settings(max_examples=100, deadline=None)
@example([], "a\x85b\u2028c\u2029\ufeffd\r\ne", "\x85")
def test_whatever_was_recorded_is_read_back_as_it_was(tmp_path_factory, chunks, text, body):
    chunks = [*chunks, text.encode("utf-8", "replace")]
    path = tmp_path_factory.getbasetemp() / "tape.yaml"
    scrub = Scrubber()
    request = record_request("POST", "/v1", "", {}, msgspec.json.encode(body), scrub)
    response = record_response(200, {"content-type": "x"}, chunks, False, scrub)
    tape = CassetteFile(
        upstream="http://x", exchanges=(Exchange(request=request, response=response),)
    )
    save(path, tape)
    again = load(path)
    assert again == tape
    assert b"".join(read_chunk_bytes(c) for c in again.exchanges[0].response.chunks) == scrub.data(
        b"".join(chunks)
    )
