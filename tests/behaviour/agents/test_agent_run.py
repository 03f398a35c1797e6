"""An agent runs in a real session: tools, answers, limits, cancellation, resumption."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import AlreadyExists, LLMOverloaded, NotFound, UsageError
from holdfast.messages import Message, ToolPart
from holdfast.providers.model import TextDelta
from holdfast.runs import AgentRuntime
from holdfast.sessions import PermissionRule
from holdfast.testing import ModelReply, ScriptedModel, run_services, tool_call
from holdfast.tools import ToolRegistry
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


def calls_of(messages: tuple[Message, ...]) -> list[ToolPart]:
    return [part for message in messages for part in message.tool_calls]


async def test_tool_result_goes_back_to_the_model_as_a_tool_message(client: AsyncClient) -> None:
    model = ScriptedModel(tool_call("add", a=2, b=3), "It is 5.")
    result = await Agent("adder", model=model, tools=[add]).run("2 + 3?", client=client)
    assert (result.response, result.status, result.tools_used) == (
        "It is 5.",
        "completed",
        ("add",),
    )
    second = model.requests[1].messages
    assert [message.role for message in second] == ["user", "assistant", "tool"]
    [answer] = second[2].tool_calls
    assert (answer.state, answer.output, answer.call_id) == (
        "completed",
        "5",
        second[1].tool_calls[0].call_id,
    )


async def test_context_that_was_built_is_what_the_model_gets(client: AsyncClient) -> None:
    model = ScriptedModel("fine")
    await Agent("a", model=model, prompt="Be brief.", tools=[add]).run("hello", client=client)
    [request] = model.requests
    assert request.system.startswith("Be brief.")
    assert "add" in {spec.name for spec in request.tools}
    assert request.messages[-1].text == "hello"


async def test_parallel_calls_give_results_in_the_order_of_the_calls(client: AsyncClient) -> None:
    first_may_end = asyncio.Event()

    @tool(effect="read")
    async def wait_for_other(name: str) -> str:
        """Wait for the other call."""
        if name == "second":
            first_may_end.set()
        await first_may_end.wait()
        return name

    model = ScriptedModel(
        [tool_call("wait_for_other", name="first"), tool_call("wait_for_other", name="second")],
        "done",
    )
    await Agent("a", model=model, tools=[wait_for_other]).run("go", client=client)
    results = calls_of(model.requests[1].messages[-1:])
    assert [part.output for part in results] == ["first", "second"]


async def test_history_of_the_session_is_sent_with_the_next_turn(client: AsyncClient) -> None:
    session = await client.create_session("talk")
    model = ScriptedModel("one", "two")
    agent = Agent("a", model=model)
    await agent.run("first", session=session.id, client=client)
    await agent.run("second", session=session.id, client=client)
    assert [m.text for m in model.requests[1].messages] == ["first", "one", "second"]


async def test_an_unknown_tool_is_answered_with_those_that_may_be_called(
    client: AsyncClient,
) -> None:
    model = ScriptedModel(tool_call("zzz"), "done")
    agent = Agent("reader", model=model, allowed_tools=["read", "grep"])
    await agent.run("go", client=client)
    [part] = model.requests[1].messages[-1].tool_calls
    assert "there are: grep, read." in part.error


async def test_unknown_tool_and_bad_arguments_are_told_to_the_model(client: AsyncClient) -> None:
    model = ScriptedModel([tool_call("ad", a=1, b=2), tool_call("add", a="one", b=2)], "I see.")
    result = await Agent("a", model=model, tools=[add]).run("go", client=client)
    missing, wrong = calls_of(model.requests[1].messages[-1:])
    assert missing.state == wrong.state == "error"
    assert "add" in missing.error
    assert result.status == "completed"


async def test_tool_that_raises_or_exits_does_not_take_the_run_down(client: AsyncClient) -> None:
    @tool(effect="read")
    async def explode(how: str) -> str:
        """Fail."""
        if how == "exit":
            raise SystemExit(3)
        raise RuntimeError("boom")

    model = ScriptedModel([tool_call("explode", how="x"), tool_call("explode", how="exit")], "ok")
    result = await Agent("a", model=model, tools=[explode]).run("go", client=client)
    assert result.response == "ok"
    assert all(part.state == "error" for part in calls_of(model.requests[1].messages[-1:]))


async def test_denied_tool_is_hidden_and_refused_at_the_call(client: AsyncClient) -> None:
    rules = [{"permission": "add", "pattern": "*", "action": "deny"}]
    model = ScriptedModel(tool_call("add", a=1, b=2), "no")
    await Agent("a", model=model, tools=[add], permission=rules).run("go", client=client)
    assert "add" not in {spec.name for spec in model.requests[0].tools}
    [refused] = calls_of(model.requests[1].messages[-1:])
    assert refused.state == "error"


@pytest.mark.parametrize(
    ("written", "states"),
    [
        ((), ("completed", "completed")),
        (({"permission": "visit", "pattern": "rome", "action": "deny"},), ("error", "completed")),
        (({"permission": "vis*", "action": "ask"},), ("error", "error")),
        (({"permission": "*", "action": "allow"},), ("completed", "completed")),
    ],
)
async def test_written_rules_narrow_the_tools_that_an_agent_has_and_open_no_other(
    client: AsyncClient, written: Sequence[Mapping[str, str]], states: tuple[str, str]
) -> None:
    @tool(target="city")
    async def visit(city: str) -> str:
        """Go somewhere."""
        return f"in {city}"

    model = ScriptedModel(
        [tool_call("visit", city="rome"), tool_call("visit", city="oslo"), tool_call("add")], "ok"
    )
    agent = Agent("a", model=model, tools=[visit, add], allowed_tools=["visit"], permission=written)
    await agent.run("go", client=client)
    assert [spec.name for spec in model.requests[0].tools] == ["visit"]
    calls = calls_of(model.requests[1].messages[-1:])
    assert [call.state for call in calls] == [*states, "error"]


class _Says:
    def __init__(self, verdict: str) -> None:
        self.verdict = verdict
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(request)
        if self.verdict == "nobody":
            return None
        return ApprovalAnswer(
            verdict="allow" if self.verdict == "allow" else "deny", by="tester", reason="because"
        )


@pytest.mark.parametrize(("verdict", "done"), [("allow", 1), ("deny", 0), ("nobody", 0)])
async def test_call_that_asks_runs_only_with_consent(
    client: AsyncClient, verdict: str, done: int
) -> None:
    deleted = []

    @tool(permission="ask")
    async def delete(path: str) -> str:
        """Delete a file."""
        deleted.append(path)
        return "gone"

    model = ScriptedModel(tool_call("delete", path="a.txt"), "ok")
    approver = _Says(verdict)
    await Agent("a", model=model, tools=[delete], approve=approver).run("go", client=client)
    assert len(deleted) == done
    assert [request.arguments for request in approver.asked] == [{"path": "a.txt"}]


async def test_sessions_own_rule_lifts_the_ask_but_never_a_deny(client: AsyncClient) -> None:
    @tool(permission="ask")
    async def delete(path: str) -> str:
        """Delete a file."""
        return "gone"

    allow = PermissionRule(permission="delete", action="allow")
    session = await client.create_session("trusted", permission=[allow])
    for rules, state in (
        ([], "completed"),
        ([{"permission": "delete", "action": "deny"}], "error"),
    ):
        model = ScriptedModel(tool_call("delete", path="a"), "ok")
        agent = Agent("a", model=model, tools=[delete], permission=rules)
        await agent.run("go", session=session.id, client=client)
        assert calls_of(model.requests[1].messages[-1:])[0].state == state


async def test_third_equal_call_in_a_row_asks_for_doom_loop(client: AsyncClient) -> None:
    same = [tool_call("add", a=1, b=1)] * 3
    model = ScriptedModel(*same, "enough")
    approver = _Says("deny")
    await Agent("a", model=model, tools=[add], approve=approver).run("go", client=client)
    assert [request.permission for request in approver.asked] == ["doom_loop"]
    states = [calls_of(request.messages[-1:])[0].state for request in model.requests[1:]]
    assert states == ["completed", "completed", "error"]


async def test_run_stops_when_its_steps_are_used_up(client: AsyncClient) -> None:
    calls = [tool_call("add", a=1, b=n) for n in range(5)]
    model = ScriptedModel(*calls)
    result = await Agent("a", model=model, tools=[add], steps=3).run(
        "go", client=client, raise_on_failure=False
    )
    assert result.status == "failed"
    assert result.metadata["error"]["code"] == "budget.exceeded"
    assert len(model.requests) == 3


class Weather(BaseModel):
    city: str
    degrees: int


async def test_structured_output_is_asked_for_again_until_it_fits(client: AsyncClient) -> None:
    model = ScriptedModel("sunny", '```json\n{"city": "Rome", "degrees": 20}\n```')
    result = await Agent("a", model=model, output=Weather).run("weather?", client=client)
    assert result.output == Weather(city="Rome", degrees=20)
    assert model.requests[0].output_schema == Weather.model_json_schema()


async def test_output_can_be_described_by_a_json_schema(client: AsyncClient) -> None:
    degrees = {"degrees": {"type": "integer"}}
    schema = {"type": "object", "required": ["degrees"], "properties": degrees}
    model = ScriptedModel('{"degrees": "20"}', '{"degrees": 20}')
    result = await Agent("a", model=model, output=schema).run("weather?", client=client)
    assert (result.status, result.output) == ("completed", {"degrees": 20})
    assert model.requests[0].output_schema == schema
    assert "degrees" in model.requests[1].messages[-1].text


class Branch(BaseModel):
    """A branch with branches."""

    twigs: list[Branch] = []


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (list[Weather], '[{"city": "Rome", "degrees": 20}]', [Weather(city="Rome", degrees=20)]),
        (Weather | None, "null", None),
        (Literal["yes", "no"], '"yes"', "yes"),
        ({"type": "array", "items": {"type": "integer"}}, "[3]", [3]),
    ],
)
@pytest.mark.parametrize("form", ["%s", '{"value": %s}', '```json\n{"value": %s}\n```'])
async def test_an_output_that_is_no_object_is_asked_for_as_one(
    client: AsyncClient, kind: Any, answer: str, value: object, form: str
) -> None:
    model = ScriptedModel(form % answer)
    result = await Agent("a", model=model, output=kind).run("what?", client=client)
    assert (result.status, result.output) == ("completed", value)
    schema = model.requests[0].output_schema
    assert schema is not None
    assert (schema["type"], list(schema["properties"])) == ("object", ["value"])


async def test_a_type_that_contains_itself_is_asked_for_as_an_object(client: AsyncClient) -> None:
    model = ScriptedModel('{"twigs": [{}]}')
    result = await Agent("a", model=model, output=Branch).run("what?", client=client)
    assert result.output == Branch(twigs=[Branch()])
    assert model.requests[0].output_schema is not None
    assert model.requests[0].output_schema["type"] == "object"


Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    items: list[Item]


async def test_the_name_of_a_type_is_one_that_providers_take(client: AsyncClient) -> None:
    model = ScriptedModel('{"items": [1]}')
    result = await Agent("a", model=model, output=Page[int]).run("what?", client=client)
    assert result.output == Page[int](items=[1])
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", model.requests[0].output_name)


async def test_an_ended_run_whose_answer_has_another_type_says_so(client: AsyncClient) -> None:
    await Agent("a", model=ScriptedModel("sunny")).run("weather?", run_id="r", client=client)
    with pytest.raises(UsageError):
        await Agent("a", output=Weather).run("weather?", run_id="r", client=client)


@pytest.mark.parametrize(
    "fields",
    [
        {"output": {"type": "objekt"}},
        {"output": {"$ref": "#/$defs/nobody"}},
        {"name": "a/b"},
        {"name": " "},
        {"name": "a\nb"},
        {"output": 5},
        {"output": {"type": {1, 2}}},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"prompt": 5},
        {"model": 5},
        {"approve": 5},
        {"allowed_tools": "bash"},
        {"denied_tools": [5]},
        {"name": 5},
        {"steps": "many"},
        {"steps": 2.5},
        {"budget": 5},
        {"options": [1]},
        {"tools": add},
    ],
)
def test_an_agent_that_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Agent(**{"name": "a", **fields})


@pytest.mark.parametrize(("agent", "message"), [("build", None), ("build", ["hi"]), (5, "hi")])
async def test_a_run_of_something_else_than_an_agent_on_a_text_is_refused(
    client: AsyncClient, agent: Any, message: Any
) -> None:
    with pytest.raises(UsageError):
        await client.execute_agent(agent, "", message)
    assert (await client.list_sessions()).items == ()


async def test_a_run_with_something_else_than_a_model_is_refused(client: AsyncClient) -> None:
    wanted: Any = 5
    with pytest.raises(UsageError):
        await client.execute_agent("build", "", "hi", model=wanted)
    assert (await client.list_sessions()).items == ()


async def test_output_that_never_fits_fails_after_two_corrections(client: AsyncClient) -> None:
    model = ScriptedModel("a", "b", "c", "d")
    result = await Agent("a", model=model, output=Weather).run(
        "weather?", client=client, raise_on_failure=False
    )
    assert (result.status, len(model.requests)) == ("failed", 3)


async def test_provider_failure_is_recorded_and_the_session_stays_usable(
    client: AsyncClient,
) -> None:
    session = await client.create_session("talk")
    model = ScriptedModel(LLMOverloaded(provider="test", detail="busy"), "back again")
    agent = Agent("a", model=model)
    failed = await agent.run("hello", session=session.id, client=client, raise_on_failure=False)
    assert failed.metadata["error"]["code"] == "llm.overloaded"
    assert (await agent.run("again", session=session.id, client=client)).response == "back again"


async def test_stream_yields_pieces_then_the_result(client: AsyncClient) -> None:
    model = ScriptedModel(tool_call("add", a=1, b=2), "three it is")
    items = [i async for i in Agent("a", model=model, tools=[add]).stream("go", client=client)]
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "three it is"
    assert [item.output for item in items if isinstance(item, ToolPart)] == ["3"]
    assert items[-1].response == "three it is"  # type: ignore[union-attr]


async def test_both_layers_stream_the_same(client: AsyncClient) -> None:
    sessions, turns = await client.sessions.manager(), await client.runs.turns()
    session = await client.create_session("s")
    runtime = AgentRuntime(run_services(sessions, turns), model=ScriptedModel("a b"))
    items = [item async for item in runtime.stream_agent(Agent("a"), session, "go", ToolRegistry())]
    agent = Agent("a", model=ScriptedModel("a b"))
    again = [item async for item in client.stream(agent, session.id, "go")]
    kinds = [type(item).__name__ for item in items]
    assert kinds == [type(item).__name__ for item in again]
    assert kinds[-1] == "AgentResult" and "TextDelta" in kinds
    assert items[-1].response == "a b"  # type: ignore[union-attr]


async def test_cancelled_run_leaves_no_call_without_a_result(client: AsyncClient) -> None:
    under_way = asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Never end."""
        under_way.set()
        await asyncio.Event().wait()
        return ""

    session = await client.create_session("talk")
    model = ScriptedModel([tool_call("hang"), tool_call("add", a=1, b=1)], "fine")
    agent = Agent("a", model=model, tools=[hang, add])
    work = asyncio.create_task(agent.run("go", session=session.id, run_id="job", client=client))
    await asyncio.wait_for(under_way.wait(), 10)
    await client.runs.cancel("job", reason="enough")
    result = await asyncio.wait_for(work, 10)
    assert (result.status, result.metadata["reason"]) == ("cancelled", "enough")
    page = await client.list_messages(session.id)
    assert all(part.state != "pending" for part in calls_of(page.items))
    assert (await agent.run("go on", session=session.id, client=client)).response == "fine"


async def test_callers_own_cancellation_leaves_a_usable_session(client: AsyncClient) -> None:
    held = asyncio.Event()
    session = await client.create_session("talk")
    model = ScriptedModel(ModelReply(text="half a", hold=held), "whole")
    agent = Agent("a", model=model)
    stream = agent.stream("go", session=session.id, client=client)
    await anext(stream)
    await stream.aclose()
    assert model.open_streams == 0
    assert (await agent.run("again", session=session.id, client=client)).response == "whole"


async def test_same_run_id_returns_the_finished_result_without_asking_again(
    client: AsyncClient,
) -> None:
    model = ScriptedModel("once")
    agent = Agent("a", model=model)
    first = await agent.run("go", run_id="job-1", client=client)
    second = await agent.run("go", run_id="job-1", client=client)
    assert (first.response, second.response, len(model.requests)) == ("once", "once", 1)


async def test_two_clients_in_one_session_keep_both_turns_whole_and_in_order(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path) as one, AsyncClient(tmp_path) as two:
        session = await one.create_session("shared")
        agents = [Agent(f"a{n}", model=ScriptedModel(f"answer {n}")) for n in range(2)]
        await asyncio.gather(
            agents[0].run("question 0", session=session.id, client=one),
            agents[1].run("question 1", session=session.id, client=two),
        )
        texts = [message.text for message in (await one.list_messages(session.id)).items]
    pairs = [tuple(texts[:2]), tuple(texts[2:])]
    assert sorted(pairs) == [("question 0", "answer 0"), ("question 1", "answer 1")]
    later = agents[0] if pairs[1][0] == "question 0" else agents[1]
    assert len(later.model.requests[0].messages) == 3  # type: ignore[union-attr]


async def test_fake_session_is_refused(client: AsyncClient) -> None:
    sessions, turns = await client.sessions.manager(), await client.runs.turns()
    runtime = AgentRuntime(run_services(sessions, turns), model=ScriptedModel("x"))
    with pytest.raises(UsageError):
        await runtime.execute_agent(Agent("a"), "ses_1", "hi", ToolRegistry())  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await client.execute_agent("build", "ses_unknown", "hi")


async def test_registered_agents_survive_a_restart_and_built_ins_are_protected(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(Agent("Helper", description="helps", prompt="Help."))
        with pytest.raises(AlreadyExists):
            await client.register_agent(Agent("BUILD"))
    async with AsyncClient(tmp_path) as client:
        found = await client.get_agent("helper")
        assert found is not None and (found.name, found.prompt) == ("Helper", "Help.")
        assert [agent.name for agent in await client.list_agents()][:4] == [
            "build",
            "plan",
            "general",
            "explore",
        ]
        assert await client.remove_agent("HELPER")
        assert not await client.remove_agent("HELPER")
        assert await client.get_agent("helper") is None
        with pytest.raises(UsageError) as refused:
            await client.remove_agent("Build")
        assert refused.value.code == "usage.invalid"
