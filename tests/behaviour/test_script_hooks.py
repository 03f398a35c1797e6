"""Hooks that are programs: JSON in, verdict out, in the sandbox, after trust."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient, tool
from holdfast.cli.app import root
from holdfast.hooks import HookLimits
from holdfast.messages import ToolPart
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

DELETE = "tool.before_execution"


@tool(effect="read")
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AGENT_WORKSPACE", str(folder))
    monkeypatch.chdir(folder)
    return folder


def add_hook(project: Path, script: str, **fields: object) -> Path:
    folder = project / ".holdfast" / "hooks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "check.sh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "check.sh").chmod(0o755)
    told = {"point": DELETE, "command": ["/bin/sh", "./check.sh"], **fields}
    (folder / "check.yaml").write_text(json.dumps(told))
    return folder


def open_client() -> AsyncClient:
    return AsyncClient(settings=load_settings().settings)


async def call(client: AsyncClient, *paths: str) -> list[ToolPart]:
    """Let an agent delete paths; returns what became of its calls."""
    model = ScriptedModel([tool_call("delete", path=path) for path in paths], "done")
    result = await Agent("janitor", model=model, tools=[delete]).run("go", client=client)
    assert result.status == "completed"
    return list(model.requests[-1].messages[-1].tool_calls)


async def journal_kinds(client: AsyncClient) -> list[str]:
    journal = await client.storage.journal()
    return [event.kind for event in await journal.store.feed(after=0, limit=10_000)]


@pytest.mark.parametrize(
    ("answer", "output", "error"),
    [
        ("", "deleted a", ""),
        ('{"verdict": "continue"}', "deleted a", ""),
        ('{"verdict": "modify", "changes": {"arguments": {"path": "b"}}}', "deleted b", ""),
        ('{"verdict": "replace", "value": "kept"}', "kept", ""),
        ('{"verdict": "cancel", "reason": "not today"}', "", "not today"),
    ],
)
async def test_a_program_decides(project: Path, answer: str, output: str, error: str) -> None:
    add_hook(project, f"cat > /dev/null; printf '%s' '{answer}'")
    async with open_client() as client:
        await client.hooks.trust()
        [part] = await call(client, "a")
        decided = (await journal_kinds(client)).count("hook.decided")
    assert (part.output, error in part.error) == (output, True)
    assert decided == (answer != "" and "continue" not in answer)


async def test_a_program_gets_the_payload_as_json(project: Path) -> None:
    add_hook(
        project,
        'grep -q \'"path":"secret.txt"\' && echo \'{"verdict":"replace","value":"no"}\'; true',
    )
    async with open_client() as client:
        await client.hooks.trust()
        parts = await call(client, "secret.txt", "a")
    assert [part.output for part in parts] == ["no", "deleted a"]


async def test_retry_asks_the_model_again(project: Path) -> None:
    add_hook(
        project,
        'grep -q nonsense && echo \'{"verdict": "retry"}\'; true',
        point="model.after_response",
    )
    async with open_client() as client:
        await client.hooks.trust()
        agent = Agent("a", model=ScriptedModel("nonsense", "better"))
        assert (await agent.run("go", client=client)).response == "better"


async def test_nothing_of_a_project_runs_before_a_person_trusts_it(project: Path) -> None:
    folder = add_hook(project, 'echo \'{"verdict": "replace", "value": "hooked"}\'')
    async with open_client() as client:
        assert [(one.name, one.is_trusted) for one in await client.hooks.list()] == [
            ("check", False)
        ]
        assert (await call(client, "a"))[0].output == "deleted a"
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "hooked"
        # A changed program is a stranger again, at once and after a restart.
        (folder / "check.sh").write_text('echo \'{"verdict": "replace", "value": "bad"}\'')
        assert (await call(client, "a"))[0].output == "deleted a"
    async with open_client() as client:
        assert (await call(client, "a"))[0].output == "deleted a"
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "bad"
        await client.hooks.trust(revoke=True)
        assert (await call(client, "a"))[0].output == "deleted a"


HOOKED = 'echo \'{"verdict": "replace", "value": "hooked"}\''


@pytest.mark.parametrize("command", [["/bin/sh", "./check.sh"], ["/bin/sh", "-c", HOOKED]])
async def test_folder_above_the_workspace_is_judged_before_each_execution(
    project: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    below = project / "deep" / "er"
    below.mkdir(parents=True)
    monkeypatch.setenv("AGENT_WORKSPACE", str(below))
    folder = add_hook(project, HOOKED, command=command)
    async with open_client() as client:
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "hooked"
        (folder / "check.sh").write_text(f"{HOOKED} # changed")
        assert (await call(client, "a"))[0].output == "deleted a"
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "hooked"
        # A nearer folder that nobody trusts takes the place of the one above.
        add_hook(below, HOOKED, command=command)
        assert (await call(client, "a"))[0].output == "deleted a"


async def test_a_failing_program_is_cut_off_and_changes_nothing(project: Path) -> None:
    add_hook(project, "echo run >> /dev/null; exit 3")
    async with open_client() as client:
        await client.hooks.trust()
        parts = [part for name in "abcde" for part in await call(client, name)]
        kinds = await journal_kinds(client)
    assert [part.output for part in parts] == [f"deleted {name}" for name in "abcde"]
    # Three failures, then it is left out.
    assert kinds.count("hook.failed") == 3


async def test_a_failing_guard_refuses(project: Path) -> None:
    add_hook(project, "exit 3", guard=True)
    async with open_client() as client:
        await client.hooks.trust()
        [part] = await call(client, "a")
    assert part.state == "error"


async def test_a_guard_that_changed_since_it_was_trusted_refuses_until_it_is_trusted_again(
    project: Path,
) -> None:
    folder = add_hook(project, "cat > /dev/null", guard=True)
    async with open_client() as client:
        assert (await call(client, "a"))[0].output == "deleted a", "nobody has trusted it yet"
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "deleted a"
    (folder / "note.txt").write_text("changed")
    async with open_client() as client:
        [part] = await call(client, "a")
        assert part.state == "error"
        assert "script:check" in part.error
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "deleted a"


def test_a_run_at_the_command_line_says_which_hooks_are_left_out(project: Path) -> None:
    run = CliRunner()
    folder = add_hook(project, "cat > /dev/null", guard=True)

    def said() -> str:
        return run.invoke(root, ["run", "What is 2 plus 3?", "--model", "offline"]).stderr

    assert "not trusted: check" in said()
    run.invoke(root, ["hooks", "trust"])
    assert "hooks" not in said()
    (folder / "note.txt").write_text("changed")
    assert "changed since they were trusted: check" in said()
    (folder / "check.yaml").write_text("point: no.such\ncommand: [a]\n")
    assert "no.such" in said()


async def test_a_program_that_hangs_is_ended(project: Path) -> None:
    add_hook(project, "exec tail -f /dev/null", timeout_s=0.2)
    async with open_client() as client:
        await client.hooks.trust()
        [part] = await call(client, "a")
        assert part.output == "deleted a"
        assert "hook.failed" in await journal_kinds(client)


async def test_a_program_reads_the_workspace_and_writes_nothing(project: Path) -> None:
    (project / "known.txt").write_text("known")
    add_hook(
        project,
        "echo x > written.txt; test -f known.txt && test ! -e ../state/journal.db && "
        'echo \'{"verdict": "replace", "value": "seen"}\'; true',
    )
    async with open_client() as client:
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "seen"
    assert not (project / "written.txt").exists()


async def test_the_users_own_hooks_need_no_trust_and_code_can_add_programs(
    project: Path, tmp_path: Path
) -> None:
    folder = load_settings().settings.user_dir / "hooks"
    folder.mkdir(parents=True)
    (folder / "mine.sh").write_text('echo \'{"verdict": "replace", "value": "mine"}\'')
    told = {"point": DELETE, "command": ["/bin/sh", "./mine.sh"], "agent": "janitor"}
    (folder / "mine.yaml").write_text(json.dumps(told))
    async with open_client() as client:
        assert (await call(client, "a"))[0].output == "mine"
        client.hooks.on_script(
            DELETE,
            ["/bin/echo", '{"verdict": "replace", "value": "from code"}'],
            priority=10,
            limits=HookLimits(timeout_s=30),
        )
        assert (await call(client, "a"))[0].output == "from code"


async def test_a_policy_that_denies_commands_denies_programs_of_hooks(project: Path) -> None:
    settings = load_settings().settings
    folder = Path(settings.policies.dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tools.yaml").write_text(
        "rules:\n  - {permission: hook, pattern: '*', action: deny}\n"
    )
    add_hook(project, 'echo \'{"verdict": "replace", "value": "hooked"}\'')
    async with open_client() as client:
        await client.hooks.trust()
        assert (await call(client, "a"))[0].output == "deleted a"
        assert "hook.failed" in await journal_kinds(client)


def test_the_command_line_lists_and_trusts(project: Path) -> None:
    folder = add_hook(project, "true")
    (folder / "wrong.yaml").write_text("point: tool.before_execution\ncommand: []\n")
    (folder / "lost.yaml").write_text("point: no.such\ncommand: [a]\n")
    run = CliRunner()
    listed = run.invoke(root, ["hooks", "list"])
    assert listed.exit_code == 0, listed.output
    assert "wrong.yaml:2: command" in listed.stderr
    assert "no.such" in listed.stderr
    rows = json.loads(run.invoke(root, ["hooks", "list", "--json"]).stdout)
    assert [(row["name"], row["trusted"]) for row in rows] == [("check", False)]
    trusted = run.invoke(root, ["hooks", "trust", "--json"])
    assert [row["trusted"] for row in json.loads(trusted.stdout)] == [True]
    points = json.loads(run.invoke(root, ["hooks", "points", "--json"]).stdout)
    assert DELETE in [row["point"] for row in points]
