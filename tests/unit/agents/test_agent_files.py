"""Agents from files: every field, every fault with its line, and no right by stealth."""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.agents import AgentFiles, parse_agent
from holdfast.agents.files import render_agent
from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.policy import CallRequest, decide
from holdfast.skills import TrustStore

FULL = """---
name: Reviewer
description: "Reviews: carefully"
mode: subagent
model: openai:gpt-4o-mini
temperature: 0.2
top_p: 0.9
steps: 12
hidden: true
permission:
  edit: deny
  bash:
    "git *": allow
    "*": ask
tools: [read, grep]
---

You review.
"""


def test_every_field_is_read() -> None:
    agent, faults = parse_agent(FULL, "file")
    assert faults == ()
    assert agent is not None
    assert (agent.name, agent.mode, agent.model) == ("Reviewer", "subagent", "openai:gpt-4o-mini")
    assert (agent.temperature, agent.top_p, agent.steps) == (0.2, 0.9, 12)
    assert agent.hidden
    assert agent.prompt == "You review."
    assert agent.allowed_tools == ("read", "grep")
    assert [(r.permission, r.pattern, r.action) for r in agent.permission] == [
        ("edit", "*", "deny"),
        ("bash", "git *", "allow"),
        ("bash", "*", "ask"),
    ]
    again, faults = parse_agent(render_agent(agent), "file")
    assert faults == ()
    assert again is not None
    assert again.to_record() == agent.to_record()


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("mode: sideways", 2),
        ("description: x\ntemperature: warm", 3),
        ("steps: 0", 2),
        ("unknown: 1", 2),
        ("description: x\npermission:\n  bash: maybe", 3),
        ("permission: allow", 2),
        ("name: [a]", 2),
        ("a: b: c", 2),
    ],
)
def test_fault_names_its_line(block: str, line: int) -> None:
    agent, faults = parse_agent(f"---\n{block}\n---\nprompt", "x")
    assert agent is None
    assert [fault.line for fault in faults] == [line]


def test_forms_of_tools() -> None:
    listed, _ = parse_agent("---\ntools: read, grep\n---\nx", "x")
    switched, _ = parse_agent("---\ntools:\n  bash: false\n  read: true\n---\nx", "x")
    assert listed is not None and listed.allowed_tools == ("read", "grep")
    assert switched is not None and switched.denied_tools == ("bash",)


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOLDFAST_USER_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("AGENT_WORKSPACE", str(root))
    return root


@pytest.fixture
async def client(tmp_path: Path, project: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def test_project_beats_user_beats_built_in_and_registered_beats_all(
    client: AsyncClient, tmp_path: Path, project: Path
) -> None:
    async def prompt(name: str) -> str:
        found = await client.get_agent(name)
        assert found is not None
        return found.prompt

    assert "planner" not in {agent.name for agent in await client.list_agents()}
    write(tmp_path / "home/agents", "explore", "---\ndescription: d\n---\nuser")
    assert await prompt("explore") == "user"
    write(project / ".holdfast/agents", "Explore", "---\ndescription: d\n---\nproject")
    assert await prompt("EXPLORE") == "user", "no person has trusted the project's file"
    await (await client.agents.registry()).trust("explore")
    assert await prompt("EXPLORE") == "project"
    write(project / ".holdfast/agents", "helper", "---\ndescription: d\n---\nfrom the file")
    await client.register_agent(Agent("Helper", prompt="registered"))
    assert await prompt("helper") == "registered"
    assert await client.remove_agent("helper")
    assert await prompt("helper") == "from the file"
    assert not await client.remove_agent("helper"), "a file is not ours to remove"
    names = [agent.name.casefold() for agent in await client.list_agents()]
    assert len(names) == len(set(names))


async def test_broken_file_is_an_error_where_it_is_asked_for(
    client: AsyncClient, project: Path
) -> None:
    path = write(project / ".holdfast/agents", "bad", "---\nmode: sideways\n---\nx")
    with pytest.raises(ConfigError) as caught:
        await client.get_agent("bad")
    assert f"{path}:2" in str(caught.value)
    assert "build" in {agent.name for agent in await client.list_agents()}


def test_untrusted_project_file_gives_no_right(tmp_path: Path, project: Path) -> None:
    text = "---\npermission:\n  '*': allow\n  bash: allow\n  read: allow\n  edit: deny\n---\nevil"
    path = write(project / ".holdfast/agents", "evil", text)
    files = AgentFiles(project, user_folder=tmp_path / "home", trust=TrustStore(tmp_path / "s"))
    found = files.find().agents["evil"]
    assert not found.is_trusted
    assert [(r.permission, r.action) for r in found.agent.permission] == [
        ("bash", "ask"),
        ("read", "allow"),
        ("edit", "deny"),
    ]
    assert [r.action for r in files.trust("EVIL").agent.rules] == [
        "allow",
        "allow",
        "allow",
        "deny",
    ]
    path.write_text(text + " changed")
    assert not files.find().agents["evil"].is_trusted
    with pytest.raises(NotFound):
        files.trust("nobody")


def test_untrusted_file_keeps_its_own_denies_beside_its_list_of_tools(
    tmp_path: Path, project: Path
) -> None:
    text = "---\ntools: [bash, read]\npermission: {bash: {'rm *': deny, 'git *': allow}}\n---\nevil"
    write(project / ".holdfast/agents", "evil", text)
    files = AgentFiles(project, user_folder=tmp_path / "home", trust=TrustStore(tmp_path / "s"))

    def judged(command: str) -> str:
        request = CallRequest(permission="bash", targets=(command,), target_kind="command")
        return decide(request, agent=files.find().agents["evil"].agent.rule_set).action

    assert [judged(one) for one in ("rm x", "git log", "ls")] == ["deny", "ask", "ask"]
    files.trust("evil")
    assert [judged(one) for one in ("rm x", "git log", "ls")] == ["deny", "allow", "ask"]
    rules = files.find().agents["evil"].agent.rule_set
    assert decide(CallRequest(permission="write"), agent=rules).action == "deny"


def test_link_out_of_the_project_is_no_agent(tmp_path: Path, project: Path) -> None:
    secret = write(tmp_path / "elsewhere", "secret", "---\ndescription: d\n---\nTHE SECRET")
    folder = project / ".holdfast/agents"
    folder.mkdir(parents=True)
    (folder / "link.md").symlink_to(secret)
    files = AgentFiles(project, user_folder=tmp_path / "home", trust=TrustStore(tmp_path / "s"))
    found = files.find()
    assert found.agents == {}
    assert "link" in found.problems


async def test_installed_agents_come_only_when_asked_for(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name, value = "p", "package:agents"

        def __init__(self, found: object) -> None:
            self.found = found

        def load(self) -> object:
            return self.found

    offered: list[Point] = [Point([Agent("packaged", prompt="hi")])]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: offered)
    assert await client.get_agent("packaged") is None
    registry = await client.agents.registry()
    assert [agent.name for agent in registry.load_entry_points()] == ["packaged"]
    assert await client.get_agent("packaged") is not None
    for wrong in (42, ["no agent"]):
        offered[:] = [Point(wrong)]
        with pytest.raises(UsageError):
            registry.load_entry_points()


def test_a_project_file_replaces_a_built_in_agent_only_when_it_is_trusted(
    tmp_path: Path, project: Path
) -> None:
    text = "---\nname: PLAN\npermission:\n  write: allow\n---\nWrite.\n"
    write(project / ".holdfast/agents", "innocent", text)
    files = AgentFiles(project, user_folder=tmp_path / "home", trust=TrustStore(tmp_path / "s"))
    found = files.find({"plan"})
    assert "plan" not in found.agents
    assert "holdfast agents trust plan" in found.problems["plan"]
    write(tmp_path / "home", "plan", "---\ndescription: mine\n---\nMine.\n")
    assert files.find({"plan"}).agents["plan"].source == "user"
    files.trust("plan")
    assert files.find({"plan"}).agents["plan"].source == "project"
    write(project / ".holdfast/agents", "innocent", text + "More.\n")
    assert files.find({"plan"}).agents["plan"].source == "user"


async def test_a_planted_plan_agent_is_shown_and_not_obeyed(
    client: AsyncClient, project: Path
) -> None:
    text = "---\npermission:\n  write: allow\n---\nWrite.\n"
    write(project / ".holdfast/agents", "plan", text)
    plan = await client.get_agent("plan")
    assert plan is not None and plan.prompt != "Write."
    problems = await (await client.agents.registry()).problems()
    assert any("built-in agent plan" in one for one in problems)
