"""Every request passes the same way, and what is wrong with it is said as a problem."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from served import Running, running, until

from holdfast.errors import ConfigError
from holdfast.operations import Caller
from holdfast.server import create_app
from holdfast.server.http import AsgiApp
from holdfast.settings import load_settings

AUTH = "Authorization"


async def test_health_version_and_readiness_need_no_caller(server: Running) -> None:
    for path in ("/health", "/ready", "/version", "/openapi.json", "/docs"):
        status, _ = await server.ask("GET", path, headers={AUTH: ""})
        assert status == 200, path


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer wrong", "Basic b3duZXI6", "bearer \xfc", "Bearer hfl_" + "0" * 64],
)
async def test_whoever_is_not_known_is_refused_in_the_same_words(
    server: Running, given: str
) -> None:
    seen = []
    for path in ("/v1/runs", "/v1/nothing", "/metrics"):
        status, problem = await server.ask("GET", path, headers={AUTH: given})
        assert (status, problem["code"]) == (401, "auth.required")
        seen.append((problem["detail"], problem["hint"]))
    assert len(set(seen)) == 1


async def test_the_token_lies_in_a_file_that_only_its_owner_reads(server: Running) -> None:
    file = server.base_dir / "server-token.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(server.token) > 60


def test_an_address_that_others_reach_needs_keys(tmp_path: Path) -> None:
    overrides = {"storage.state_dir": str(tmp_path), "server.host": "0.0.0.0"}
    with pytest.raises(ConfigError) as refused:
        create_app(load_settings(overrides=overrides).settings)
    assert "keys" in str(refused.value)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a\tb", "[::2]"])
async def test_a_foreign_host_is_refused(server: Running, host: str) -> None:
    status, problem = await server.ask("GET", "/health", headers={"Host": host})
    assert status in (400, 421), problem


async def test_a_page_from_elsewhere_may_not_ask(tmp_path: Path) -> None:
    async with running(tmp_path, allowed_origins=["https://ours.example"]) as server:
        for origin, expected in (
            ("https://evil.example", 403),
            ("null", 403),
            ("https://ours.example", 200),
            (server.url, 200),
        ):
            status, _ = await server.ask("GET", "/v1/runs", headers={"Origin": origin})
            assert status == expected, origin
        async with server.http.options(
            server.url + "/v1/runs", headers={"Origin": "https://ours.example"}
        ) as response:
            assert response.status == 204
            assert response.headers["access-control-allow-origin"] == "https://ours.example"


async def test_request_ids_are_taken_and_given(server: Running) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = {"X-Request-Id": "mine-1", "traceparent": trace}
    async with server.http.get(server.url + "/v1/runs", headers=headers) as response:
        assert response.headers["x-request-id"] == "mine-1"
        assert response.headers["traceparent"] == trace
    async with server.http.get(
        server.url + "/v1/nothing", headers={"X-Request-Id": "no good\u00e9"}
    ) as response:
        found = await response.json(content_type="application/problem+json")
        assert found["request_id"] == response.headers["x-request-id"] != "no good"


async def test_an_unknown_field_is_refused_with_the_nearest_known_one(server: Running) -> None:
    status, problem = await server.ask("POST", "/v1/sessions", {"tilte": "x"})
    assert (status, problem["code"]) == (400, "request.invalid")
    assert problem["context"]["nearest"] == "title"
    status, problem = await server.ask("GET", "/v1/sessions?limt=3")
    assert (status, problem["context"]["nearest"]) == (400, "limit")


async def test_filters_sort_and_cursors_walk_through_a_listing(server: Running) -> None:
    for name in "abcde":
        await server.ask("POST", "/v1/sessions", {"title": name})
    seen: list[str] = []
    cursor = ""
    while True:
        path = f"/v1/sessions?sort=title&descending=false&limit=2&state=active&cursor={cursor}"
        status, page = await server.ask("GET", path)
        assert status == 200, page
        seen += [one["title"] for one in page["items"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == list("abcde")
    status, problem = await server.ask("GET", "/v1/sessions?cursor=nonsense")
    assert (status, problem["code"]) == (400, "usage.invalid_cursor")


async def test_errors_have_the_status_and_the_code_of_what_happened(server: Running) -> None:
    for method, path, body, expected in (
        ("GET", "/v1/sessions/ses_none", None, (404, "usage.not_found")),
        ("GET", "/v1/agents/none", None, (404, "usage.not_found")),
        ("GET", "/v1/none", None, (404, "request.no_route")),
        ("PUT", "/v1/runs", None, (405, "request.method")),
        ("POST", "/v1/runs/wait", {"user_message": 7}, (400, "request.invalid")),
        ("POST", "/v1/runs?user_message=x", {"user_message": "x"}, (400, "request.invalid")),
    ):
        status, problem = await server.ask(method, path, body)
        assert (status, problem["code"]) == expected, path
        assert problem["status"] == status
        assert problem["type"].endswith(problem["code"])


# --- attacks --------------------------------------------------------------------------


def request_of(server: Running, line: str, *headers: str, body: bytes = b"") -> bytes:
    host = server.url.removeprefix("http://")
    head = [line, f"Host: {host}", f"Authorization: Bearer {server.token}", *headers]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


async def lives(server: Running) -> bool:
    status, _ = await server.ask("GET", "/ready")
    return status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../v1/runs", "/v1/%2e%2e/runs", "/v1//runs", "/v1/runs/", "/v1/runs/%2Fetc",
        "//v1/runs",
        "/v1/runs/..%2f..%2fetc%2fpasswd", "/v1/runs/%00", "/v1/runs/%5c..", "/v1/runs/%0d%0aX:1",
        "/v1/runs/%ff", "/v1/./runs", "/v1/runs;a=b/x", "http://evil.example/v1/runs",
        "/v1/tools/%2e%2e/call", "/v1/workflows/..%2fsecret.yaml",
    ],
)  # fmt: skip
async def test_path_tricks_reach_nothing(server: Running, path: str) -> None:
    data = request_of(server, f"GET {path} HTTP/1.1", "Connection: close")
    answer = await server.raw(data)
    assert answer.split(b" ")[1] in (b"400", b"404", b"405"), answer[:200]
    assert b"location" not in answer.lower()
    assert await lives(server)


@pytest.mark.parametrize(
    "headers, body",
    [
        (
            ("Content-Length: 5", "Transfer-Encoding: chunked"),
            b"0\r\n\r\nGET /v1/runs HTTP/1.1\r\n",
        ),
        (("Content-Length: 5", "Content-Length: 6"), b"hello!"),
        (("Transfer-Encoding: chunked, identity",), b"0\r\n\r\n"),
        (("Transfer-Encoding : chunked",), b"0\r\n\r\n"),
        (("Content-Length: +5",), b"hello"),
        (("Content-Length: -1",), b""),
        (("X-A: b\nTransfer-Encoding: chunked",), b"0\r\n\r\n"),
        (("Host: evil.example",), b""),
        (("Authorization: Bearer other",), b""),
    ],
)
async def test_smuggled_and_doubled_headers_are_refused(
    server: Running, headers: tuple[str, ...], body: bytes
) -> None:
    data = request_of(
        server, "POST /v1/sessions HTTP/1.1", "Content-Type: application/json", *headers,
        "Connection: close", body=body,
    )  # fmt: skip
    answer = await server.raw(data)
    first = answer.split(b"\r\n")[0]
    assert b"400" in first or b"501" in first or not answer, answer[:300]
    assert answer.count(b"HTTP/1.1") <= 1
    status, found = await server.ask("GET", "/v1/sessions")
    assert (status, found["items"]) == (200, [])


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with running(tmp_path, max_body_bytes=2048) as server:
        data = request_of(
            server, "POST /v1/sessions HTTP/1.1", "Content-Type: application/json",
            f"Content-Length: {1024**3}", body=b"x" * 100,
        )  # fmt: skip
        port = int(server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        async with asyncio.timeout(5):
            assert b" 413 " in await reader.readline()
        writer.close()
        status, problem = await server.ask("POST", "/v1/sessions", {"title": "x" * 4000})
        assert (status, problem["code"]) == (413, "request.too_large")

        async def endless() -> Any:
            for _ in range(100):
                yield b"x" * 1024

        async with server.http.post(server.url + "/v1/sessions", data=endless()) as response:
            assert response.status == 413
        assert await lives(server)


async def test_a_head_of_megabytes_is_refused(server: Running) -> None:
    data = request_of(server, "GET /v1/runs HTTP/1.1", "X-Big: " + "x" * 10_000_000)
    answer = await server.raw(data)
    assert not answer or b" 400 " in answer.split(b"\r\n")[0] or b" 431 " in answer
    assert await lives(server)


async def test_packed_bodies_are_refused_unread(server: Running) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with server.http.post(server.url + "/v1/sessions", data=bomb, headers=headers) as found:
        assert found.status == 415


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"title":"x","metadata":{"a":'])
async def test_deeply_nested_bodies_are_refused(server: Running, opening: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with server.http.post(
        server.url + "/v1/sessions", data=opening * 30_000, headers=headers
    ) as found:
        assert found.status == 400
    assert await lives(server)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"{", b'{"title": "\xed\xa0\x80"}', b"nul", b"[]"])
async def test_bodies_that_are_no_json_object_are_refused(server: Running, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with server.http.post(server.url + "/v1/sessions", data=body, headers=headers) as found:
        assert found.status == 400, await found.text()


async def test_a_lone_surrogate_is_refused(server: Running) -> None:
    headers = {"Content-Type": "application/json"}
    body = b'{"title": "\\ud800"}'
    async with server.http.post(server.url + "/v1/sessions", data=body, headers=headers) as found:
        assert found.status == 400, await found.text()


async def test_who_sends_a_head_too_slowly_is_cut_off(tmp_path: Path) -> None:
    async with running(tmp_path, header_timeout_s=0.3) as server:
        async with asyncio.timeout(5):
            assert await server.raw(b"GET /health HTTP/1.1\r\nX-A: ", timeout_s=4) in (b"",)
        # Byte by byte does not help: the head as a whole has its time.
        port = int(server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(5):
            for byte in b"GET /health HTTP/1.1\r\nX-Long: " + b"a" * 1000:
                try:
                    writer.write(bytes([byte]))
                    await writer.drain()
                except ConnectionError:
                    break
                if reader.at_eof():
                    break
                await asyncio.wait([asyncio.create_task(asyncio.sleep(0.02))])
            else:
                raise AssertionError("it was served for ever")
        writer.close()
        assert await lives(server)


async def test_who_stops_in_the_midst_of_a_body_is_cut_off(tmp_path: Path) -> None:
    async with running(tmp_path, body_timeout_s=0.3) as server:
        data = request_of(
            server, "POST /v1/sessions HTTP/1.1", "Content-Type: application/json",
            "Content-Length: 100", "Connection: close", body=b"{",
        )  # fmt: skip
        assert b" 408 " in await server.raw(data)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/sessions", "application/json"),
        ("/v1/sessions/import", "application/octet-stream"),
        ("/login", "application/x-www-form-urlencoded"),
    ],
)
async def test_who_sends_a_body_byte_by_byte_is_cut_off(
    tmp_path: Path, path: str, kind: str
) -> None:
    async with running(tmp_path, body_timeout_s=0.3) as server:
        port = int(server.url.rpartition(":")[2])
        head = request_of(
            server, f"POST {path} HTTP/1.1", f"Content-Type: {kind}",
            f"Origin: {server.url}", "Content-Length: 100000", "Connection: close",
        )  # fmt: skip
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        answer = asyncio.create_task(reader.read())
        for _ in range(1000):
            try:
                writer.write(b"x")
                await writer.drain()
            except ConnectionError:
                break
            if (await asyncio.wait([answer], timeout=0.02))[0]:
                break
        else:
            raise AssertionError("it was read for ever")
        writer.close()
        await asyncio.gather(answer, return_exceptions=True)
        await until(lambda: server.app.active == 0)
        assert await lives(server)


async def test_who_takes_no_answer_holds_no_connection(tmp_path: Path) -> None:
    async with running(tmp_path, write_timeout_s=0.3) as server:
        loop, port = asyncio.get_running_loop(), int(server.url.rpartition(":")[2])
        assert (await server.ask("GET", "/openapi.json"))[0] == 200
        await server.http.close()
        answered: list[str] = []
        server.app.observers.append(lambda name, status, taken: answered.append(name))
        # Half a megabyte for each of ten questions, and a client with hardly any room.
        data = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, data)
            await until(lambda: len(answered) >= 5)
            await until(lambda: not server.server.server_state.connections)
            await until(lambda: server.app.active == 0)
            assert len(answered) < 50


async def test_headers_of_a_proxy_count_only_if_it_is_on_the_list(tmp_path: Path) -> None:
    seen: list[str] = []

    class Noting:
        async def authenticate(self, request: Any) -> Caller:
            seen.append(f"{request.scheme} {request.address}")
            return Caller(tenant="t", subject="s", scopes=frozenset({"*"}))

    forwarded = {"X-Forwarded-For": "6.6.6.6, 9.9.9.9, 10.0.0.7", "X-Forwarded-Proto": "https"}
    async with running(tmp_path / "a", authenticator=Noting()) as server:
        await server.ask("GET", "/v1/runs", headers=forwarded)
    trusted = ["127.0.0.1", "10.0.0.0/8"]
    async with running(tmp_path / "b", authenticator=Noting(), trusted_proxies=trusted) as server:
        await server.ask("GET", "/v1/runs", headers=forwarded)
    assert seen == ["http 127.0.0.1", "https 9.9.9.9"]


async def test_middleware_sees_every_request_and_every_answer(tmp_path: Path) -> None:
    seen: list[Any] = []

    def noting(app: AsgiApp) -> AsgiApp:
        async def call(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                if message["type"] == "http.response.start":
                    seen.append((scope["path"], message["status"]))
                await send(message)

            await app(scope, receive, sending)

        return call

    async with running(tmp_path, middleware=[noting]) as server:
        await server.ask("GET", "/v1/runs")
        await server.ask("GET", "/v1/runs", headers={AUTH: ""})
    assert seen == [("/v1/runs", 200), ("/v1/runs", 401)]


async def test_a_key_gives_the_same_answer_again_and_refuses_another_body(server: Running) -> None:
    key = {"Idempotency-Key": "order-1"}
    body = {"user_message": "What is 2 times 3?"}
    _, first = await server.ask("POST", "/v1/runs/wait", body, headers=key)
    _, again = await server.ask("POST", "/v1/runs/wait", body, headers=key)
    assert first["run_id"] == again["run_id"]
    assert first["response"] == again["response"]
    status, problem = await server.ask(
        "POST", "/v1/runs/wait", {"user_message": "Another"}, headers=key
    )
    assert (status, problem["code"]) == (422, "request.key_reused")
    _, one = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=key)
    _, two = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=key)
    assert one["id"] == two["id"]
    _, three = await server.ask("POST", "/v1/sessions", {"title": "x"})
    assert three["id"] != one["id"]
    status, _ = await server.ask(
        "POST", "/v1/sessions", {"title": "x"}, headers={"Idempotency-Key": "a b"}
    )
    assert status == 400


async def test_exports_and_imports_are_streamed(server: Running) -> None:
    run_id = await server.run()
    _, run = await server.ask("GET", f"/v1/runs/{run_id}")
    status, data = await server.ask("GET", f"/v1/sessions/{run['session_id']}/export")
    assert status == 200 and data.count(b"\n") > 3
    url = server.url + "/v1/sessions/import?as_new=true"
    async with server.http.post(url, data=data) as response:
        assert response.status == 201, await response.text()
    async with server.http.post(url, data=b"nonsense\n") as response:
        assert response.status == 422


async def test_debug_pages_are_off_unless_enabled_and_each_look_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "off") as server:
        assert (await server.ask("GET", "/v1/debug/tasks"))[0] == 404
    async with running(tmp_path / "on", debug=True) as server:
        for name in ("tasks", "slow", "memory", "profile"):
            status, found = await server.ask("GET", f"/v1/debug/{name}?seconds=0.05")
            assert status == 200, found
        assert not tracemalloc.is_tracing(), "counting goes on for ever"
        assert (await server.ask("GET", "/v1/debug/tasks", headers={AUTH: ""}))[0] == 401
        assert (await server.ask("GET", "/v1/debug/profile?seconds=999"))[0] == 400
        [runtime] = server.app.runtimes.list_open()
        kept = await runtime.journal.read("system", kinds=frozenset({"debug.used"}))
        assert len(kept) == 5


async def test_metrics_are_for_callers(server: Running) -> None:
    await server.ask("GET", "/metrics")
    await server.ask("GET", "/v1/runs")
    status, text = await server.ask("GET", "/metrics")
    assert status == 200
    assert b'holdfast_http_requests_total{operation="runs.find",status="200"} 1.0' in text
