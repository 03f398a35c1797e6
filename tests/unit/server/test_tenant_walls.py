"""What a tenant's commands, tools and processes see of others on the same machine: nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from served import Running, running
from test_tenants import add_tenant

SECRET = "the-recipe-of-two"
HOUSE_RULES = "house-rules-of-the-operator"


async def call(server: Running, headers: dict[str, str], name: str, **arguments: Any) -> str:
    """Call a tool by hand, consenting to it as the tenant's own admin; returns all of it."""
    asked = {"arguments": arguments, "on_ask": "park"}
    status, found = await server.ask("POST", f"/v1/tools/{name}/call", asked, headers=headers)
    assert status == 200, found
    if found["run"]["status"] == "parked":
        _, waiting = await server.ask("GET", "/v1/approvals", headers=headers)
        by = "" if headers else "ada"  # the owner says who it is
        path = f"/v1/approvals/{waiting['items'][0]['id']}/approve"
        status, answer = await server.ask("POST", path, {"by": by}, headers=headers)
        assert status == 200, answer
        again = {**asked, "run_id": found["run"]["id"]}
        status, found = await server.ask("POST", f"/v1/tools/{name}/call", again, headers=headers)
        assert status == 200, found
    assert found["run"]["status"] != "parked", found
    return json.dumps(found)


def find_workspace(server: Running, tenant: str) -> Path:
    return Path(server.app.runtimes.list_open()[0].control.find_workspace(tenant))


async def make_neighbours(server: Running) -> tuple[dict[str, str], dict[str, str]]:
    """Add two tenants; the second has a file in its workspace that is none of the first's."""
    one, two = await add_tenant(server, "one"), await add_tenant(server, "two")
    for headers in (one, two):
        assert (await server.ask("GET", "/v1/sessions", headers=headers))[0] == 200
    (find_workspace(server, "two") / "recipe.txt").write_text(SECRET)
    return one, two


async def test_commands_and_file_tools_of_a_tenant_see_no_other_tenant(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        one, two = await make_neighbours(server)
        target = find_workspace(server, "two") / "recipe.txt"
        assert SECRET in await call(server, two, "bash", command="cat recipe.txt")
        for place in (target, target.parent, "../two", tmp_path / "tenants", "../../control.db"):
            command = f"cat {place}; test -e {place} && echo $((1000 * 1000))"
            told = await call(server, one, "bash", command=command)
            assert SECRET not in told and "1000000" not in told, (place, told)
        for name, arguments in (
            ("read", {"file_path": str(target)}),
            ("read", {"file_path": "../two/recipe.txt"}),
            ("grep", {"pattern": "recipe", "path": str(target.parent)}),
            ("glob", {"pattern": "**/*", "path": str(target.parent.parent)}),
        ):
            assert SECRET not in await call(server, one, name, **arguments)
        # A link that a command left behind leads nowhere either.
        await call(server, one, "bash", command=f"ln -s {target} link.txt")
        assert SECRET not in await call(server, one, "read", file_path="link.txt")


async def test_a_tenant_is_granted_no_directory_of_the_machine(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as server:
        one, _ = await make_neighbours(server)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        for place in (find_workspace(server, "two"), elsewhere, tmp_path / "state"):
            told = await call(server, one, "externaldirectory", path=str(place))
            assert "is in reach" not in told, told


async def test_sessions_of_a_tenant_work_in_its_workspace_only(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as server:
        one, _ = await make_neighbours(server)
        own = find_workspace(server, "one")
        (own / "link").symlink_to(find_workspace(server, "two"))
        for place in (find_workspace(server, "two"), own / "link", own.parent, tmp_path, "/etc"):
            body = {"title": "x", "directory": str(place)}
            status, found = await server.ask("POST", "/v1/sessions", body, headers=one)
            assert (status, found["code"]) == (403, "policy.denied"), (place, found)
            path = f"/v1/skills?directory={place}"
            assert (await server.ask("GET", path, headers=one))[0] == 403
            body = {"directory": str(place)}
            assert (await server.ask("POST", "/v1/skills/x/trust", body, headers=one))[0] == 403
        status, found = await server.ask(
            "POST", "/v1/sessions", {"title": "x", "directory": str(own)}, headers=one
        )
        assert status == 201, found
        # One that was brought in with another place does not work there.
        status, _ = await server.ask("GET", f"/v1/sessions/{found['id']}/export", headers=one)
        runtime = next(r for r in server.app.runtimes.list_open() if r.tenant == "one")
        moved = await runtime.sessions.create_session("y", directory=find_workspace(server, "two"))
        asked = {"user_message": "read recipe.txt", "session_id": moved.id}
        status, found = await server.ask("POST", "/v1/runs/wait", asked, headers=one)
        assert status >= 400 or found["status"] == "failed", found
        assert SECRET not in json.dumps(found)


async def test_instructions_around_the_workspaces_are_none_of_a_tenant(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text(HOUSE_RULES)
    async with running(tmp_path / "state") as server:
        one, _ = await make_neighbours(server)
        _, session = await server.ask("POST", "/v1/sessions", {"title": "x"}, headers=one)
        path = f"/v1/sessions/{session['id']}/context"
        status, found = await server.ask("GET", path, headers=one)
        assert status == 200 and HOUSE_RULES not in json.dumps(found)
        await call(server, one, "bash", command="ln -s ../two/recipe.txt AGENTS.md")
        status, found = await server.ask("GET", path, headers=one)
        assert status == 200 and SECRET not in json.dumps(found)


async def test_the_operators_commands_do_not_see_tenants_either(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await make_neighbours(server)
        target = find_workspace(server, "two") / "recipe.txt"
        beside = tmp_path.parent / f"{tmp_path.name}-workspaces"
        assert str(beside) in server.app.runtimes.list_open()[0].confinement.hidden
        inside = target.relative_to(tmp_path)
        told = await call(server, {}, "bash", command=f"cat {target} {inside}; ls workspaces")
        assert SECRET not in told
        assert SECRET not in await call(server, {}, "read", file_path=str(inside))
