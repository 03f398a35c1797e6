"""Agents from configuration, with services put in; templates for common jobs."""

from __future__ import annotations

import jsonschema
import pytest

from holdfast.agents import AgentFactory, find_template, list_builtin_templates
from holdfast.agents.factory import AgentBuilder
from holdfast.errors import AlreadyExists, NotFound, UsageError
from holdfast.testing import ScriptedModel
from holdfast.tools import Tool, tool


class Database:
    rows = 3


def count_tool(database: Database) -> Tool:
    @tool(effect="read")
    async def count() -> int:
        """Count the rows."""
        return database.rows

    return count


@tool(effect="read")
async def plain() -> str:
    """Do nothing."""
    return ""


def test_factory_makes_tools_from_services() -> None:
    factory = AgentFactory().provide(Database, Database()).offer("count", count_tool)
    agent = factory.offer("plain", plain).create(
        {"name": "a", "tools": ["count", "plain"], "permission": [{"permission": "bash"}]}
    )
    assert [one.name for one in agent.tools] == ["count", "plain"]
    assert agent.permission[0].action == "ask"
    assert factory.service(Database).rows == 3


def test_what_is_missing_is_named() -> None:
    factory = AgentFactory().offer("count", count_tool)
    with pytest.raises(NotFound):
        factory.create({"name": "a", "tools": ["count"]})
    with pytest.raises(NotFound):
        factory.create({"name": "a", "tools": ["unknown"]})
    with pytest.raises(AlreadyExists):
        factory.offer("count", plain)
    with pytest.raises(UsageError):
        factory.provide(Database, "no database")  # type: ignore[arg-type]
    factory.offer("untyped", lambda database: plain)
    with pytest.raises(UsageError):
        factory.create({"name": "a", "tools": ["untyped"]})
    factory.offer("wrong", lambda: "no tool")  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError):
        factory.create({"name": "a", "tools": ["wrong"]})


def test_every_mistake_is_named_before_anything_is_made() -> None:
    with pytest.raises(UsageError) as caught:
        AgentFactory().create({"name": "", "steps": 0, "temperature": 9, "colour": "red"})
    for name in ("name", "steps", "temperature", "colour"):
        assert name in str(caught.value)


def test_builder_puts_an_agent_together() -> None:
    model = ScriptedModel("x")
    factory = AgentFactory().provide(Database, Database()).offer("count", count_tool)
    agent = (
        factory.builder("a")
        .configure(prompt="Hi.", steps=3)
        .model(model)
        .rule("bash", "deny")
        .tool(plain, "count")
        .output(dict)
        .build()
    )
    assert (agent.prompt, agent.steps, agent.model) == ("Hi.", 3, model)
    assert {one.name for one in agent.tools} == {"plain", "count"}
    assert agent.output is dict
    assert AgentBuilder("b").model("openai:x").build().model == "openai:x"


EXAMPLES: dict[str, dict[str, object]] = {
    "chat": {"message": "hi", "language": "German"},
    "research": {"question": "why?", "depth": "thorough"},
    "code": {"task": "mend it", "check": "make test"},
    "code-review": {"target": "src", "focus": "races"},
    "data-analysis": {"files": ["a.csv"], "question": "mean?"},
    "documents": {"files": ["a.pdf"], "task": "compare", "output": "b.md"},
    "orchestrator": {"goal": "ship it"},
}


@pytest.mark.parametrize("name", sorted(list_builtin_templates()))
def test_template_is_complete(name: str) -> None:
    template = find_template(name.upper())
    given = EXAMPLES[name]
    jsonschema.validate(given, template.schema)
    message = template.message(given)
    assert all(str(v) in message for v in given.values() if isinstance(v, str) and v != "thorough")
    agent = template.agent(model="openai:gpt-4o-mini")
    assert agent.prompt
    assert agent.model == "openai:gpt-4o-mini"
    estimate = template.estimate("openai:gpt-4o-mini", given)
    assert estimate.cost_usd is not None and estimate.cost_usd > 0
    assert template.estimate("nobody:nothing").cost_usd is None
    with pytest.raises(UsageError):
        template.message({"nonsense": 1})


def test_template_without_tools_sees_none() -> None:
    agent = find_template("chat").agent()
    assert not any(agent.chooses(name, "path") for name in ("read", "bash", "task"))


def test_unknown_template_is_not_found() -> None:
    with pytest.raises(NotFound):
        find_template("nothing")
