from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.client import AsyncClient
from holdfast.journal import SYSTEM_SESSION, Origin
from holdfast.policy import CallRequest, decide, load_policies
from holdfast.policy.events import ApprovalRequested
from holdfast.sessions.writing import Writing
from holdfast.tools.effects import Intent
from holdfast.tools.events import PermissionRefused, ToolStarted

TOOLS = """\
defaults:
  allowed_commands: [git status]
agents:
  build:
    allowed_tools: [bash, read]
tests:
  - {tool: bash, command: git status -s, expect: allow}
  - {tool: write, path: a, expect: deny}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/tools.yaml").write_text(TOOLS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("ALLOW_NET", raising=False)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(root, ["policies", *words])


def parsed(*words: str) -> dict[str, object]:
    result: dict[str, object] = json.loads(call(*words, "--json").stdout)
    return result


def test_validate_shows_the_version_of_sound_files(project: Path) -> None:
    bundle = load_policies(project / "policies")
    assert parsed("validate") == {
        "valid": True,
        "version": bundle.version,
        "files": [str(project / "policies/tools.yaml")],
    }
    assert bundle.version[:12] in call("validate").stdout


def test_validate_names_every_mistake_and_ends_with_3(project: Path) -> None:
    (project / "policies/tools.yaml").write_text("agent: {}\nbudgets: {max_tokens: x}\n")
    result = call("validate")
    assert result.exit_code == 3
    assert "tools.yaml:1: unknown key 'agent'; did you mean 'agents'?" in result.stderr
    assert "tools.yaml:2:" in result.stderr
    assert json.loads(call("validate", "--json").stderr)["error"]["code"] == "policy.invalid"


def test_without_files_validate_says_what_holds(project: Path) -> None:
    (project / "policies/tools.yaml").unlink()
    result = call("validate")
    assert result.exit_code == 0
    assert "no network" in result.stdout


def test_inline_tests_are_run(project: Path) -> None:
    assert parsed("test")["ok"] is True
    assert "All 2 tests passed." in call("test").stdout
    (project / "policies/tools.yaml").write_text(
        TOOLS + "  - {tool: read, path: a, expect: deny}\n"
    )
    result = call("test")
    assert result.exit_code == 1
    assert "tools.yaml:9" in result.stdout
    assert "1 of 3" in result.stderr


def test_explain_marks_the_decisive_rule(project: Path) -> None:
    told = parsed("explain", "bash", "--command", "rm -rf x")
    assert told["action"] == "deny"
    decisive = [rule for rule in told["rules"] if rule["decisive"]]  # type: ignore[attr-defined]
    assert decisive == [
        {
            "source": "ceiling",
            "permission": "command",
            "pattern": "*",
            "action": "deny",
            "matches": True,
            "decisive": True,
        }
    ]
    assert "=> ceiling  command * deny" in call("explain", "bash", "--command", "rm x").stdout
    assert parsed("explain", "bash", "--command", "git status")["action"] == "allow"
    assert parsed("explain", "write", "--path", "a")["action"] == "deny"
    assert parsed("explain", "write", "--path", "a", "--agent", "other")["action"] == "allow"
    assert parsed("explain", "webfetch", "--host", "example.org")["action"] == "deny"
    assert call("explain", "a", "--path", "x", "--host", "y").exit_code == 2


def test_reload_asks_the_other_processes(project: Path) -> None:
    assert parsed("reload")["requested"] is True

    async def asked() -> list[str]:
        async with AsyncClient() as client:
            return [
                event.kind for event in await (await client.storage.journal()).read(SYSTEM_SESSION)
            ]

    assert asyncio.run(asked()) == ["policy.reload_requested"]


async def _list_system_kinds() -> set[str]:
    async with AsyncClient() as client:
        journal = await client.storage.journal()
        return {event.kind for event in await journal.read(SYSTEM_SESSION)}


def test_reload_of_wrong_files_asks_no_process_and_says_so_everywhere(project: Path) -> None:
    (project / "policies/tools.yaml").write_text("agents: [\n")
    assert call("reload").exit_code == 3
    kinds = asyncio.run(_list_system_kinds())
    assert "policy.reload_requested" not in kinds
    assert "policy.rejected" in kinds


async def _record(project: Path) -> None:
    """Put three calls into the journal as the tools' manager does."""
    bundle = load_policies(project / "policies")
    async with AsyncClient() as client:
        session = await client.create_session(title="recorded")
        sessions = await client.sessions.manager()
        for number, (tool, kind, target, default) in enumerate(
            [
                ("bash", "command", "git status", "ask"),
                ("write", "path", "src/a", "allow"),
                ("bash", "command", "git status -s", "allow"),
            ]
        ):
            request = CallRequest(
                permission=tool, targets=(target,), target_kind=kind, default=default
            )
            decision = decide(request, bundle.find_ceiling("build"), policy_version=bundle.version)
            common = {"call_id": f"c{number}", "targets": (target,)}
            if decision.action == "allow":
                intent = Intent(
                    tool=tool, version="1", call_id=f"c{number}", idempotency_key="k", arguments={}
                )
                fact = ToolStarted(
                    intent=intent,
                    message_id="m",
                    effect="unsafe",
                    source_hash="h",
                    targets=(target,),
                    policy_version=bundle.version,
                )
            elif decision.action == "ask":
                fact = ApprovalRequested(
                    approval_id="a",
                    message_id="m",
                    tool=tool,
                    permission=tool,
                    agent_path="build",
                    seal="s",
                    decision=decision,
                    expires_at=9e9,
                    **common,
                )
            else:
                fact = PermissionRefused(
                    tool=tool, permission=tool, because="", decision=decision, **common
                )
            async with Writing(sessions.journal, sessions.keeper, session.id, 5.0) as writing:
                await writing.append(fact, origin=Origin(agent_path="build"))


def test_replay_under_the_same_policies_changes_nothing(project: Path) -> None:
    asyncio.run(_record(project))
    found = parsed("replay")
    assert (found["calls"], found["changed"]) == (3, 0)


def test_replay_and_diff_name_the_calls_that_change(project: Path) -> None:
    asyncio.run(_record(project))
    (project / "candidate").mkdir()
    (project / "candidate/tools.yaml").write_text(
        "rules:\n  - {permission: bash, pattern: 'git status -s', action: deny}\n"
    )
    for words in (("replay", "--dir", "candidate"), ("diff", "candidate")):
        changes = parsed(*words)["changes"]
        shown = [(row["tool"], row["before"], row["after"]) for row in changes if row["call"]]  # type: ignore[attr-defined]
        assert shown == [("write", "deny", "allow"), ("bash", "allow", "deny")]
    assert "2 of 3 calls" in call("replay", "--dir", "candidate").stdout
    listed = parsed("diff", "candidate", "--listed")
    assert [row["tool"] for row in listed["changes"]] == ["bash", "write"]  # type: ignore[attr-defined]
