"""Tenants of one server: apart, opened on demand, bounded in number, erased when asked."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from served import Running, running

from holdfast.errors import ConfigError, Unauthenticated
from holdfast.identity import ControlPlane
from holdfast.operations import Caller
from holdfast.server import RequestHead, create_app
from holdfast.server.jwt_tokens import JwtAuthenticator, KeySet, read_keys
from holdfast.settings import load_settings
from holdfast.testing import FakeClock


async def add_tenant(server: Running, name: str) -> dict[str, str]:
    """Make a tenant over HTTP; returns the headers of its admin."""
    status, found = await server.ask("POST", "/v1/tenants", {"name": name})
    assert status == 201, found
    asked = {"name": "admin", "roles": ["admin"], "tenant": name}
    status, found = await server.ask("POST", "/v1/keys", asked)
    assert status == 201, found
    return {"Authorization": f"Bearer {found['secret']}"}


async def test_tenants_have_records_sequences_and_events_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        one, two = await add_tenant(server, "one"), await add_tenant(server, "two")
        for headers in (one, two):
            body = {"user_message": "What is 15 times 23?"}
            status, found = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
            assert status == 200, found
            status, runs = await server.ask("GET", "/v1/runs", headers=headers)
            assert [run["id"] for run in runs["items"]] == [found["run_id"]]
        status, runs = await server.ask("GET", "/v1/runs")
        assert runs["items"] == []
        assert (tmp_path / "tenants" / "one" / "journal.db").exists()
        opened = {one.tenant: one for one in server.app.runtimes.list_open()}
        assert set(opened) == {"default", "one", "two"}
        # Each journal counts for itself, and agents of one do not work in the place of another.
        first, second = opened["one"], opened["two"]
        assert await first.journal.read_last_seq() == await second.journal.read_last_seq()
        [session] = (await first.sessions.list_sessions()).items
        [other] = (await second.sessions.list_sessions()).items
        assert session.directory != other.directory
        assert str(tmp_path) in first.confinement.hidden


async def test_only_the_operator_manages_tenants_and_their_keys(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        one = await add_tenant(server, "one")
        await add_tenant(server, "two")
        for method, path, body in (
            ("GET", "/v1/tenants", None),
            ("POST", "/v1/tenants", {"name": "three"}),
            ("POST", "/v1/tenants/two/suspend", {}),
            ("GET", "/v1/tenants/two/export", None),
            ("POST", "/v1/keys", {"name": "k", "roles": ["admin"], "tenant": "two"}),
            ("GET", "/v1/keys?tenant=two", None),
            ("POST", "/v1/users/ada/erase", {}),
        ):
            status, found = await server.ask(method, path, body, headers=one)
            assert status == 403, (path, found)
        status, found = await server.ask("GET", "/v1/keys", headers=one)
        assert status == 200 and len(found["items"]) == 1


async def test_what_concerns_the_whole_process_is_for_the_operator(tmp_path: Path) -> None:
    async with running(tmp_path, debug=True) as server:
        one = await add_tenant(server, "one")
        for path in ("/metrics", "/v1/debug/tasks", "/v1/debug/slow"):
            status, found = await server.ask("GET", path, headers=one)
            assert status == 403, (path, found)
            assert (await server.ask("GET", path))[0] == 200


async def test_a_scope_for_one_agent_goes_with_an_idempotency_key(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        asked = {"name": "k", "scopes": ["runs:write:build"]}
        _, made = await server.ask("POST", "/v1/keys", asked)
        headers = {"Authorization": f"Bearer {made['secret']}", "Idempotency-Key": "once"}
        body = {"user_message": "What is 15 times 23?", "agent_name": "build"}
        status, first = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
        assert status == 200, first
        status, again = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
        assert (status, again["run_id"]) == (200, first["run_id"])
        status, _ = await server.ask(
            "POST", "/v1/runs/wait", {**body, "agent_name": "plan"},
            headers={**headers, "Idempotency-Key": "two"},
        )  # fmt: skip
        assert status == 403


async def test_nobody_gives_more_than_they_have(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        asked = {"name": "k", "scopes": ["keys:admin", "runs:write:helper"]}
        _, found = await server.ask("POST", "/v1/keys", asked)
        headers = {"Authorization": f"Bearer {found['secret']}"}
        for scopes, expected in (
            (["runs:write:helper"], 201),
            (["keys:admin"], 201),
            (["runs:write"], 403),
            (["runs:*:helper"], 403),
            (["runs:write:other"], 403),
            (["keys:*"], 403),
            (["*"], 403),
        ):
            body = {"name": "x", "scopes": scopes}
            status, answer = await server.ask("POST", "/v1/keys", body, headers=headers)
            assert status == expected, (scopes, answer)
        for role in ("viewer", "operator", "developer", "admin"):
            body = {"name": "x", "roles": [role]}
            status, _ = await server.ask("POST", "/v1/keys", body, headers=headers)
            assert status == 403
        _, strong = await server.ask("POST", "/v1/keys", {"name": "s", "roles": ["admin"]})
        path = f"/v1/keys/{strong['key']['id']}/rotate"
        status, _ = await server.ask("POST", path, {}, headers=headers)
        assert status == 403


async def test_a_secret_is_kept_under_no_idempotency_key(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        body, headers = {"name": "k", "roles": ["viewer"]}, {"Idempotency-Key": "once"}
        status, found = await server.ask("POST", "/v1/keys", body, headers=headers)
        assert status == 201
        status, _ = await server.ask("POST", "/v1/keys", body, headers=headers)
        assert status == 409
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or found["secret"].encode() not in file.read_bytes()


async def test_at_most_so_many_tenants_are_open_and_idle_ones_make_room(tmp_path: Path) -> None:
    async with running(tmp_path, max_tenants=2) as server:
        names = ("one", "two", "three", "four")
        admins = [await add_tenant(server, name) for name in names]
        for headers in [*admins, *reversed(admins)]:
            status, found = await server.ask("GET", "/v1/sessions", headers=headers)
            assert status == 200, found
            assert len(server.app.runtimes.list_open()) <= 3
        # While both are at work, others are told to come again.
        runtimes = server.app.runtimes
        held, at_work = asyncio.Event(), asyncio.Barrier(3)

        async def hold(name: str) -> None:
            await runtimes.runtime_for(Caller(tenant=name, subject="s"))
            await at_work.wait()
            await held.wait()

        tasks = [asyncio.create_task(hold(name)) for name in ("one", "two")]
        async with asyncio.timeout(20):
            await at_work.wait()
        assert {one.tenant for one in runtimes.list_open()} == {"default", "one", "two"}
        status, found = await server.ask("GET", "/v1/sessions", headers=admins[2])
        assert (status, found["code"], found["is_retryable"]) == (503, "server.tenants", True)
        held.set()
        await asyncio.gather(*tasks)
        status, _ = await server.ask("GET", "/v1/sessions", headers=admins[2])
        assert status == 200


async def test_a_suspended_tenant_is_not_let_in_until_it_is_resumed(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        one = await add_tenant(server, "one")
        assert (await server.ask("GET", "/v1/sessions", headers=one))[0] == 200
        status, found = await server.ask("POST", "/v1/tenants/one/suspend", {})
        assert (status, found["state"]) == (200, "suspended")
        assert (await server.ask("GET", "/v1/sessions", headers=one))[0] == 401
        assert [one.tenant for one in server.app.runtimes.list_open()] == ["default"]
        await server.ask("POST", "/v1/tenants/one/resume", {})
        assert (await server.ask("GET", "/v1/sessions", headers=one))[0] == 200


async def test_a_tenant_is_exported_and_deleted_with_its_files(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as server:
        one = await add_tenant(server, "one")
        body = {"user_message": "What is 15 times 23?"}
        _, run = await server.ask("POST", "/v1/runs/wait", body, headers=one)
        status, lines = await server.ask("GET", "/v1/tenants/one/export")
        assert status == 200 and run["session_id"].encode() in lines
        assert all(json.loads(line) for line in lines.splitlines())
        status, _ = await server.ask("DELETE", "/v1/tenants/one?confirm=two")
        assert status == 400
        status, found = await server.ask("DELETE", "/v1/tenants/one?confirm=one")
        assert (status, found["state"]) == (200, "deleted")
        assert not (tmp_path / "state" / "tenants" / "one").exists()
        assert not (tmp_path / "state" / "workspaces" / "one").exists()
        assert (tmp_path / "state" / "journal.db").exists()
        assert (await server.ask("GET", "/v1/sessions", headers=one))[0] == 401
        assert (await server.ask("POST", "/v1/tenants", {"name": "one"}))[0] == 409


async def test_runs_of_a_tenant_go_on_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        one = await add_tenant(server, "one")
        _, session = await server.ask("POST", "/v1/sessions", {"title": "t"}, headers=one)
    async with running(tmp_path) as server:
        async with asyncio.timeout(20):
            while len(server.app.runtimes.list_open()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        status, _ = await server.ask("GET", f"/v1/sessions/{session['id']}", headers=one)
        assert status == 200


async def test_a_user_is_erased_in_every_tenant(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await server.ask("POST", "/v1/tenants", {"name": "one"})
        kept: dict[str, dict[str, str]] = {}
        scopes = ["sessions:write", "sessions:read", "runs:write", "memory:write", "memory:read"]
        scopes += ["artifacts:write", "artifacts:read", "state:write"]
        for tenant in ("default", "one"):
            for who in ("ada", "bob"):
                asked = {"name": who, "subject": who, "scopes": scopes, "tenant": tenant}
                _, found = await server.ask("POST", "/v1/keys", asked)
                kept[f"{tenant} {who}"] = {"Authorization": f"Bearer {found['secret']}"}
        for name, headers in kept.items():
            body = {"user_message": f"the moon of {name}"}
            status, found = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
            assert status == 200, found
            stored = {"content": f"knows {name}", "options": {"scope": "user"}}
            once = {**headers, "Idempotency-Key": "once"}
            status, found = await server.ask("POST", "/v1/memory", stored, headers=once)
            assert status == 201, found
            value = {"address": "user/city", "value": f"lives with {name}"}
            status, found = await server.ask("PUT", "/v1/state/value", value, headers=headers)
            assert status == 200, found
            file = {"name": "notes.txt", "data": b64encode(f"file of {name}".encode()).decode()}
            status, found = await server.ask("POST", "/v1/artifacts", file, headers=headers)
            assert status == 201, found
        status, found = await server.ask("POST", "/v1/users/ada/erase", {})
        assert status == 200, found
        counts = {
            one["tenant"]: (one["sessions"], one["memories"], one["artifacts"], one["keys"])
            for one in found["items"]
        }
        assert counts == {"default": (1, 1, 1, 1), "one": (1, 1, 1, 1)}
        for name, headers in kept.items():
            status, found = await server.ask("GET", "/v1/memory?scopes=user", headers=headers)
            assert status == (401 if "ada" in name else 200), found
            if "bob" in name:
                assert [entry["content"] for entry in found["items"]] == [f"knows {name}"]
        status, found = await server.ask("POST", "/v1/users/ada/erase", {})
        assert {one["sessions"] for one in found["items"]} == {0}
    for place in tmp_path.rglob("*"):
        kept_bytes = place.read_bytes() if place.is_file() else b""
        assert b"the moon of default ada" not in kept_bytes, place
        assert b"file of one ada" not in kept_bytes, place
        assert b"knows default ada" not in kept_bytes, place
        assert b"lives with one ada" not in kept_bytes, place
    everything = b"".join(one.read_bytes() for one in tmp_path.rglob("*.db*"))
    assert b"knows one bob" in everything and b"lives with one bob" in everything


async def test_requests_are_limited_per_key_user_and_tenant(tmp_path: Path) -> None:
    for name in ("requests_per_key", "requests_per_user", "requests_per_tenant"):
        async with running(tmp_path / name, **{name: 3}) as server:
            _, made = await server.ask("POST", "/v1/keys", {"name": "k", "roles": ["viewer"]})
            headers = {"Authorization": f"Bearer {made['secret']}"}
            statuses = [(await server.ask("GET", "/v1/agents", headers=headers))[0] for _ in "1234"]
            assert statuses == [200, 200, 200, 429], name
            assert (await server.ask("GET", "/v1/agents"))[0] == 200  # the owner is not counted


async def test_failures_are_throttled_and_valid_keys_are_not(tmp_path: Path) -> None:
    async with running(tmp_path, failed_logins=5) as server:
        _, made = await server.ask("POST", "/v1/keys", {"name": "k", "roles": ["viewer"]})
        wrong = {"Authorization": "Bearer hf_" + "0" * 56}
        statuses = [(await server.ask("GET", "/v1/agents", headers=wrong))[0] for _ in range(7)]
        assert statuses == [401] * 5 + [429] * 2
        headers = {"Authorization": f"Bearer {made['secret']}"}
        assert (await server.ask("GET", "/v1/agents", headers=headers))[0] == 200


def head(token: str) -> RequestHead:
    headers = {"authorization": f"Bearer {token}"}
    return RequestHead(method="GET", path="/", headers=headers)


def jwt_settings(tmp_path: Path, **more: Any) -> Any:
    jwt_options = {"issuer": "https://i", "audience": "a", **more}
    overrides: dict[str, Any] = {f"server.jwt.{name}": value for name, value in jwt_options.items()}
    overrides["storage.state_dir"] = str(tmp_path)
    return load_settings(overrides=overrides).settings


async def test_keys_of_an_issuer_are_fetched_again_when_they_rotate(  # noqa: PLR0915
    tmp_path: Path,
) -> None:
    served: dict[str, Any] = {"keys": []}
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(served)

    app = web.Application()
    app.router.add_get("/jwks", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sockets: Any = site._server
    url = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/jwks"
    clock = FakeClock()
    keys = KeySet(url=url, networks=("127.0.0.0/8",), clock=clock)
    settings = jwt_settings(tmp_path, jwks_url=url)
    known = JwtAuthenticator(settings, operator="default", keys=keys)

    def token(kid: str) -> str:
        signer = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))
        served["keys"] = [public | {"kid": kid, "use": "sig"}]
        claims = {"iss": "https://i", "aud": "a", "sub": "ada", "exp": 9_999_999_999}
        claims["scope"] = "runs:read openid nonsense:: runs:write:helper"
        return jwt.encode(claims, signer, algorithm="ES256", headers={"kid": kid})

    try:
        caller = await known.authenticate(head(token("one")))
        assert (caller.tenant, caller.subject) == ("default", "ada")
        assert caller.scopes == {"runs:read", "runs:write:helper"}
        rotated = token("two")
        with pytest.raises(Unauthenticated):
            await known.authenticate(head(rotated))  # too soon to ask again
        assert asked == 1
        clock.advance(11)
        assert (await known.authenticate(head(rotated))).subject == "ada"
        for _ in range(5):
            with pytest.raises(Unauthenticated):
                await known.authenticate(head(jwt.encode({}, "x" * 32, headers={"kid": "?"})))
        assert asked == 2
    finally:
        await runner.cleanup()
    # What was fetched goes on for a day when the issuer cannot be reached.
    clock.advance(3600)
    assert (await known.authenticate(head(rotated))).subject == "ada"
    clock.advance(24 * 3600)
    with pytest.raises(Unauthenticated):
        await known.authenticate(head(rotated))


def test_settings_of_jwt_that_are_not_safe_are_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "jwks.json")
    for wrong in (
        {"jwks_file": file, "algorithms": ["HS256"]},
        {"jwks_file": file, "algorithms": ["none"]},
        {"jwks_file": file, "issuer": None},
        {"jwks_file": file, "audience": None},
        {"jwks_url": "http://keys.example/jwks"},
        {"jwks_url": "https://keys.example/jwks", "jwks_file": file},
        {},
    ):
        with pytest.raises(ConfigError):
            JwtAuthenticator(jwt_settings(tmp_path, **wrong), operator="default")
    for data in (b"{}", b"[]", b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', b"x"):
        with pytest.raises(ValueError):
            read_keys(data)


async def test_another_address_needs_a_key_or_an_issuer(tmp_path: Path) -> None:
    def settings() -> Any:
        overrides = {"storage.state_dir": str(tmp_path), "server.host": "0.0.0.0"}
        return load_settings(overrides=overrides).settings

    with pytest.raises(ConfigError):
        create_app(settings())
    control = ControlPlane(tmp_path, operator="default")
    made = await control.keys.create("k", tenant="default", roles=["admin"])
    app = create_app(settings())
    caller = await app.authenticator.authenticate(head(made.secret))
    assert caller.scopes == {"*"}
    await control.keys.revoke(made.key.id, tenant="default")
    with pytest.raises(ConfigError):
        create_app(settings())
    await control.close()
    await app.close()
