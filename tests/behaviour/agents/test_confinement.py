"""Runs are confined: policies are the ceiling, commands run in the sandbox, hosts are closed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from holdfast import Agent, AsyncClient
from holdfast.errors import ConfigError, PolicyInvalid
from holdfast.messages import ToolPart
from holdfast.settings import load_settings
from holdfast.settings.load import vouch_for
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools.gate import AutoConfirm

EVERYTHING = [{"permission": "*", "pattern": "*", "action": "allow"}]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


@pytest.fixture
async def client(tmp_path: Path, workspace: Path) -> AsyncIterator[AsyncClient]:
    overrides = {"workspace": str(workspace), "storage.state_dir": str(tmp_path / "state")}
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as opened:
        yield opened


async def results(client: AsyncClient, agent: Agent, *calls: ToolPart) -> list[ToolPart]:
    model = ScriptedModel(*calls, "done")
    agent.model = model
    result = await agent.run("go", client=client)
    assert result.status == "completed", result.metadata
    return [request.messages[-1].tool_calls[0] for request in model.requests[1:]]


async def test_commands_run_in_the_sandbox_and_cannot_leave_the_workspace(
    client: AsyncClient, workspace: Path, tmp_path: Path
) -> None:
    agent = Agent("worker", permission=EVERYTHING)
    shown, written, outside = await results(
        client,
        agent,
        tool_call("bash", command="cat a.txt"),
        tool_call("bash", command="cp a.txt b.txt"),
        tool_call("bash", command=f"cp a.txt {tmp_path}/stolen.txt"),
    )
    assert (shown.output, shown.metadata["exit_code"]) == ("hello", 0)
    assert "workspace-write" in shown.metadata["sandbox"]
    assert (workspace / "b.txt").read_text() == "hello\n"
    assert outside.state == "error"
    assert not (tmp_path / "stolen.txt").exists()
    assert written.state == "completed"


async def test_explore_looks_but_cannot_write(client: AsyncClient, workspace: Path) -> None:
    agent = Agent("looker", permission=EVERYTHING, sandbox="read-only")
    looked, wrote = await results(
        client,
        agent,
        tool_call("bash", command="cat a.txt"),
        tool_call("bash", command="cp a.txt b.txt"),
    )
    assert (looked.state, wrote.state) == ("completed", "error")
    assert not (workspace / "b.txt").exists()


NAMING = [
    {"permission": "bash", "pattern": "rm *", "action": "deny"},
    {"permission": "bash", "pattern": "sudo *", "action": "ask"},
    {"permission": "command", "pattern": "git status", "action": "allow"},
    {"permission": "*", "pattern": "*.env", "action": "deny"},
]


@pytest.mark.parametrize("rule", NAMING, ids=lambda rule: f"{rule['permission']} {rule['pattern']}")
async def test_where_a_rule_names_commands_one_that_cannot_be_read_asks(
    client: AsyncClient, rule: dict[str, str]
) -> None:
    [refused] = await results(
        client,
        Agent("worker", permission=[*EVERYTHING, rule]),
        tool_call("bash", command="for f in *; do cat $f; done"),
    )
    assert refused.state == "error"


async def test_where_the_policies_name_commands_one_that_cannot_be_read_asks(
    tmp_path: Path, workspace: Path
) -> None:
    (workspace / "policies").mkdir()
    rules = "rules:\n  - {permission: bash, pattern: 'curl *', action: deny}\n"
    (workspace / "policies" / "tools.yaml").write_text(rules)
    overrides = {
        "workspace": str(workspace),
        "storage.state_dir": str(tmp_path / "state"),
        "policies.dir": str(workspace / "policies"),
    }
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as client:
        [refused] = await results(
            client,
            Agent("worker", permission=EVERYTHING),
            tool_call("bash", command="echo $(date)"),
        )
    assert refused.state == "error"


SCRIPTS = yaml.safe_load((Path(__file__).parents[2] / "corpora" / "scripts.yaml").read_text())


async def test_ordinary_shell_runs_unattended_where_the_sandbox_is_the_boundary(
    client: AsyncClient, workspace: Path
) -> None:
    calls = [tool_call("bash", command=one["command"]) for one in SCRIPTS]
    ran = await results(client, Agent("worker", permission=EVERYTHING), *calls)
    for one, part in zip(SCRIPTS, ran, strict=True):
        assert part.metadata.get("exit_code") == one.get("exit", 0), (one, part.output)
        if "prints" in one:
            assert part.output == one["prints"].rstrip("\n"), one


async def test_a_script_cannot_leave_the_sandbox_that_bounds_it(
    client: AsyncClient, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    state = tmp_path / "state"
    scripts = [
        f"for f in {tmp_path}/secret; do cat $f; done",
        f"x={state}; ls $x/*",
        f"eval 'echo x > {tmp_path}/stolen'",
        "exec 3<>/dev/tcp/127.0.0.1/22",
        f"kill -0 {os.getpid()} && echo seen",
        "echo $(cp /bin/sh ./sh2; chmod u+s ./sh2; stat -c %a sh2)",
    ]
    calls = [tool_call("bash", command=one) for one in scripts]
    ran = await results(client, Agent("worker", permission=EVERYTHING), *calls)
    assert all("hidden" not in part.output and "seen" not in part.output for part in ran)
    assert not (tmp_path / "stolen").exists()
    assert not (workspace / "sh2").stat().st_mode & 0o6000


async def test_git_that_rules_allow_runs_nothing_of_the_repository(
    client: AsyncClient, workspace: Path
) -> None:
    """Through the whole runtime: the gate says what let a call pass, and the runner goes by it."""
    program = workspace / "payload"
    program.write_text("#!/bin/sh\ntouch mark\n")
    program.chmod(0o755)
    for words in (["init", "-q"], ["config", "core.fsmonitor", "./payload"], ["add", "a.txt"]):
        await asyncio.to_thread(subprocess.run, ["git", *words], cwd=workspace, check=True)
    (workspace / "mark").unlink(missing_ok=True)
    named = [{"permission": "bash", "pattern": "git status", "action": "allow"}]
    for rules in (named, EVERYTHING):
        [looked] = await results(
            client, Agent("worker", permission=rules), tool_call("bash", command="git status")
        )
        assert "a.txt" in looked.output
        assert not (workspace / "mark").exists()


async def test_policy_files_are_a_ceiling_that_no_agent_lifts(
    client: AsyncClient, workspace: Path
) -> None:
    (workspace / "policies").mkdir()
    (workspace / "policies" / "paths.yaml").write_text("blocked_globs: ['secret/**']\n")
    (workspace / "policies" / "tools.yaml").write_text("defaults: {allowed_commands: ['cat']}\n")
    (workspace / "secret").mkdir()
    (workspace / "secret" / "key").write_text("42")
    agent = Agent("worker", permission=EVERYTHING, approve=AutoConfirm())
    blocked, cat, copied, rewritten = await results(
        client,
        agent,
        tool_call("read", file_path="secret/key"),
        tool_call("bash", command="cat a.txt"),
        tool_call("bash", command="cp a.txt b.txt"),
        tool_call("write", file_path="policies/tools.yaml", content=""),
    )
    assert (blocked.state, cat.state) == ("error", "completed")
    assert (copied.state, rewritten.state) == ("error", "error")
    assert not (workspace / "b.txt").exists()
    assert "cat" in (workspace / "policies" / "tools.yaml").read_text()


async def test_reload_holds_for_the_next_run_and_a_wrong_file_changes_nothing(
    client: AsyncClient, workspace: Path
) -> None:
    agent = Agent("worker", permission=EVERYTHING)
    assert (await results(client, agent, tool_call("read", file_path="a.txt")))[0].output
    folder = workspace / "policies"
    folder.mkdir()
    (folder / "paths.yaml").write_text("blocked_globs: ['a.txt']\n")
    assert (await client.policies.reload(asked_by="tester")).mistakes == ()
    (folder / "paths.yaml").write_text("blocked_globs: 7\n")
    assert (await client.policies.reload(asked_by="tester")).mistakes
    [blocked] = await results(client, agent, tool_call("read", file_path="a.txt"))
    assert blocked.state == "error"


async def test_wrong_policy_file_stops_the_first_run_before_anything_happens(
    client: AsyncClient, workspace: Path
) -> None:
    (workspace / "policies").mkdir()
    (workspace / "policies" / "tools.yaml").write_text("defualts: {}\n")
    model = ScriptedModel("never")
    with pytest.raises(PolicyInvalid):
        await Agent("worker", model=model).run("go", client=client)
    assert model.requests == []


async def test_network_is_closed_by_default(client: AsyncClient) -> None:
    [refused] = await results(
        client,
        Agent("worker", permission=EVERYTHING, approve=AutoConfirm()),
        tool_call("webfetch", url="http://127.0.0.1:9/"),
    )
    assert refused.state == "error"


async def test_commands_do_not_see_what_the_policies_block(
    client: AsyncClient, workspace: Path
) -> None:
    (workspace / "policies").mkdir()
    (workspace / "policies" / "paths.yaml").write_text("blocked_globs: ['**/*.pem', secret]\n")
    (workspace / "secret").mkdir()
    (workspace / "secret" / "key").write_text("planted")
    (workspace / "a.pem").write_text("planted")
    found = await results(
        client,
        Agent("worker", permission=EVERYTHING, approve=AutoConfirm()),
        tool_call("bash", command="cat a.pem secret/key"),
        tool_call("bash", command="grep -r planted ."),
        tool_call("bash", command="mv secret open && cat open/key"),
        tool_call("bash", command="cat a.txt"),
    )
    assert not [one for one in found if "planted" in one.output + one.error]
    assert found[-1].output == "hello"


async def test_no_tool_changes_the_policies_or_the_settings_of_the_next_start(
    client: AsyncClient, workspace: Path
) -> None:
    (workspace / "policies").mkdir()
    (workspace / "policies" / "paths.yaml").write_text("blocked_globs: [secret]\n")
    (workspace / ".env").write_text("AGENT_MAX_STEPS=3\n")
    (workspace / "holdfast.toml").write_text("# ours\n")
    refused = await results(
        client,
        Agent("worker", permission=EVERYTHING, approve=AutoConfirm()),
        tool_call("bash", command="rm policies/paths.yaml"),
        tool_call("bash", command="mv policies other"),
        tool_call("bash", command="cp a.txt .env"),
        tool_call("bash", command="mv holdfast.toml other.toml"),
        tool_call("write", file_path="holdfast.toml", content="[network]\nallow_net = true\n"),
        tool_call("write", file_path="holdfast.prod.toml", content="x = 1\n"),
        tool_call("write", file_path=".env", content="ALLOW_NET=true\n"),
    )
    assert {one.state for one in refused} == {"error"}
    assert (workspace / "policies" / "paths.yaml").exists()
    assert (workspace / ".env").read_text() == "AGENT_MAX_STEPS=3\n"
    assert (workspace / "holdfast.toml").read_text() == "# ours\n"
    assert not (workspace / "holdfast.prod.toml").exists()


async def test_settings_that_a_command_made_are_not_obeyed_until_a_person_trusts_them(
    client: AsyncClient, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    (workspace / "wish").write_text("[network]\nallow_net = true\n")
    agent = Agent("worker", permission=EVERYTHING)
    [made] = await results(client, agent, tool_call("bash", command="cp wish holdfast.toml"))
    assert "holdfast config trust" in made.output
    overrides = {"storage.state_dir": str(tmp_path / "state")}
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings(overrides=overrides)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match="holdfast config trust"):
        AsyncClient(base_dir=tmp_path / "state")
    assert vouch_for(workspace / "holdfast.toml", overrides=overrides)
    assert load_settings(overrides=overrides).settings.network.allow_net
    [again] = await results(client, agent, tool_call("bash", command="rm holdfast.toml"))
    assert again.state == "error"


async def test_policies_that_a_command_made_are_not_put_in_force_by_a_reload(
    client: AsyncClient, workspace: Path
) -> None:
    agent = Agent("worker", permission=EVERYTHING)
    command = "mkdir policies && touch policies/network.yaml"
    [made] = await results(client, agent, tool_call("bash", command=command))
    assert made.state == "completed"
    before = (await client.policies.store()).bundle
    reload = await client.policies.reload(asked_by="tester")
    assert "holdfast config trust" in reload.mistakes[0]
    assert (await client.policies.store()).bundle is before


async def test_no_tool_sees_the_file_with_the_keys_or_the_records(
    tmp_path: Path, workspace: Path
) -> None:
    (workspace / ".holdfast").mkdir()
    keys = workspace / ".holdfast" / "secrets.env"
    keys.write_text("MY_KEY=planted-in-the-file\n")
    keys.chmod(0o600)
    overrides = {"workspace": str(workspace), "storage.state_dir": str(workspace / "state")}
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as client:
        found = await results(
            client,
            Agent("worker", permission=EVERYTHING, approve=AutoConfirm()),
            tool_call("read", file_path=".holdfast/secrets.env"),
            tool_call("grep", pattern="planted-in"),
            tool_call("bash", command="cat .holdfast/secrets.env"),
            tool_call("bash", command="mv .holdfast x && cat x/secrets.env"),
            tool_call("read", file_path="state/journal.db"),
            tool_call("write", file_path="state/journal.db", content="x"),
            tool_call("write", file_path=".holdfast/plans/a.md", content="a plan"),
        )
    assert not [one for one in found if "planted-in-the-file" in one.output + one.error]
    assert [one.state for one in found[-3:]] == ["error", "error", "completed"]


async def test_a_granted_directory_brings_nothing_into_reach_that_is_kept_from_agents(
    tmp_path: Path, workspace: Path
) -> None:
    (tmp_path / "keys.env").write_text("MY_KEY=planted-in-the-file\n")
    (tmp_path / "keys.env").chmod(0o600)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "paths.yaml").write_text("blocked_globs: [secret, '**/.ssh/**']\n")
    for folder in (workspace / "secret" / "inner", tmp_path / ".ssh"):
        folder.mkdir(parents=True)
        (folder / "key").write_text("planted-too")
    (workspace / "holdfast.toml").write_text("# ours\n")
    (tmp_path / "alias").symlink_to(workspace)
    overrides = {
        "workspace": str(workspace),
        "storage.state_dir": str(tmp_path / "state"),
        "policies.dir": str(tmp_path / "rules"),
        "secrets.file": str(tmp_path / "keys.env"),
    }
    granted = tool_call("externaldirectory", path=str(tmp_path), writable=True)
    tries = [
        tool_call("read", file_path=f"{tmp_path}/keys.env"),
        tool_call("read", file_path=f"{tmp_path}/alias/secret/inner/key"),
        tool_call("write", file_path=f"{tmp_path}/alias/holdfast.toml", content="x"),
        tool_call("write", file_path=f"{tmp_path}/state/trust.json", content="{}"),
        tool_call("write", file_path=f"{tmp_path}/rules/paths.yaml", content=""),
        tool_call("externaldirectory", path=f"{tmp_path}/state"),
        tool_call("externaldirectory", path=f"{tmp_path}/.ssh"),
        tool_call("externaldirectory", path=f"{workspace}/secret/inner"),
        tool_call("externaldirectory", path=f"{tmp_path}/rules", writable=True),
        tool_call("bash", command=f"cat {tmp_path}/.ssh/key {workspace}/secret/inner/key"),
    ]
    looks = [
        tool_call("grep", pattern="planted", path=str(tmp_path)),
        tool_call("list", path=str(tmp_path)),
        tool_call("read", file_path=f"{tmp_path}/rules/paths.yaml"),
        tool_call("write", file_path=f"{tmp_path}/new.txt", content="fine"),
    ]
    agent = Agent("worker", permission=EVERYTHING, approve=AutoConfirm())
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as client:
        first, *found = await results(client, agent, granted, *tries, *looks)
    assert first.state == "completed"
    assert [one.state for one in found] == ["error"] * len(tries) + ["completed"] * len(looks)
    assert not [one for one in found if "planted-" in one.output + one.error]
    assert "state" not in found[-3].output
    assert (workspace / "holdfast.toml").read_text() == "# ours\n"
    assert not (tmp_path / "state" / "trust.json").exists()


async def test_no_tool_silences_the_hooks_of_the_project(
    client: AsyncClient, workspace: Path
) -> None:
    folder = workspace / ".holdfast" / "hooks"
    folder.mkdir(parents=True)
    (folder / "guard.yaml").write_text("point: tool.before_execution\ncommand: ['true']\n")
    refused = await results(
        client,
        Agent("worker", permission=EVERYTHING, approve=AutoConfirm()),
        tool_call("write", file_path=".holdfast/hooks/more", content="x"),
        tool_call("bash", command="touch .holdfast/hooks/more"),
        tool_call("bash", command="mv .holdfast other"),
    )
    assert {one.state for one in refused} == {"error"}
    assert [path.name for path in folder.iterdir()] == ["guard.yaml"]
