"""What callers try who were let in: to stay, to act as others, to change what they only read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from served import Running, running, until

from holdfast import Agent, tool
from holdfast.agents import RunRequest
from holdfast.errors import ConfigError
from holdfast.operations import OWNER
from holdfast.runtime import Runtime
from holdfast.server import create_app
from holdfast.server.endpoints import list_endpoints
from holdfast.sessions import acting_for
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call

STREAMS = ("/v1/events", "/v1/events/stream", "/v1/state/changes?prefix=global/")


async def add_key(server: Running, name: str, **more: Any) -> tuple[dict[str, str], str]:
    """Make a key; returns its header, and its id."""
    status, found = await server.ask("POST", "/v1/keys", {"name": name, **more})
    assert status == 201, found
    return {"Authorization": f"Bearer {found['secret']}"}, found["key"]["id"]


async def ends(response: aiohttp.ClientResponse) -> bool:
    """Say whether an open stream ends by itself soon, properly or not."""
    with contextlib.suppress(aiohttp.ClientError):
        async with asyncio.timeout(10):
            await response.read()
    return True


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_does_not_outlive_its_key(tmp_path: Path, path: str) -> None:
    async with running(tmp_path, recheck_s=0.02) as server:
        gone, key_id = await add_key(server, "gone", roles=["admin"])
        kept, _ = await add_key(server, "kept", roles=["admin"])
        leaving = await server.http.get(server.url + path, headers=gone)
        staying = await server.http.get(server.url + path, headers=kept)
        assert (leaving.status, staying.status) == (200, 200)
        assert (await server.ask("DELETE", f"/v1/keys/{key_id}"))[0] == 200
        assert await ends(leaving)
        await server.ask("PUT", "/v1/state/value", {"address": "global/x", "value": 1})
        await server.run()
        await staying.content.readuntil(b"data: ")
        staying.close()


async def test_a_stream_does_not_outlive_its_tenant_its_token_or_its_login(tmp_path: Path) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public | {"kid": "one"}]}))
    options = {"jwks_file": str(tmp_path / "jwks.json"), "issuer": "https://x", "audience": "h"}
    jwt_options = {f"jwt.{name}": value for name, value in options.items()}
    more = {"recheck_s": 0.02, "jwt.leeway_s": 0.01, **jwt_options}
    async with running(tmp_path, **more) as server:
        assert (await server.ask("POST", "/v1/tenants", {"name": "acme"}))[0] == 201
        stranger, _ = await add_key(server, "s", roles=["admin"], tenant="acme")
        now = (await Runtime(server.app.settings).opened()).journal.clock.now()
        claims = {"iss": "https://x", "aud": "h", "sub": "jo", "roles": ["admin"], "exp": now + 1.5}
        token = jwt.encode(claims, signer, algorithm="ES256", headers={"kid": "one"})
        _, key_id = admin = await add_key(server, "a", roles=["admin"])
        status, link = await server.ask("POST", "/login/links", headers=admin[0])
        assert status == 201
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            await browser.get(server.url + link["path"], allow_redirects=False)
            live = await browser.get(f"{server.url}/dashboard/live?topic=all")
            of_token = await server.http.get(
                f"{server.url}/v1/events", headers={"Authorization": f"Bearer {token}"}
            )
            of_tenant = await server.http.get(f"{server.url}/v1/events", headers=stranger)
            assert [live.status, of_token.status, of_tenant.status] == [200, 200, 200]
            assert (await server.ask("POST", "/v1/tenants/acme/suspend"))[0] == 200
            assert (await server.ask("DELETE", f"/v1/keys/{key_id}"))[0] == 200
            assert all([await ends(one) for one in (of_tenant, live, of_token)])


async def test_looking_again_counts_against_no_limit(tmp_path: Path) -> None:
    async with running(tmp_path, recheck_s=0.01, requests_per_key=3) as server:
        viewer, _ = await add_key(server, "v", roles=["viewer"])
        looked: list[bool] = []
        inner = server.app._open._is_let_in

        async def look(head: Any) -> bool:
            looked.append(await inner(head))
            return looked[-1]

        server.app._open._is_let_in = look
        stream = await server.http.get(f"{server.url}/v1/events", headers=viewer)
        await until(lambda: len(looked) > 10)
        assert all(looked)
        assert (await server.ask("GET", "/v1/sessions", headers=viewer))[0] == 200
        stream.close()


async def test_head_of_any_route_ends_with_its_head(server: Running) -> None:
    # A stream that went on behind its head would hold up what the connection is used for next.
    connector = aiohttp.TCPConnector(limit=1)
    headers = {"Authorization": f"Bearer {server.token}"}
    run_id = await server.run()
    async with aiohttp.ClientSession(headers=headers, connector=connector) as http:
        paths = [one.path for one in list_endpoints() if one.method == "GET"]
        for path in [*paths, "/health", "/openapi.json", "/metrics"]:
            target = path.replace("{run_id}", run_id).replace("{", "").replace("}", "")
            async with asyncio.timeout(10):
                async with http.head(server.url + target) as response:
                    assert response.status < 500 and not await response.read(), (path, response)


@pytest.mark.parametrize("limit", [-1, 0, 10**12])
async def test_no_listing_takes_a_limit_out_of_range(server: Running, limit: int) -> None:
    asked = 0
    for one in list_endpoints():
        if "limit" not in one.fields:
            continue
        path = one.path.replace("{", "").replace("}", "")
        required = {n: "x" for n, f in one.fields.items() if f.required and n not in one.parameters}
        body = required | {"limit": limit} if one.has_body else None
        query = "" if one.has_body else "?" + "&".join(
            f"{name}={value}" for name, value in (required | {"limit": limit}).items()
        )  # fmt: skip
        status, found = await server.ask(one.method, path + query, body)
        assert status == 400, (one.name, status, found)
        asked += 1
    assert asked > 15


async def test_who_only_reads_waits_no_longer_than_their_connection(server: Running) -> None:
    status, _ = await server.ask(
        "POST", "/v1/runs/submit", {"user_message": "wait", "run_id": "later"}
    )
    assert status == 202
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await server.ask("GET", "/v1/runs/later/wait")
    await until(lambda: not server.app._detached)
    assert (await server.ask("GET", "/v1/runs/later"))[1]["status"] == "queued"


async def test_nobody_gets_a_key_of_another_subject_without_the_right_to_see_all(
    server: Running,
) -> None:
    _, ada_key = await add_key(server, "ada", subject="ada", scopes=["sessions:read"])
    small, _ = await add_key(server, "bob", subject="bob", scopes=["keys:*", "sessions:read"])
    asked = {"name": "x", "scopes": ["sessions:read"]}
    for subject, expected in (("ada", 403), ("bob", 201), ("", 201)):
        status, found = await server.ask(
            "POST", "/v1/keys", asked | {"subject": subject}, headers=small
        )
        assert status == expected, (subject, found)
    assert (await server.ask("POST", f"/v1/keys/{ada_key}/rotate", {}, headers=small))[0] == 403


FILES = (
    "gguf:/etc/passwd",
    "GGUF:x",
    "gguf:../m",
    "/etc/passwd",
    "mine:~/m",
    "x:./m.gguf",
    "m.GGUF",
)


async def test_no_caller_names_a_file_of_the_machine_as_a_model(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await server.ask("POST", "/v1/tenants", {"name": "acme"})
        developer, _ = await add_key(server, "d", roles=["developer", "operator"])
        stranger, _ = await add_key(server, "s", roles=["admin"], tenant="acme")
        for headers in (developer, stranger):
            _, session = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=headers)
            for model in FILES:
                deep = {"name": "w", "steps": [{"agent": {"model": model}}]}
                for path, body in (
                    ("/v1/runs", {"user_message": "hi", "model": model}),
                    ("/v1/runs/wait", {"user_message": "hi", "model": model}),
                    ("/v1/runs/stream", {"user_message": "hi", "model": model}),
                    ("/v1/runs/submit", {"user_message": "hi", "model": model}),
                    ("/v1/loops/wait", {"goal": "hi", "options": {"model": model}}),
                    (f"/v1/sessions/{session['id']}/compact", {"model": model}),
                    ("/v1/workflows/w/runs", {"inputs": {"deep": deep}}),
                ):
                    status, found = await server.ask("POST", path, body, headers=headers)
                    assert status == 403, (path, model, status, found)
        for model in ("offline", "offline:offline"):
            asked = {"user_message": "What is 15 times 23?", "model": model}
            status, found = await server.ask("POST", "/v1/runs/wait", asked, headers=developer)
            assert (status, found.get("status")) == (200, "completed"), found


def test_a_server_whose_agents_would_work_among_its_keys_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "state" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    for workspace in ("state", "state/inner", "link", "state/../state"):
        places = {"storage.state_dir": tmp_path / "state", "workspace": tmp_path / workspace}
        settings = load_settings(
            overrides={name: str(one) for name, one in places.items()}
        ).settings
        with pytest.raises(ConfigError) as found:
            create_app(settings)
        assert "choose another one" in str(found.value)
        assert not (tmp_path / "state" / "server-token.json").exists()


# --- a run that a process left behind -------------------------------------------------


class Looked:
    """Counts what a tool did, and whether it may end."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()


def make_asker(looked: Looked) -> Agent:
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        looked.count += 1
        await looked.may_end.wait()
        return at

    def think(request: Any) -> Any:
        done = sum(len(one.tool_calls) for one in request.messages if one.role == "assistant")
        return tool_call("look", at="x") if done < 2 else "All was seen."

    return Agent("looker", model=FunctionModel(think), tools=[look])


@contextlib.asynccontextmanager
async def left_behind(tmp_path: Path) -> AsyncIterator[tuple[Running, Looked, str]]:
    """A server, and Ada's run, which another process began and did not end."""
    looked = Looked()
    async with running(tmp_path, agents=[make_asker(looked)], request_timeout_s=0.5) as server:
        settings = load_settings(
            overrides={"storage.state_dir": str(tmp_path), "workspace": f"{tmp_path}-work"}
        ).settings
        other = Runtime(settings)
        other.agents.offer(make_asker(looked))
        await other.opened()
        with acting_for("ada"):
            run = await other.runs.start(RunRequest(agent="looker", message="Look"))
        await until(lambda: looked.count == 1)
        await other.recovery.let_go(0.0)
        await other.close()
        yield server, looked, run.id


@pytest.mark.parametrize("path", ["result", "stream", "wait", "events?waits=false", "waiting"])
async def test_who_only_reads_does_not_have_a_run_executed(tmp_path: Path, path: str) -> None:
    async with left_behind(tmp_path) as (server, looked, run_id):
        viewer, _ = await add_key(server, "v", roles=["viewer"])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.5):
                status, found = await server.ask("GET", f"/v1/runs/{run_id}/{path}", headers=viewer)
                assert status in (200, 408), found
        assert (await server.ask("GET", f"/v1/runs/{run_id}"))[1]["status"] == "running"
        assert looked.count == 1


async def test_who_may_start_runs_has_it_gone_on_with_and_leaving_does_not_end_it(
    tmp_path: Path,
) -> None:
    async with left_behind(tmp_path) as (server, looked, run_id):
        operator, _ = await add_key(server, "o", roles=["operator"])
        status, found = await server.ask("GET", f"/v1/runs/{run_id}/result", headers=operator)
        assert (status, found["code"]) == (408, "request.timeout"), found
        assert looked.count == 2
        looked.may_end.set()
        viewer, _ = await add_key(server, "v", roles=["viewer"])
        async with asyncio.timeout(10):
            while (await server.ask("GET", f"/v1/runs/{run_id}"))[1]["status"] != "completed":
                pass
        _, found = await server.ask("GET", f"/v1/runs/{run_id}/result", headers=viewer)
        assert (found["status"], found["response"]) == ("completed", "All was seen.")


async def test_what_a_run_begins_is_its_owners_whoever_has_it_executed(tmp_path: Path) -> None:
    def think(request: Any) -> Any:
        done = sum(len(one.tool_calls) for one in request.messages if one.role == "assistant")
        asked = {"description": "d", "prompt": "Say hi", "subagent_type": "helper"}
        return tool_call("task", **asked) if not done else "All was said."

    helper = Agent("helper", model=FunctionModel(lambda request: "hi"), mode="subagent")
    asks = [{"permission": "task", "action": "ask"}]
    boss = Agent("boss", model=FunctionModel(think), permission=asks)
    async with running(tmp_path, agents=[helper, boss]) as server:
        ada, _ = await add_key(server, "ada", subject="ada", roles=["developer"])
        admin, _ = await add_key(server, "root", subject="root", roles=["admin"])
        asked = {"agent_name": "boss", "user_message": "go", "on_ask": "park"}
        _, run = await server.ask("POST", "/v1/runs/wait", asked, headers=ada)
        while run["status"] == "parked":
            _, open_ = await server.ask("GET", "/v1/approvals", headers=admin)
            for one in open_["items"]:
                await server.ask("POST", f"/v1/approvals/{one['id']}/approve", {}, headers=admin)
            path = f"/v1/runs/{run['run_id']}/result"
            _, run = await server.ask("GET", path, headers=admin)
        assert run["status"] == "completed", run
        runtime = await server.app.runtimes.runtime_for(OWNER)
        found = (await runtime.sessions.list_sessions()).items
        assert len(found) == 2 and {one.owner for one in found} == {"ada"}, found
