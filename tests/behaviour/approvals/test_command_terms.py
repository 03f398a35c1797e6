"""Consent at the command line: nested agents, several people, age, edits and rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import Agent, AsyncClient, toolset
from holdfast.cli.app import root
from holdfast.messages import ToolPart
from holdfast.runs.lineage import Lineage
from holdfast.testing import ScriptedModel, tool_call

ASKS = [{"permission": "write", "pattern": "*", "action": "ask"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.txt").write_text("old\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    return place


async def holdfast(*words: str, code: int = 0) -> Result:
    ended = await asyncio.to_thread(CliRunner().invoke, root, list(words))
    assert ended.exit_code == code, ended.output + ended.stderr
    return ended


def write(text: str = "new\n", path: str = "a.txt") -> ToolPart:
    return tool_call("write", file_path=path, content=text)


class Job:
    """A run that parks before it writes; it can be resumed with a new client."""

    def __init__(self, *answers: object) -> None:
        model = ScriptedModel(*(answers or (write(), "done")))  # type: ignore[arg-type]
        self.agent = Agent("helper", model=model, permission=ASKS)

    async def go(self, session: str = "") -> str:
        async with AsyncClient() as client:
            result = await client.execute_agent(
                self.agent, session, "go", run_id="job", on_ask="park"
            )
            return str(result.status)


async def waiting() -> dict[str, object]:
    [row] = json.loads((await holdfast("approvals", "list", "--json")).stdout)
    return dict(row)


async def test_agent_is_shown_with_everybody_above_it_and_the_seal_holds_that(
    folder: Path,
) -> None:
    async with AsyncClient() as client:
        above = Lineage(session_id="ses_lead", path=("lead", "planner"))
        nested = await client.create_session(
            "nested", directory=str(folder), metadata=above.to_metadata()
        )
    job = Job()
    assert await job.go(nested.id) == "parked"
    row = await waiting()
    assert row["agent"] == "lead/planner/helper"
    shown = await holdfast("approvals", "show", str(row["id"]))
    assert "lead/planner/helper" in shown.stdout
    assert "-old" in shown.stdout and "+new" in shown.stdout
    details = json.loads((await holdfast("approvals", "show", str(row["id"]), "--json")).stdout)
    await holdfast("approvals", "approve", str(row["id"]), "--by", "ada")
    assert await job.go(nested.id) == "completed"
    assert (folder / "a.txt").read_text() == "new\n"
    # The same call of the same agent without the others above it has another seal.
    (folder / "a.txt").write_text("old\n")
    async with AsyncClient() as client:
        plain = await client.create_session("plain", directory=str(folder))
        agent = Agent("helper", model=ScriptedModel(write(), "done"), permission=ASKS)
        await client.execute_agent(agent, plain.id, "go", run_id="other", on_ask="park")
    other = json.loads(
        (await holdfast("approvals", "show", str((await waiting())["id"]), "--json")).stdout
    )
    assert other["seal"] != details["seal"]


async def test_two_people_have_to_consent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_APPROVALS__REQUIRED", "2")
    job = Job()
    assert await job.go() == "parked"
    item = str((await waiting())["id"])
    assert "people needed" in (await holdfast("approvals", "show", item)).stdout
    await holdfast("approvals", "approve", item, "--by", "ada")
    await holdfast("approvals", "approve", item, "--by", " ADA ", code=6)
    await holdfast("approvals", "approve", item, "--by", "bob", "--always", code=2)
    assert await job.go() == "parked"
    assert (folder / "a.txt").read_text() == "old\n"
    await holdfast("approvals", "approve", item, "--by", "bob")
    assert await job.go() == "completed"
    assert (folder / "a.txt").read_text() == "new\n"


async def test_consent_that_comes_too_late_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_APPROVALS__EXPIRES_AFTER_S", "0.001")
    job = Job(write(), write(), "done")
    assert await job.go() == "parked"
    everything = json.loads((await holdfast("approvals", "list", "--all", "--json")).stdout)
    assert [row["waits for"] for row in everything] == ["expired"]
    await holdfast("approvals", "approve", everything[0]["id"], "--by", "ada", code=6)
    assert await job.go() == "parked"  # asked again
    assert (folder / "a.txt").read_text() == "old\n"


async def test_edited_arguments_run_and_a_refusal_reaches_the_model(folder: Path) -> None:
    job = Job(write(), write("third\n", "b.txt"), "done")
    assert await job.go() == "parked"
    edited = json.dumps({"file_path": "a.txt", "content": "edited\n"})
    await holdfast("approvals", "approve", str((await waiting())["id"]), "--edit", "[1]", code=2)
    await holdfast("approvals", "approve", str((await waiting())["id"]), "--edit", "{}", code=1)
    await holdfast("approvals", "approve", str((await waiting())["id"]), "--edit", edited)
    assert await job.go() == "parked"
    assert (folder / "a.txt").read_text() == "edited\n"
    await holdfast("approvals", "deny", str((await waiting())["id"]), "--reason", "not there")
    assert await job.go() == "completed"
    assert not (folder / "b.txt").exists()
    model = job.agent.model
    assert isinstance(model, ScriptedModel)
    assert "not there" in model.requests[-1].messages[-1].tool_calls[0].error


async def test_always_writes_a_rule_that_holds_for_this_target_only(folder: Path) -> None:
    job = Job(write("one\n"), write("two\n"), write("other\n", "b.txt"), "done")
    assert await job.go() == "parked"
    item = str((await waiting())["id"])
    assert "--always writes" in (await holdfast("approvals", "show", item)).stdout
    await holdfast("approvals", "approve", item, "--always")
    assert await job.go() == "parked"
    assert (folder / "a.txt").read_text() == "two\n"
    row = await waiting()
    assert "b.txt" in str(row["what"])


async def test_what_is_special_about_a_call_is_said(folder: Path) -> None:
    job = Job(*[tool_call("read", file_path="a.txt")] * 3, "done")
    job.agent = job.agent.wrapped(tools=toolset("files:read"))
    assert await job.go() == "parked"
    shown = await holdfast("approvals", "show", str((await waiting())["id"]))
    assert "the same call for at least the third time in a row" in " ".join(shown.stdout.split())
