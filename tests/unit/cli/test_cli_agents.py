"""`holdfast agents`, `skills`, `context` and `templates` at the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.sync import Client


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_USER_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def call(*words: str) -> Result:
    return CliRunner().invoke(root, list(words))


def skill(project: Path, name: str = "pdf-forms", more: str = "") -> Path:
    folder = project / ".agents/skills" / name
    folder.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: Fill forms.\n{more}---\n\nUse pdftk.\n"
    (folder / "SKILL.md").write_text(text)
    return folder


# --- skills --------------------------------------------------------------------------


def test_project_skill_is_listed_and_offered_after_trust(project: Path) -> None:
    skill(project)
    [row] = json.loads(call("skills", "list", "--json").stdout)
    assert (row["name"], row["source"], row["trusted"]) == ("pdf-forms", "project", False)
    assert call("skills", "trust", "pdf-forms").exit_code == 0
    [row] = json.loads(call("skills", "list", "--json").stdout)
    assert row["trusted"] is True
    shown = json.loads(call("skills", "show", "pdf-forms", "--json").stdout)
    assert shown["content"] == "Use pdftk."
    call("skills", "trust", "--all", "--revoke")
    [row] = json.loads(call("skills", "list", "--json").stdout)
    assert row["trusted"] is False


def test_validate_is_strict_and_says_where(project: Path) -> None:
    good, bad = skill(project), skill(project, "bad", more="version: 2\n")
    assert call("skills", "validate", str(good)).exit_code == 0
    ended = call("skills", "validate")
    assert ended.exit_code == 1
    assert f"{bad / 'SKILL.md'}:4:" in ended.stdout
    [fault] = json.loads(call("skills", "validate", str(bad / "SKILL.md"), "--json").stdout)
    assert fault["line"] == 4
    assert call("skills", "validate", str(project / "nothing")).exit_code == 2


def test_validate_finds_skills_that_cannot_be_loaded_too(project: Path) -> None:
    folder = skill(project)
    (folder / "SKILL.md").write_text("---\nname: other\ndescription:\n---\n\nNothing.\n")
    ended = call("skills", "validate")
    assert ended.exit_code == 1
    assert f"{folder / 'SKILL.md'}:3:" in ended.stdout


def test_validate_does_not_wait_for_a_pipe_in_the_place_of_a_skill(project: Path) -> None:
    folder = skill(project)
    (folder / "SKILL.md").unlink()
    os.mkfifo(folder / "SKILL.md")
    ended = call("skills", "validate")
    assert ended.exit_code == 1
    assert "it is no file" in ended.stdout


def test_unknown_skill_or_no_name_is_a_usage_error(project: Path) -> None:
    assert call("skills", "show", "nothing").exit_code == 2
    assert call("skills", "trust").exit_code == 2


# --- agents --------------------------------------------------------------------------


def agent_file(project: Path, text: str, name: str = "reviewer") -> None:
    folder = project / ".holdfast/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def test_agents_of_files_are_listed_with_their_source(project: Path) -> None:
    agent_file(project, "---\ndescription: Reviews.\npermission:\n  bash: allow\n---\nReview.")
    agent_file(project, "---\nmode: sideways\n---\nX", "broken")
    ended = call("agents", "list", "--json")
    rows = {row["name"]: row for row in json.loads(ended.stdout)}
    assert list(rows)[:4] == ["build", "plan", "general", "explore"]
    assert (rows["reviewer"]["source"], rows["reviewer"]["trusted"]) == ("project", False)
    assert "broken.md:2" in call("agents", "list").stderr
    shown = json.loads(call("agents", "show", "reviewer", "--json").stdout)
    assert shown["prompt"] == "Review."
    assert shown["rules"] == ["bash * ask"]
    assert json.loads(call("agents", "trust", "reviewer", "--json").stdout)["trusted"] is True
    shown = json.loads(call("agents", "show", "reviewer", "--json").stdout)
    assert shown["rules"] == ["bash * allow"]
    ended = call("agents", "show", "broken")
    assert ended.exit_code == 3


def test_agent_can_be_added_and_removed(project: Path) -> None:
    assert call("agents", "add", "helper", "--prompt", "Help.", "--tool", "read").exit_code == 0
    shown = json.loads(call("agents", "show", "HELPER", "--json").stdout)
    assert (shown["source"], shown["allowed_tools"]) == ("registered", ["read"])
    file = project / "writer.md"
    file.write_text("---\ntemperature: 0.2\n---\nWrite.")
    assert json.loads(call("agents", "add", "--file", str(file), "--json").stdout) == {
        "added": "writer"
    }
    assert call("agents", "remove", "helper").exit_code == 0
    assert call("agents", "remove", "helper").exit_code == 2
    assert call("agents", "remove", "build").exit_code == 2
    assert call("agents", "add").exit_code == 2
    file.write_text("---\ntemperature: warm\n---\nWrite.")
    assert call("agents", "add", "--file", str(file)).exit_code == 3


# --- context, templates --------------------------------------------------------------


def test_context_shows_what_takes_how_much(project: Path) -> None:
    (project / "AGENTS.md").write_text("Be careful here.")
    with Client() as client:
        session = client.create_session("talk")
        client.add_message(session.id, "user", "hello there")
    shown = json.loads(call("context", "show", session.id, "--prompt", "--json").stdout)
    assert [part["part"] for part in shown["parts"]] == [
        "prompt",
        "environment",
        "instructions",
        "tools",
        "history",
    ]
    assert shown["total"] == sum(part["tokens"] for part in shown["parts"])
    assert "Be careful here." in shown["system_prompt"]
    assert "tokens" in call("context", "show", session.slug).stdout
    assert call("context", "show", "ses_none").exit_code == 2


def test_templates_are_listed_shown_and_run(project: Path) -> None:
    names = {row["name"] for row in json.loads(call("templates", "list", "--json").stdout)}
    assert names == {
        "chat",
        "research",
        "code",
        "code-review",
        "data-analysis",
        "documents",
        "orchestrator",
    }
    shown = json.loads(call("templates", "show", "research", "--json").stdout)
    assert shown["parameters"]["required"] == ["question"]
    assert shown["estimate"]["cost_usd"] > 0
    people = call("templates", "show", "research").stdout.splitlines()
    assert ["question", "string", "required"] in [line.split()[:3] for line in people]
    ended = call("templates", "run", "chat", "-p", "message=What is 2 + 3?", "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["status"] == "completed"
    files = ("-p", "files=a.csv", "-p", "files=b.csv", "-p", "question=42")
    ended = call("templates", "run", "data-analysis", *files, "--json")
    assert ended.exit_code == 0, ended.stderr
    wrong = call("templates", "run", "chat")
    assert (wrong.exit_code, "pydantic" in wrong.stderr) == (2, False)
    assert call("templates", "run", "chat", "-p", "message").exit_code == 2
    assert call("templates", "show", "nothing").exit_code == 2


def test_agents_of_installed_packages_work_when_they_are_asked_for(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    about = site / "packed-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[holdfast.agents]\npacked = packed_agents:agent\n")
    code = "from holdfast.agents import Agent\nagent = Agent('packed', description='From afar.')\n"
    (site / "packed_agents.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))
    asked = ("run", "What is 2 plus 3?", "--agent", "packed", "--model", "offline", "--json")
    assert call(*asked).exit_code == 2
    ended = call(*asked, "--plugins")
    assert ended.exit_code == 0, ended.stderr
    assert json.loads(ended.stdout)["agent_name"] == "packed"
    (about / "entry_points.txt").write_text("[holdfast.agents]\nlost = packed_nowhere:agent\n")
    lost = call(*asked, "--plugins")
    assert (lost.exit_code, "packed_nowhere:agent" in lost.stderr) == (2, True)


def test_check_warns_of_rules_without_effect(project: Path) -> None:
    folder = project.parent / "home/agents"
    folder.mkdir(parents=True)
    rules = "permission: {'*': allow, read: {'*.csv': allow}, raed: deny}"
    (folder / "clerk.md").write_text(f"---\ndescription: d\n{rules}\n---\nWork.\n")
    found = json.loads(call("agents", "check", "--json").stdout)
    assert [(one["agent"], one["text"]) for one in found] == [
        ("clerk", "read *.csv allow"),
        ("clerk", "raed * deny"),
    ]
    assert "'read'" in found[1]["because"]
    (folder / "clerk.md").write_text("---\ndescription: d\ntools: [read]\n---\nWork.\n")
    assert "every rule has an effect." in call("agents", "check", "clerk").output


def test_check_names_a_file_that_cannot_be_used(project: Path) -> None:
    folder = project / ".holdfast" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bad.md").write_text("---\npermission: 7\n---\nx\n")
    ended = call("agents", "check")
    assert ended.exit_code == 1
    assert "bad.md:2" in ended.output
