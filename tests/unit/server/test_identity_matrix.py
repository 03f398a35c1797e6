"""Every route × every kind of caller: the expected status in each cell, and nothing leaks.

Generated from the table of operations: a new operation is covered by itself.
"""

from __future__ import annotations

import asyncio
import json
import types
import typing
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from holdfast import Agent, tool
from holdfast.identity import ROLES
from holdfast.operations import OWNER, Caller
from holdfast.operations.ownership import BEGINS, LISTED, OF_USER, OWNED_FIELDS, SHARED
from holdfast.runtime import Runtime
from holdfast.server import HttpApplication, create_app
from holdfast.server.endpoints import HttpEndpoint, is_object, list_endpoints
from holdfast.server.tenant_runtimes import TenantRuntimes
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

MARK = "ada-knows-the-secret-of-the-moon"
ENDPOINTS = list_endpoints()
SCOPES = sorted({one.operation.scope for one in ENDPOINTS})
ISSUER, AUDIENCE = "https://login.example", "holdfast-tests"
_ADDRESSES = {"address": "custom:team/x", "prefix": "custom:team/", "scope": "custom:team"}
VALUES: dict[str, dict[str, Any]] = {
    "triggers.run": {"once": True},
    "triggers.add": {
        "trigger": {"name": "t", "at": {"cron": "0 6 * * *"}, "agent": "build", "message": "go"}
    },
    "tenants.delete": {"confirm": "missing"},
    "tenants.create": {"name": "Not A Name"},
    "keys.create": {"name": "k", "scopes": ["no:such"]},
    "webhooks.add": {"url": "ftp://nowhere"},
    "runs.execute": {"agent_name": "missing"},
    "runs.start": {"agent_name": "missing"},
    "runs.stream": {"agent_name": "missing"},
    "loops.run": {"goal": " "},
    "loops.stream": {"goal": " "},
    "workflows.run": {"workflow": "missing"},
    "tools.call": {"name": "missing"},
}
"""What is sent where the first value of a type would have an effect that this is not about."""


@tool(permission="ask")
def destroy(what: str) -> str:
    """Destroy something.

    Args:
        what: What to destroy.
    """
    return what


def value_of(kind: Any) -> Any:
    """Return some value of a type, as JSON."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kinds = [one for one in typing.get_args(kind) if one is not type(None)]
        return value_of(str if str in kinds else kinds[0])
    origin = typing.get_origin(kind) or kind
    if origin is typing.Annotated:
        return value_of(typing.get_args(kind)[0])
    if origin is typing.Literal:
        return typing.get_args(kind)[0]
    if kind is str:
        return "missing"
    if kind is bytes:
        return ""
    if kind in (int, float, bool):
        return kind(1)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return []
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        config = origin.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        fields = [one for one in msgspec.structs.fields(origin) if one.required]
        return tag | {one.encode_name: value_of(one.type) for one in fields}
    return {}


def request_of(endpoint: HttpEndpoint, ids: dict[str, str]) -> tuple[str, bytes, dict[str, Any]]:
    """Return a valid request: path with query, body, and the fields that it holds."""
    given: dict[str, Any] = {}
    for name, one in endpoint.fields.items():
        if name in ids and not (name == "run_id" and endpoint.name in BEGINS):
            given[name] = [ids[name]] if name == "memory_ids" else ids[name]
        elif endpoint.name.startswith("state.") and name in _ADDRESSES:
            given[name] = _ADDRESSES[name]
        elif one.required or name in endpoint.parameters:
            given[name] = value_of(one.type)
    given |= VALUES.get(endpoint.name, {})
    path = endpoint.path
    for name in endpoint.parameters:
        path = path.replace(f"{{{name}}}", quote(str(given[name]), safe=""))
    sent = {name: value for name, value in given.items() if name not in endpoint.parameters}
    if endpoint.has_body and not endpoint.route.upload:
        return path, json.dumps(sent).encode(), given
    query = {
        name: json.dumps(value) if is_object(endpoint.fields[name].type) else value
        for name, value in sent.items()
        if name not in (*endpoint.flat.values(), endpoint.route.upload)
    }
    body = b"{}" if endpoint.route.upload else b""
    return path + (f"?{urlencode(query, doseq=True)}" if query else ""), body, given


class World:
    """A server with two tenants, and what Ada has there."""

    def __init__(self, app: HttpApplication, runtime: Runtime) -> None:
        self.app = app
        self.runtime = runtime
        self.keys: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.signer = ec.generate_private_key(ec.SECP256R1())
        self.other = ec.generate_private_key(ec.SECP256R1())

    async def ask(
        self, method: str, target: str, body: bytes = b"", *, bearer: str | None = None
    ) -> tuple[int, bytes]:
        """Send a request to the application; a stream is left as soon as it has begun."""
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        if bearer is not None:
            headers.append((b"authorization", f"Bearer {bearer}".encode()))
        path, _, query = target.partition("?")
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "headers": headers, "scheme": "http",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "http_version": "1.1",
        }  # fmt: skip
        received = [{"type": "http.request", "body": body, "more_body": False}]
        status, parts = 0, []

        async def receive() -> dict[str, Any]:
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        async with asyncio.timeout(60):
            await asyncio.create_task(self.app(scope, receive, send))
        return status, b"".join(parts)

    async def send(
        self, endpoint: HttpEndpoint, bearer: str | None, ids: dict[str, str]
    ) -> tuple[int, bytes, dict[str, Any]]:
        target, body, given = request_of(endpoint, ids)
        method = endpoint.method
        return *(await self.ask(method, target, body, bearer=bearer)), given

    def token(self, *, key: Any = None, **claims: Any) -> str:
        now = int(self.runtime.journal.clock.now())
        told = {"iss": ISSUER, "aud": AUDIENCE, "sub": "jo", "exp": now + 600, "roles": ["admin"]}
        told = {name: value for name, value in (told | claims).items() if value is not None}
        return jwt.encode(told, key or self.signer, algorithm="ES256", headers={"kid": "one"})


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    state = folder / "state"
    (folder / "work").mkdir()
    made = World(None, None)  # type: ignore[arg-type]
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(made.signer.public_key()))
    shared = {
        "kty": "oct",
        "kid": "shared",
        "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
        "alg": "HS256",
    }
    (folder / "jwks.json").write_text(json.dumps({"keys": [public | {"kid": "one"}, shared]}))
    settings = load_settings(
        overrides={
            "storage.state_dir": str(state),
            "workspace": str(folder / "work"),
            "server.failed_logins": "none",
            "server.jwt.jwks_file": str(folder / "jwks.json"),
            "server.jwt.issuer": ISSUER,
            "server.jwt.audience": AUDIENCE,
            "server.jwt.tenant_claim": "tenant",
        }
    ).settings
    asker = Agent(
        "asker",
        model=ScriptedModel(tool_call("destroy", what=MARK), "done"),
        tools=[destroy],
    )
    app = create_app(settings, agents=[asker])
    await app.open()
    runtimes = app.runtimes
    assert isinstance(runtimes, TenantRuntimes)
    made.app, made.runtime = app, await runtimes.runtime_for(OWNER)
    try:
        await furnish(made)
        yield made
    finally:
        await app.close()


async def furnish(made: World) -> None:
    """Give out keys of every kind, and let Ada work."""
    keys = made.runtime.control.keys
    await made.runtime.control.tenants.create("acme")
    await made.runtime.control.tenants.create("gone")
    for role in ROLES:
        created = await keys.create(role, tenant="default", roles=[role])
        made.keys[role] = created.secret
    for name in ("ada", "bob"):
        created = await keys.create(name, tenant="default", subject=name, scopes=SCOPES)
        made.keys[name] = created.secret
    made.keys["stranger"] = (await keys.create("s", tenant="acme", roles=["admin"])).secret
    made.keys["suspended"] = (await keys.create("s", tenant="gone", roles=["admin"])).secret
    await made.runtime.control.tenants.set_state("gone", "suspended")
    revoked = await keys.create("revoked", tenant="default", roles=["admin"])
    await keys.revoke(revoked.key.id, tenant="default")
    made.keys["revoked"] = revoked.secret
    expired = await keys.create("expired", tenant="default", roles=["admin"], ttl_s=3600.0)
    old = msgspec.structs.replace(expired.key, expires_at=1.0)
    await made.runtime.control.store.replace_key(old, msgspec.structs.replace(old, id="key_x"), "x")
    made.keys["expired"] = expired.secret
    await work_as_ada(made)


async def work_as_ada(made: World) -> None:
    ada = made.keys["ada"]
    body = {"agent_name": "asker", "user_message": MARK, "on_ask": "park"}
    status, found = await made.ask("POST", "/v1/runs/wait", json.dumps(body).encode(), bearer=ada)
    assert status == 200, found
    run = json.loads(found)
    assert run["status"] == "parked", run
    [approval] = await made.runtime.approvals.find()
    session_id = run["session_id"]
    assert (await made.runtime.sessions.get_session(session_id)).owner == "ada"
    stored = json.dumps({"content": MARK, "options": {"scope": "user"}}).encode()
    status, memory = await made.ask("POST", "/v1/memory", stored, bearer=ada)
    assert status == 201, memory
    made.ids = {
        "session_id": session_id,
        "parent_id": session_id,
        "run_id": run["run_id"],
        "approval_id": approval.id,
        "memory_id": json.loads(memory)["value"],
        "memory_ids": json.loads(memory)["value"],
    }


def outline(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    return {name: found[name] for name in found if name not in ("instance", "request_id")}


async def test_who_is_not_known_gets_the_same_401_everywhere(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "jo", "tenant": "default"}
        claims["exp"] = 9_999_999_999  # type: ignore[assignment]
        confused = jwt.encode(
            claims,
            "secretsecretsecretsecretsecretsecret", algorithm="HS256", headers={"kid": "shared"},
        )  # fmt: skip
        nothing = jwt.encode({"sub": "jo", "exp": 9_999_999_999}, None, algorithm="none")
        foreign_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        swapped_kind = jwt.encode(
            claims,
            foreign_key, algorithm="RS256", headers={"kid": "one"},
        )  # fmt: skip
        bearers: dict[str, str | None] = {
            "no key": None,
            "empty": "",
            "malformed": "hf_zzz",
            "unknown": "hf_" + "0" * 56,
            "right beginning": made.keys["admin"][:-1] + "x",
            "expired": made.keys["expired"],
            "revoked": made.keys["revoked"],
            "suspended tenant": made.keys["suspended"],
            "alg none": nothing,
            "shared secret": confused,
            "swapped key": made.token(key=made.other, tenant="default"),
            "swapped kind of key": swapped_kind,
            "wrong audience": made.token(aud="another", tenant="default"),
            "wrong issuer": made.token(iss="https://evil.example", tenant="default"),
            "missing exp": made.token(exp=None, tenant="default"),
            "expired token": made.token(exp=1000, tenant="default"),
            "no subject": made.token(sub=None, tenant="default"),
            "owner's name": made.token(sub="owner", tenant="default"),
            "a key's subject": made.token(sub="key:key_01m7r1", tenant="default"),
            "no tenant": made.token(),
            "unknown tenant": made.token(tenant="nowhere"),
            "suspended tenant's token": made.token(tenant="gone"),
        }
        seen = set()
        for endpoint in ENDPOINTS:
            for why, bearer in bearers.items():
                status, body, _ = await made.send(endpoint, bearer, made.ids)
                assert status == 401, (endpoint.method, endpoint.path, why, status, body)
                seen.add(json.dumps(outline(body), sort_keys=True))
        assert len(seen) == 1, seen
        status, _ = await made.ask("GET", "/v1/sessions", bearer=made.token(tenant="default"))
        assert status == 200


@pytest.mark.parametrize("role", sorted(ROLES))
async def test_a_role_may_what_its_scopes_say_and_nothing_else(tmp_path: Path, role: str) -> None:
    caller = Caller(tenant="default", subject="x", scopes=ROLES[role])
    async with world(tmp_path) as made:
        for endpoint in ENDPOINTS:
            status, body, given = await made.send(endpoint, made.keys[role], {})
            name = endpoint.name
            names_owned = any(given.get(field) for field in OWNED_FIELDS)
            is_open = name in BEGINS | LISTED | OF_USER | SHARED or names_owned
            is_allowed = caller.may(endpoint.operation.scope) and (
                caller.may("sessions:all") or is_open
            )
            cell = (role, endpoint.method, endpoint.path, status, body[:300])
            if not is_allowed:
                assert status == 403 and outline(body)["code"] == "operation.not_permitted", cell
            else:
                assert status not in (401, 403) and status < 500, cell


async def test_what_is_another_users_does_not_exist(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        before = await made.runtime.sessions.find_last_number(made.ids["session_id"])
        for endpoint in ENDPOINTS:
            status, body, given = await made.send(endpoint, made.keys["bob"], made.ids)
            cell = (endpoint.method, endpoint.path, status, body[:300])
            assert MARK.encode() not in body, cell
            named = [field for field in OWNED_FIELDS if given.get(field)]
            if named:
                assert status == 404, cell
                missing, other, _ = await made.send(
                    endpoint, made.keys["bob"], dict.fromkeys(made.ids, "never-there")
                )
                assert missing == 404, (*cell, missing, other)
            elif endpoint.name in BEGINS | LISTED | OF_USER | SHARED:
                assert status not in (401, 403) and status < 500, cell
            else:
                assert status == 403, cell
            if endpoint.name not in BEGINS:
                for value in set(made.ids.values()) - set(map(str, given.values())):
                    assert value.encode() not in body or named, cell
        assert await made.runtime.sessions.find_last_number(made.ids["session_id"]) == before
        # The same requests of Ada herself find what is there.
        for path in ("sessions/{session_id}", "runs/{run_id}", "approvals/{approval_id}",
                     "memory/{memory_id}", "sessions/{session_id}/messages"):  # fmt: skip
            status, body = await made.ask(
                "GET", f"/v1/{path.format(**made.ids)}", bearer=made.keys["ada"]
            )
            assert status == 200, (path, body)
        for path in ("sessions", "runs", "approvals", "questions", "memory"):
            status, body = await made.ask("GET", f"/v1/{path}", bearer=made.keys["ada"])
            assert status == 200 and json.loads(body)["items"], (path, body)


async def test_what_is_another_tenants_does_not_exist(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        before = await made.runtime.sessions.find_last_number(made.ids["session_id"])
        for endpoint in ENDPOINTS:
            if endpoint.name in ("runs.children", "runs.cancel_children", "memory.forget"):
                # They take what nobody has, too, and find nothing.
                expected = {200}
            elif endpoint.name == "runs.watch_family":
                # A stream without end is open before it looks; the problem comes in it.
                expected = {200}
            elif endpoint.name.startswith("tenants."):
                expected = {403}
            else:
                expected = {404}
            status, body, given = await made.send(endpoint, made.keys["stranger"], made.ids)
            cell = (endpoint.method, endpoint.path, status, body[:300])
            assert MARK.encode() not in body, cell
            if OWNED_FIELDS & set(endpoint.parameters) or endpoint.name.startswith("tenants."):
                assert status in expected, cell
            else:
                assert status not in (401, 403) and status < 500, cell
        assert await made.runtime.sessions.find_last_number(made.ids["session_id"]) == before
        # Nothing of the operator's is in the files of the other tenant, nor the other way round.
        for file in (tmp_path / "state" / "tenants" / "acme").rglob("*"):
            assert not file.is_file() or MARK.encode() not in file.read_bytes(), file


async def test_what_a_viewer_asks_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        journal = made.runtime.journal
        before = await journal.read_last_seq()
        for endpoint in ENDPOINTS:
            for ids in (made.ids, {}):
                await made.send(endpoint, made.keys["viewer"], ids)
        added = [event async for event in read_after(made, before)]
        # That its key was used is noted, and what health checks of MCP servers found.
        kinds = {event.kind for event in added} - {"identity.key_used"}
        assert not kinds, kinds


async def read_after(made: World, seq: int) -> AsyncIterator[Any]:
    last = await made.runtime.journal.read_last_seq()
    if last == seq:
        return
    async for event in made.runtime.feed.follow_all(after=seq):
        yield event
        if event.seq >= last:
            return


@pytest.mark.parametrize("who", ["no key", "unknown", "revoked", "expired", "suspended"])
async def test_no_face_answers_who_is_not_known(tmp_path: Path, who: str) -> None:
    bearers = {"no key": None, "unknown": "hf_" + "0" * 56}
    asked = {
        "GET": ["/mcp", "/openai/v1/models", "/openai/v1/responses/x", "/metrics"],
        "POST": ["/mcp", "/openai/v1/chat/completions", "/openai/v1/responses", "/login/links",
                 "/dashboard/runs", "/dashboard/chat"],
        "DELETE": ["/mcp", "/openai/v1/responses/x"],
    }  # fmt: skip
    async with world(tmp_path) as made:
        bearer = bearers[who] if who in bearers else made.keys[who]
        for method, paths in asked.items():
            for path in paths:
                status, body = await made.ask(method, path, b"{}", bearer=bearer)
                assert status in (401, 403, 404, 405) or (status == 303), (method, path, status)
                assert MARK.encode() not in body, (method, path)
        for path in ("/dashboard", "/dashboard/runs", "/dashboard/live?topic=all"):
            status, body = await made.ask("GET", path, bearer=bearer)
            assert status in (303, 401, 403), (path, status, body[:200])
            assert MARK.encode() not in body
