"""An agent has exactly the tools that it was given. (5.1, 5.15)"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool, toolset
from holdfast.agents import Agent as PlainAgent
from holdfast.errors import AgentToolMissing, AlreadyExists, NotFound, UsageError
from holdfast.skills import Skill
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import Tool

ALLOW_ALL = [{"permission": "*", "action": "allow"}]


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool(effect="read")
async def look(name: str) -> str:
    """Look something up."""
    return f"seen {name}"


async def offered(client: AsyncClient, agent: Agent | str, **more: object) -> list[str]:
    model = ScriptedModel("fine")
    await client.execute_agent(agent, "", "go", model=model, **more)  # type: ignore[arg-type]
    return [spec.name for spec in model.requests[0].tools]


@pytest.mark.parametrize("rules", [[], ALLOW_ALL])
async def test_given_tools_are_all_that_it_has(tmp_path: Path, rules: list[dict[str, str]]) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_tool(look)
        assert await offered(client, Agent("a", tools=[multiply], permission=rules)) == ["multiply"]
        assert await offered(client, Agent("a", tools=[], permission=rules)) == []


async def test_without_tools_rules_and_lists_choose(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_tool(look)
        await client.register_tool(multiply)
        assert await offered(client, Agent("a")) == []
        assert await offered(client, Agent("a", allowed_tools=["look", "grep"])) == ["grep", "look"]
        rules = [
            {"permission": "calculator", "action": "allow"},
            {"permission": "multi_ply", "action": "ask"},
            {"permission": "read", "action": "deny"},
        ]
        assert await offered(client, Agent("a", permission=rules)) == ["calculator", "multiply"]
        paths = [{"permission": "path", "pattern": "src/**", "action": "allow"}]
        assert {"read", "write"} <= set(await offered(client, Agent("a", permission=paths)))
        assert "bash" not in await offered(client, Agent("a", permission=paths))
        both = Agent("a", permission=ALLOW_ALL, allowed_tools=["read"])
        assert await offered(client, both) == ["read"]


async def test_what_is_not_offered_cannot_be_called(tmp_path: Path) -> None:
    model = ScriptedModel([tool_call("bash", command="ls"), tool_call("look", name="x")], "ok")
    async with AsyncClient(tmp_path) as client:
        await client.register_tool(look)
        await Agent("a", model=model, tools=[multiply], permission=ALLOW_ALL).run(
            "go", client=client
        )
    parts = model.requests[1].messages[-1].tool_calls
    assert ["there is no such tool" in part.error for part in parts] == [True, True]


async def test_toolsets_come_by_name(tmp_path: Path) -> None:
    reading = ["glob", "grep", "list", "read"]
    async with AsyncClient(tmp_path) as client:
        agent = Agent("a", tools=[multiply, *toolset("files:read")])
        assert await offered(client, agent) == sorted([*reading, "multiply"])
        coding = await offered(client, Agent("a", tools=toolset("coding")))
        assert {*reading, "bash", "edit", "write", "todowrite"} <= set(coding)
        assert await offered(client, Agent("a", tools=toolset("memory"))) == ["recall", "remember"]
        assert "general" in (await _task(client)).description
    assert [one.name for one in toolset("web")] == ["webfetch", "websearch"]
    with pytest.raises(NotFound) as raised:
        toolset("file:read")
    assert "files:read" in raised.value.hint


async def _task(client: AsyncClient) -> Tool | object:
    model = ScriptedModel("fine")
    await Agent("a", model=model, tools=toolset("agents")).run("go", client=client)
    [spec] = model.requests[0].tools
    return spec


async def test_a_toolset_is_what_the_runtime_has_configured(tmp_path: Path) -> None:
    class Web:
        name = "web"

        async def search(self, query: str, *, limit: int, http: object) -> list[object]:
            return []

    async with AsyncClient(tmp_path) as client:
        await client.tools.use_search(web=Web())  # type: ignore[arg-type]
        model = ScriptedModel(tool_call("websearch", query="x"), "ok")
        await Agent("a", model=model, tools=toolset("web")).run("go", client=client)
        assert model.requests[1].messages[-1].tool_calls[0].state == "completed"


async def test_the_same_object_is_one_tool_and_another_is_refused(tmp_path: Path) -> None:
    @tool(name="look")
    async def other(name: str) -> str:
        """Look elsewhere."""
        return name

    async with AsyncClient(tmp_path) as client:
        await client.register_tool(look)
        assert await offered(client, Agent("a", tools=[look])) == ["look"]
        with pytest.raises(AlreadyExists):
            await offered(client, Agent("a", tools=[other]))


async def test_the_name_of_a_built_in_tool_is_free(tmp_path: Path) -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page of the book."""
        return f"page {page}"

    model = ScriptedModel(tool_call("read", page=3), "ok")
    async with AsyncClient(tmp_path) as client:
        await Agent("a", model=model, tools=[read]).run("go", client=client)
    assert model.requests[1].messages[-1].tool_calls[0].output == "page 3"


async def test_a_name_that_no_tool_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(NotFound) as raised:
            await offered(client, Agent("a", allowed_tools=["raed"]))
        assert "'read'" in raised.value.hint
        assert await offered(client, Agent("a", allowed_tools=["raed*"])) == []


async def test_a_misspelt_name_is_refused_beside_given_tools_too(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(NotFound) as raised:
            await offered(client, Agent("a", tools=[multiply], allowed_tools=["multipy"]))
        assert raised.value.context["nearest"] == "multiply"
        given = Agent("a", tools=[multiply, look], allowed_tools=["multiply"])
        assert await offered(client, given) == ["multiply"]


def plain(a: int) -> int:
    """A function that was not made a tool."""
    return a


@pytest.mark.parametrize(
    ("given", "advice"),
    [("read", "toolset("), (plain, "@tool"), (Agent("other"), ".as_tool()"), (7, "@tool")],
)
def test_what_is_no_tool_is_refused_with_what_makes_it_one(given: object, advice: str) -> None:
    with pytest.raises(UsageError, match="which is no tool") as raised:
        Agent("a", tools=[given])  # type: ignore[list-item]
    assert advice in str(raised.value)


async def test_skills_of_the_application_bring_their_tool(tmp_path: Path) -> None:
    skill = Skill(name="pdf", description="Fill forms.", content="Use pdftk.")
    async with AsyncClient(tmp_path) as client:
        await client.skills.register(skill)
        assert await offered(client, Agent("a", tools=[multiply])) == ["multiply", "skill"]


# --- the record of a registered agent ----------------------------------------------------


async def test_a_process_that_lacks_a_tool_refuses_the_agent_and_names_it(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        tools = [multiply, *toolset("files:read")]
        await client.register_agent(Agent("clerk", model="offline", tools=tools))
        assert "multiply" in await offered(client, "clerk")
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(AgentToolMissing) as raised:
            await offered(client, "clerk")
        assert raised.value.context["value"] == "multiply"
        await client.register_tool(multiply)
        found = await offered(client, "clerk")
        assert found == ["glob", "grep", "list", "multiply", "read"]
        again = await client.agents.get_definition("clerk")
        assert again is not None and again.has_tools
        assert {one.name for one in again.required_tools} == {*found}


async def test_a_tool_of_the_same_name_with_another_schema_is_another(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("clerk", tools=[multiply]))

    @tool(name="multiply")
    async def other(numbers: list[int]) -> int:
        """Multiply many numbers."""
        return 0

    async with AsyncClient(tmp_path) as client:
        await client.register_tool(other)
        with pytest.raises(AgentToolMissing):
            await offered(client, "clerk")


async def test_a_resumed_run_of_a_registered_agent_needs_its_tools(tmp_path: Path) -> None:
    @tool(permission="ask")
    async def refund(order: str) -> str:
        """Pay back."""
        return f"paid {order}"

    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("clerk", tools=[refund]))
        model = ScriptedModel(tool_call("refund", order="A"))
        parked = await client.execute_agent(
            "clerk", "", "go", run_id="job", model=model, on_ask="park"
        )
        assert parked.status == "parked"
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(AgentToolMissing):
            await client.execute_agent("clerk", "", "", run_id="job", model=ScriptedModel("x"))


def test_an_agent_without_tools_keeps_none_and_an_old_record_loads() -> None:
    assert PlainAgent("a").to_record().tools is None
    assert PlainAgent.from_record(PlainAgent("a").to_record()).has_tools is False
    empty = PlainAgent.from_record(PlainAgent("a", tools=[]).to_record())
    assert (empty.has_tools, empty.tools) == (True, ())
    wrapped = PlainAgent.from_record(PlainAgent("a", tools=[look]).to_record()).wrapped(prompt="x")
    assert [one.name for one in wrapped.required_tools] == ["look"]


async def test_an_agent_of_a_file_has_what_its_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home/agents"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOLDFAST_USER_DIR", str(tmp_path / "home"))
    for name, lines in {
        "bare": "",
        "listed": "tools: [read, grep]\n",
        "switched": "tools: {read: true, bash: false}\n",
        "ruled": "permission: {read: allow, bash: ask}\n",
    }.items():
        (folder / f"{name}.md").write_text(f"---\ndescription: d\n{lines}---\nWork.\n")
    async with AsyncClient(tmp_path / "state") as client:
        assert await offered(client, "bare") == []
        assert await offered(client, "listed") == ["grep", "read"]
        assert await offered(client, "switched") == ["read"]
        assert await offered(client, "ruled") == ["bash", "read"]
