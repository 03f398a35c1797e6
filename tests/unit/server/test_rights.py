"""Rights that single fields of a request need, and what is a user's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from served import Running, running

from holdfast import Agent, tool
from holdfast.errors import IdempotencyKeyReused
from holdfast.operations.sessions import RUNTIME_KEYS
from holdfast.orchestration.triggers.loop import TRIGGER_KEY
from holdfast.runs import LINEAGE_KEY
from holdfast.runtime import HELD_RUNS, Runtime
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call


async def add_key(server: Running, name: str, *scopes: str, **more: Any) -> dict[str, str]:
    """Make a key over HTTP; returns the headers of a request with it."""
    asked = {"name": name, "subject": name, "scopes": list(scopes), **more}
    status, found = await server.ask("POST", "/v1/keys", asked)
    assert status == 201, found
    return {"Authorization": f"Bearer {found['secret']}"}


@tool(permission="ask")
def destroy(what: str) -> str:
    """Destroy something."""
    return f"destroyed {what}"


async def test_consent_for_always_needs_the_right_to_write_rules(tmp_path: Path) -> None:
    model = ScriptedModel(tool_call("destroy", what="x"), "done")
    asks = Agent("asks", model=model, tools=[destroy])
    async with running(tmp_path, agents=[asks]) as server:
        body = {"user_message": "go", "agent_name": "asks", "on_ask": "park"}
        status, run = await server.ask("POST", "/v1/runs/wait", body)
        assert (status, run["status"]) == (200, "parked"), run
        answers = await add_key(server, "ada", "approvals:*", "sessions:all")
        rules = await add_key(server, "bob", "approvals:*", "sessions:all", "policies:admin")
        _, found = await server.ask("GET", "/v1/approvals", headers=answers)
        path = f"/v1/approvals/{found['items'][0]['id']}/approve"
        status, refused = await server.ask("POST", path, {"always": True}, headers=answers)
        assert (status, refused["code"]) == (403, "operation.not_permitted"), refused
        assert (await server.ask("GET", "/v1/approvals", headers=answers))[1] == found
        status, given = await server.ask("POST", path, {"always": True}, headers=rules)
        assert status == 200, given
        _, session = await server.ask("GET", f"/v1/sessions/{run['session_id']}")
        assert [rule["permission"] for rule in session["permission"]] == ["destroy"]


async def test_consent_for_once_does_not(tmp_path: Path) -> None:
    model = ScriptedModel(tool_call("destroy", what="x"), "done")
    asks = Agent("asks", model=model, tools=[destroy])
    async with running(tmp_path, agents=[asks]) as server:
        body = {"user_message": "go", "agent_name": "asks", "on_ask": "park"}
        await server.ask("POST", "/v1/runs/wait", body)
        headers = await add_key(server, "ada", "approvals:*", "sessions:all")
        _, found = await server.ask("GET", "/v1/approvals", headers=headers)
        path = f"/v1/approvals/{found['items'][0]['id']}/approve"
        status, given = await server.ask("POST", path, {"always": False}, headers=headers)
        assert status == 200, given


def test_the_keys_that_are_kept_from_callers_are_those_of_the_runtime() -> None:
    assert {LINEAGE_KEY, TRIGGER_KEY, HELD_RUNS} == RUNTIME_KEYS


async def test_metadata_that_the_runtime_trusts_cannot_be_written_from_outside(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as server:
        ada = await add_key(server, "ada", "sessions:*", "runs:*")
        admin = await add_key(server, "bob", "*")
        _, own = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=ada)
        for headers in (ada, admin):
            for key in sorted(RUNTIME_KEYS):
                body = {"title": "x", "metadata": {key: {"path": "a/b"}}}
                status, found = await server.ask("POST", "/v1/sessions", body, headers=headers)
                assert (status, found["code"]) == (400, "usage.invalid"), found
        path = f"/v1/sessions/{own['id']}"
        for value in ({"max_calls": 10**9}, None):
            body = {"metadata": {"budget": value}}
            assert (await server.ask("PATCH", path, body, headers=ada))[0] == 403
            assert (await server.ask("PATCH", path, body, headers=admin))[0] == 200
        body = {"metadata": {"lineage": None}}
        assert (await server.ask("PATCH", path, body, headers=ada))[0] == 400
        body = {"metadata": {"team": "red"}}
        status, found = await server.ask("PATCH", path, body, headers=ada)
        assert (status, found["metadata"]) == (200, {"team": "red"})


async def test_users_have_a_state_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        scopes = ("state:read", "state:write", "sessions:write", "runs:write")
        ada, bob = [await add_key(server, who, *scopes) for who in ("ada", "bob")]
        for headers, city in ((ada, "Ulm"), (bob, "Bonn")):
            body = {"address": "user/city", "value": city}
            assert (await server.ask("PUT", "/v1/state/value", body, headers=headers))[0] == 200
        _, found = await server.ask("GET", "/v1/state/value?address=user/city", headers=ada)
        assert found["value"] == "Ulm"
        status, found = await server.ask("GET", "/v1/state/value?address=user/none", headers=ada)
        assert (status, found["detail"]) == (404, "There is no value 'user/none'."), found
        _, found = await server.ask("GET", "/v1/state?prefix=user/", headers=bob)
        assert [one["value"] for one in found["entries"]] == ["Bonn"]
        _, session = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=ada)
        own = {"address": f"session:{session['id']}/note", "value": "mine"}
        assert (await server.ask("PUT", "/v1/state/value", own, headers=ada))[0] == 200
        # What is another user's does not exist; what is of all needs the scope for all.
        for address in (own["address"], "user:ada/city"):
            for method, path, body in (
                ("GET", f"/v1/state/value?address={address}", None),
                ("PUT", "/v1/state/value", {"address": address, "value": 1}),
                ("DELETE", f"/v1/state/value?address={address}", None),
                ("GET", f"/v1/state/history?address={address}", None),
                ("GET", f"/v1/state?prefix={address}", None),
                ("GET", f"/v1/state/snapshot?scope={address.partition('/')[0]}", None),
                ("POST", "/v1/state/forget", {"scope": address.partition("/")[0]}),
            ):
                status, found = await server.ask(method, path, body, headers=bob)
                assert status == 404, (method, path, status, found)
        for address in ("global/x", "project/x", "agent:build/x", "custom:team/x", "tool:bash/x"):
            path = f"/v1/state/value?address={address}"
            assert (await server.ask("GET", path, headers=ada))[0] == 403, address
        assert (await server.ask("POST", "/v1/state/sweep", {}, headers=ada))[0] == 403


async def test_a_key_that_two_servers_take_at_once_has_one_first_request(tmp_path: Path) -> None:
    settings = load_settings(overrides={"storage.state_dir": str(tmp_path)}).settings
    first, second = Runtime(settings), Runtime(settings)
    try:
        for runtime in (first, second):
            await runtime.opened()
        for number in range(20):
            accepted = await asyncio.gather(
                *(
                    one.idempotency.accept(
                        f"key{number}", operation="memory.store", asked={"a": 1}, starts_run=False
                    )
                    for one in (first, second)
                )
            )
            assert sorted(is_first for _, is_first in accepted) == [False, True]
            with pytest.raises(IdempotencyKeyReused):
                await first.idempotency.accept(
                    f"key{number}", operation="memory.store", asked={"a": 2}, starts_run=False
                )
    finally:
        await first.close()
        await second.close()
