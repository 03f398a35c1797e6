"""Policies and tools over HTTP: what is in force, what would change, what agents can be given."""

from __future__ import annotations

from served import Running

TOOLS = """
rules:
  - {permission: bash, pattern: "rm *", action: deny}
"""


async def test_the_policies_in_force_are_shown_and_a_candidate_is_judged(server: Running) -> None:
    status, found = await server.ask("GET", "/v1/policies")
    assert status == 200 and found["files"] == [] and not found["is_net_allowed"], found
    status, checked = await server.ask("POST", "/v1/policies/validate", {})
    assert (status, checked["is_valid"]) == (200, True)
    wrong = {"files": {"tools.yaml": "rules:\n  - {permision: bash}\n"}}
    status, checked = await server.ask("POST", "/v1/policies/validate", wrong)
    assert (status, checked["is_valid"]) == (200, False)
    assert "tools.yaml:2" in checked["mistakes"][0], checked
    asked = {"tool": "bash", "kind": "command", "target": "rm -rf x"}
    _, told = await server.ask("POST", "/v1/policies/explain", asked)
    assert told["action"] != "deny"
    asked["files"] = {"tools.yaml": TOOLS}
    status, told = await server.ask("POST", "/v1/policies/explain", asked)
    assert (status, told["action"]) == (200, "deny"), told
    assert [one["pattern"] for one in told["rules"] if one["is_decisive"]] == ["rm *"]
    # A candidate is nothing but words: what is in force stays.
    assert (await server.ask("GET", "/v1/policies"))[1] == found


async def test_a_candidate_is_no_path(server: Running) -> None:
    for name in ("../tools.yaml", "/etc/passwd", "holdfast.toml", ""):
        asked = {"files": {name: "x"}}
        status, found = await server.ask("POST", "/v1/policies/validate", asked)
        assert (status, found["code"]) == (400, "usage.invalid"), name


async def test_recorded_calls_are_judged_again(server: Running) -> None:
    asked = {"arguments": {"command": "rm x"}}
    status, called = await server.ask("POST", "/v1/tools/bash/call", asked)
    assert status == 200, called
    body = {"files": {"tools.yaml": TOOLS}, "session_id": called["run"]["session_id"]}
    status, found = await server.ask("POST", "/v1/policies/replay", body)
    assert (status, found["calls"]) == (200, 1), found
    [change] = found["changes"]
    assert (change["after"], change["is_looser"]) == ("deny", False)
    status, found = await server.ask("POST", "/v1/policies/replay", {"limit": 0})
    assert status == 400


async def test_tools_are_listed_with_their_schemas(server: Running) -> None:
    status, found = await server.ask("GET", "/v1/tools")
    named = {one["name"]: one for one in found["items"]}
    assert status == 200 and named["bash"]["effect"] and named["bash"]["permission"] == "ask"
    assert named["read"]["permission"] == "allow"
    status, some = await server.ask("GET", "/v1/tools?tag=files")
    assert 0 < len(some["items"]) < len(named)
    status, schema = await server.ask("GET", "/v1/tools/bash/schema")
    assert status == 200 and "command" in schema["parameters"]["properties"]
    assert (await server.ask("GET", "/v1/tools/nothing/schema"))[0] == 404
