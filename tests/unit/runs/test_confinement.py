"""A place in which nobody can work is told before anybody is asked; rules follow their agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.errors import UsageError
from holdfast.runs.confinement import Confinement
from holdfast.testing import ScriptedModel


async def test_a_run_in_a_directory_that_is_gone_asks_no_model(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    model = ScriptedModel("never asked")
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("s", directory=place)
        place.rmdir()
        result = await Agent("a", model=model).run(
            "go", session=session.id, client=client, raise_on_failure=False
        )
    assert (result.status, result.metadata["error"]["code"]) == ("failed", UsageError.code)
    assert not model.requests


def test_what_cannot_be_a_workspace_is_refused_by_a_look(tmp_path: Path) -> None:
    confinement = Confinement()
    confinement.check_directory(str(tmp_path))
    (tmp_path / "file").write_text("")
    (tmp_path / "all").symlink_to("/")
    for wrong in (tmp_path / "missing", tmp_path / "file", tmp_path / "all", "/"):
        with pytest.raises(UsageError):
            confinement.check_directory(str(wrong))


def test_rules_of_an_agent_are_one_set_until_they_change() -> None:
    agent = Agent("a", allowed_tools=["read"])
    known = agent.rule_set
    assert agent.rule_set is known
    agent.denied_tools = ("read",)
    told = [rule.action for rule in agent.rule_set.every_rule if rule.permission in ("*", "read")]
    assert told == ["deny", "allow", "deny"]
    listed: list[str] = ["read"]
    agent.denied_tools = listed  # type: ignore[assignment]
    before = agent.rules
    listed.append("write")
    assert len(agent.rules) == len(before) + 1
