"""Faces beside `/v1`, and browsers that sign in."""

from __future__ import annotations

import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest
from served import Running, running

from holdfast.operations import sessions
from holdfast.server import Face, FaceRequest, ServerResponse
from holdfast.server.faces import FACES
from holdfast.server.logins import check_target


def explain(error: Exception, request_id: str) -> ServerResponse:
    return ServerResponse(418, msgspec.json.encode({"said": str(error), "id": request_id}))


async def create(request: FaceRequest) -> ServerResponse:
    made = await request.perform(sessions.create, title="/".join(request.words))
    return ServerResponse(201, msgspec.json.encode({"id": made.id, "title": made.title}))


async def make_key(server: Running, **what: object) -> tuple[str, str]:
    status, made = await server.ask("POST", "/v1/keys", {"name": "a key", **what})
    assert status == 201, made
    return str(made["key"]["id"]), str(made["secret"])


async def make_link(server: Running, bearer: str, to: str = "") -> str:
    headers = {"Authorization": f"Bearer {bearer}"}
    path = f"/login/links?to={to}" if to else "/login/links"
    status, link = await server.ask("POST", path, headers=headers)
    assert status == 201, link
    return str(link["path"])


async def follow(browser: aiohttp.ClientSession, server: Running, path: str) -> tuple[int, str]:
    async with browser.get(server.url + path, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("location", "")


def open_browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_a_face_asks_operations_in_the_name_of_its_caller(server: Running) -> None:
    server.app.faces.mount("/other", Face(answer=create, explain=explain))
    _, viewer = await make_key(server, roles=["viewer"])
    status, made = await server.ask("POST", "/other/a/b")
    assert (status, made["title"]) == (201, "a/b")
    refused = await server.ask("POST", "/other/x", headers={"Authorization": f"Bearer {viewer}"})
    assert refused[0] == 418 and "sessions:write" in refused[1]["said"]


async def test_nobody_unknown_reaches_a_face_that_is_not_open(server: Running) -> None:
    reached: list[str] = []

    async def note(request: FaceRequest) -> ServerResponse:
        reached.append(request.id)
        return ServerResponse(200)

    server.app.faces.mount("/other", Face(answer=note, explain=explain))
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/other") as answer:
        assert answer.status == 418
        assert answer.headers["x-request-id"]
    assert not reached


async def test_a_face_is_loaded_with_its_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_face.py").write_text(
        "from holdfast.server import Face, ServerResponse\n"
        "async def answer(request): return ServerResponse(200, b'\"late\"')\n"
        "def make_face(app): return Face(answer=answer)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(FACES, "/late/v1", "late_face")
    async with running(tmp_path / "state") as server:
        assert "late_face" not in sys.modules
        assert await server.ask("GET", "/late/v1/anything") == (200, "late")
        assert (await server.ask("GET", "/late"))[0] == 404


async def test_a_link_signs_a_browser_in_once(server: Running) -> None:
    path = await make_link(server, server.token, to="/v1/sessions")
    async with open_browser() as browser, open_browser() as second:
        async with browser.get(server.url + path) as answer:
            assert answer.status == 200
            assert 'content="0; url=/v1/sessions"' in await answer.text()
        async with browser.get(f"{server.url}/v1/sessions") as answer:
            assert answer.status == 200
        assert (await follow(second, server, path))[0] == 401
        [cookie] = list(browser.cookie_jar)
        assert cookie["httponly"] and cookie["samesite"] == "Strict"


async def test_a_cookie_is_void_when_its_key_is(server: Running) -> None:
    key_id, secret = await make_key(server, roles=["viewer"])
    async with open_browser() as browser:
        await follow(browser, server, await make_link(server, secret))
        assert (await follow(browser, server, "/v1/sessions"))[0] == 200
        assert (await server.ask("DELETE", f"/v1/keys/{key_id}"))[0] == 200
        assert (await follow(browser, server, "/v1/sessions"))[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://page.example"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "{own}"}, 201),
    ],
)
async def test_a_cookie_acts_only_from_our_own_page(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with running(tmp_path, allowed_origins=["http://page.example"]) as server:
        async with open_browser() as browser:
            await follow(browser, server, await make_link(server, server.token))
            given = {name: value.replace("{own}", server.url) for name, value in headers.items()}
            made = browser.post(f"{server.url}/v1/sessions", json={"title": "a"}, headers=given)
            async with made as answer:
                assert answer.status == status


async def test_a_key_in_a_form_signs_in_and_ends(server: Running) -> None:
    _, secret = await make_key(server, roles=["viewer"])
    own = {"Origin": server.url}
    async with open_browser() as browser:
        for key, status in (("hf_wrong", 401), ("", 401), (secret, 303)):
            sent = browser.post(
                f"{server.url}/login", data={"key": key}, headers=own, allow_redirects=False
            )
            async with sent as answer:
                assert answer.status == status
        assert (await follow(browser, server, "/v1/sessions"))[0] == 200
        [cookie] = list(browser.cookie_jar)
        ended = browser.post(f"{server.url}/login/end", headers=own, allow_redirects=False)
        async with ended as answer:
            assert answer.status == 303
        kept = {"Cookie": f"{cookie.key}={cookie.value}"}
        async with aiohttp.ClientSession(headers=kept) as thief:
            assert (await follow(thief, server, "/v1/sessions"))[0] == 401


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil", "/a//b", "a", "/%0d%0aX:y\n"]
)
async def test_no_link_leads_elsewhere(server: Running, to: str) -> None:
    async with open_browser() as browser:
        path = await make_link(server, server.token)
        async with browser.get(server.url + path, params={"to": to}, allow_redirects=False) as got:
            assert got.status == 400
            assert "location" not in got.headers


async def test_who_cannot_ask_gets_no_link(server: Running) -> None:
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/login/links") as answer:
        assert answer.status == 401


async def test_a_spent_link_leads_people_to_the_page_where_they_log_in(server: Running) -> None:
    path = await make_link(server, server.token)
    async with aiohttp.ClientSession() as first:
        assert (await follow(first, server, path))[0] == 200
    async with aiohttp.ClientSession(headers={"Accept": "text/html"}) as second:
        found = await follow(second, server, path)
        assert found == (303, "/dashboard/login?wrong=link")
        assert not list(second.cookie_jar)
    assert check_target("/runs/run_1") == "/runs/run_1"


async def test_an_admin_logs_a_browser_out(server: Running) -> None:
    _, secret = await make_key(server, roles=["viewer"], subject="ada")
    async with open_browser() as browser, open_browser() as other:
        for one in (browser, other):
            await follow(one, server, await make_link(server, secret))
        _, listed = await server.ask("GET", "/v1/logins")
        first, second = listed["items"]
        assert first["subject"] == second["subject"] == "ada"
        assert secret not in str(listed)
        refused = await server.ask(
            "DELETE", f"/v1/logins/{first['id']}", headers={"Authorization": f"Bearer {secret}"}
        )
        assert refused[0] == 403
        assert (await server.ask("DELETE", f"/v1/logins/{first['id']}"))[0] == 200
        assert (await follow(browser, server, "/v1/sessions"))[0] == 401
        assert (await follow(other, server, "/v1/sessions"))[0] == 200
        assert (await server.ask("DELETE", f"/v1/logins/{first['id']}"))[0] == 404


async def test_a_login_outlives_a_restart_and_no_file_gives_it_away(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with open_browser() as browser:
            await follow(browser, server, await make_link(server, server.token))
            [cookie] = list(browser.cookie_jar)
        token = server.token
    for file in tmp_path.rglob("*"):
        held = file.read_bytes() if file.is_file() else b""
        assert cookie.value.encode() not in held
        if file.name != "server-token.json":
            assert token.encode() not in held, file
    async with running(tmp_path) as again:
        port = again.url.rpartition(":")[2]
        kept = {"Cookie": f"holdfast_login_{port}={cookie.value}"}
        async with aiohttp.ClientSession(headers=kept) as browser:
            assert (await follow(browser, again, "/v1/sessions"))[0] == 200
            assert (await follow(browser, again, "/dashboard"))[0] == 200


async def test_over_https_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    async with running(tmp_path, trusted_proxies=["127.0.0.1"]) as server:
        path = await make_link(server, server.token)
        https = {"X-Forwarded-Proto": "https"}
        async with aiohttp.ClientSession(headers=https) as browser:
            async with browser.get(server.url + path) as answer:
                given = answer.headers["set-cookie"]
        assert given.startswith("__Host-holdfast_login=") and "; Secure" in given
