"""Agents made of agents: as a tool, as a wrapper, and by hand-off."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel, Field, model_validator

from holdfast import Agent, AsyncClient
from holdfast.agents import AgentResult
from holdfast.agents.handoff import (
    HandedOff,
    HandoffInput,
    HandoffPayload,
    send_conversation,
    transfer_to,
    transform,
)
from holdfast.errors import UsageError
from holdfast.hooks import BusEvent
from holdfast.messages import ToolPart
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel, ScriptedModel, tool_call
from holdfast.tools import tool


async def call_parts(client: AsyncClient, session_id: str) -> list[ToolPart]:
    page = await client.list_messages(session_id)
    return [call for message in page.items for call in message.tool_calls]


@tool(effect="read")
async def peek(at: str) -> str:
    """Peek."""
    return f"peeked {at}"


# --- as a tool -------------------------------------------------------------------------


class City(BaseModel):
    name: str = Field(description="The city")
    days: int = 3

    @model_validator(mode="after")
    def is_possible(self) -> City:
        if self.days > 14:
            raise ValueError("at most 14 days")
        return self


async def test_agent_is_a_tool_with_a_task(tmp_path: Path) -> None:
    model = ScriptedModel("42")
    expert = Agent("expert", description="Knows.", model=model)
    top = Agent(
        "top",
        model=ScriptedModel(tool_call("ask", task="What?"), "so"),
        tools=[expert.as_tool(name="ask")],
    )
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.execute_agent(top, "", "go")
        [call] = await call_parts(client, result.session_id)
        assert (call.state, call.output) == ("completed", "42")
        assert model.requests[0].messages[-1].text == "What?"
        [spec] = [one for one in top.model.requests[0].tools if one.name == "ask"]
        assert spec.description == "Knows."
        child = await client.get_session(str(call.metadata["session_id"]))
        assert child.parent_id == result.session_id


async def test_all_that_a_run_starts_is_found_by_the_correlation_of_the_first(
    tmp_path: Path,
) -> None:
    low = Agent("low", model=ScriptedModel("deep"))
    mid = Agent("mid", model=ScriptedModel(tool_call("low", task="c"), "b"), tools=[low.as_tool()])
    top = Agent("top", model=ScriptedModel(tool_call("mid", task="b"), "a"), tools=[mid.as_tool()])
    async with AsyncClient(tmp_path / "state") as client:
        heard: list[BusEvent] = []
        await client.events.subscribe(
            ["run.*", "model.text_delta"], heard.append, correlation_id="first"
        )
        await client.execute_agent(top, "", "go", run_id="first")
        await client.execute_agent(Agent("other", model=ScriptedModel("x")), "", "go")
        await client.events.settle()
        timeline = await client.events.timeline(correlation_id="first")
        facts = [(one.name, one.agent_path) for one in timeline if one.name == "message.created"]
        assert [path for _, path in facts if path] == [
            "top", "top/mid", "top/mid/low", "top/mid", "top",
        ]  # fmt: skip
        for name in ("run.queued", "run.started", "run.completed"):
            assert [one.name for one in timeline].count(name) == 3
            assert [one.name for one in heard].count(name) == 3
        assert {one.agent_path for one in heard if one.name == "model.text_delta"} == {
            "top", "top/mid", "top/mid/low",
        }  # fmt: skip


async def test_agent_as_tool_takes_the_fields_of_a_model(tmp_path: Path) -> None:
    model = FunctionModel(lambda request: f"plan: {request.messages[-1].text}")
    planner = Agent("planner", model=model)
    made = planner.as_tool(input=City, to_task=lambda city: f"{city.days} days in {city.name}")
    assert made.parameters["required"] == ["name"]
    assert set(made.parameters["properties"]) == {"name", "days"}
    calls = [
        tool_call("planner", name="Rome"),
        tool_call("planner", name="Rome", days=20),
        tool_call("planner", days=1),
    ]
    top = Agent("top", model=ScriptedModel(calls, "so"), tools=[made])
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.execute_agent(top, "", "go")
        parts = await call_parts(client, result.session_id)
        assert [part.state for part in parts] == ["completed", "error", "error"]
        assert parts[0].output == "plan: 3 days in Rome"


async def test_agent_as_tool_may_do_no_more_than_its_caller(tmp_path: Path) -> None:
    expert = Agent("expert", model=ScriptedModel(tool_call("peek", at="x"), "saw"), tools=[peek])
    top = Agent(
        "top",
        model=ScriptedModel(tool_call("expert", task="look"), "so"),
        tools=[expert.as_tool()],
        denied_tools=["peek"],
    )
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.execute_agent(top, "", "go")
        [call] = await call_parts(client, result.session_id)
        [inner] = await call_parts(client, str(call.metadata["session_id"]))
        assert (inner.tool, inner.state) == ("peek", "error")


def test_task_of_no_input_is_refused() -> None:
    with pytest.raises(UsageError):
        Agent("a").as_tool(to_task=str)


# --- wrapped ---------------------------------------------------------------------------


async def test_wrappers_stand_around_an_agent_in_order(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> str:
        return f"{request.system[:2]}:{request.messages[-1].text}"

    inner = Agent("inner", model=FunctionModel(echo), prompt="P1")

    async def loud(result: AgentResult) -> AgentResult:
        return msgspec.structs.replace(result, response=result.response + "!")

    def quoted(result: AgentResult) -> AgentResult:
        return msgspec.structs.replace(result, response=f"<{result.response}>")

    first = inner.wrapped(before=lambda text: text + "1", after=loud)
    second = first.wrapped(name="outer", before=lambda text: text + "2", after=quoted, prompt="P2")
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.execute_agent(second, "", "x")
        assert (result.agent_name, result.response) == ("outer", "<P2:x21!>")
        plain = await client.execute_agent(inner, "", "x")
        assert plain.response == "P1:x"


def test_wrapper_keeps_rules_and_refuses_unknown_fields() -> None:
    inner = Agent("inner", denied_tools=["bash"], tools=[peek], model="x:y")
    outer = inner.wrapped(model="a:b", tools=[])
    assert (outer.rules, outer.model, outer.tools) == (inner.rules, "a:b", ())
    with pytest.raises(UsageError):
        inner.wrapped(colour="red")


# --- hand-off --------------------------------------------------------------------------


@transform("ticket", version=2)
def ticket(baggage: HandoffInput) -> HandoffPayload:
    """Let the ticket's number along, and the last words."""
    number = baggage.state.get("ticket", 0)
    said = [each.text for each in baggage.messages if each.role == "user"]
    return HandoffPayload(
        task=baggage.message, context=f"ticket {number}: {said[-1]}", state={"ticket": number}
    )


async def test_other_agent_answers_in_a_linked_session(tmp_path: Path) -> None:
    model = ScriptedModel("Refunded.")
    billing = Agent("billing", model=model)
    desk = Agent(
        "desk",
        model=ScriptedModel(tool_call("transfer_to", agent="billing", message="Wants a refund")),
        tools=[transfer_to(["billing"], transform=ticket)],
    )
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(billing)
        state = {"state": {"ticket": 7, "secret": "x"}}
        session = await client.create_session("Desk", metadata=state)
        result = await client.execute_agent(desk, session.id, "Give my money back")
        assert (result.status, result.response) == ("completed", "Refunded.")
        linked = result.metadata["handed_to"]
        assert linked["agent"] == "billing"
        told = model.requests[0].messages[-1].text
        assert told.startswith("Wants a refund")
        assert "ticket 7: Give my money back" in told
        child = await client.get_session(linked["session_id"])
        assert child.metadata["state"] == {"ticket": 7}
        facts = [
            event.expect(HandedOff)
            for event in await client.events.list(session.id)
            if event.kind == HandedOff.kind
        ]
        [fact] = facts
        assert (fact.transform, fact.transform_version) == ("ticket", 2)
        assert (fact.from_agent, fact.to_agent) == ("desk", "billing")
        assert fact.session_id == child.id
        # The giver was not asked again, and the conversation can go on in the linked session.
        assert len(desk.model.requests) == 1


async def test_hand_off_gives_no_right_that_the_giver_lacks(tmp_path: Path) -> None:
    other = Agent("other", model=ScriptedModel(tool_call("peek", at="x"), "no"), tools=[peek])
    giver = Agent(
        "giver",
        model=ScriptedModel(tool_call("transfer_to", agent="other", message="go")),
        tools=[transfer_to(["other"], transform=send_conversation)],
        denied_tools=["peek"],
    )
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(other)
        result = await client.execute_agent(giver, "", "go")
        [call] = await call_parts(client, result.metadata["handed_to"]["session_id"])
        assert (call.tool, call.state) == ("peek", "error")


async def test_agents_that_hand_over_to_each_other_come_to_an_end(tmp_path: Path) -> None:
    def passing(to: str) -> Agent:
        def work(request: ModelRequest) -> object:
            if request.messages[-1].role == "tool":
                return "nobody wants it"
            return tool_call("transfer_to", agent=to, message="not mine")

        name = {"a": "b", "b": "a"}[to]
        model = FunctionModel(work)  # type: ignore[arg-type]
        return Agent(name, model=model, tools=[transfer_to([to])])

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(passing("a"))
        await client.register_agent(passing("b"))
        result = await client.execute_agent("a", "", "whose is it?")
        assert (result.status, result.response) == ("completed", "nobody wants it")


async def test_unknown_target_and_changed_transform_are_refused(tmp_path: Path) -> None:
    @transform("ticket", version=2)
    def other_ticket(baggage: HandoffInput) -> HandoffPayload:
        return HandoffPayload(task="something else")

    one, two = transfer_to(["b"], transform=ticket), transfer_to(["b"], transform=other_ticket)
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(Agent("b", model=ScriptedModel("1", "2")))
        model = ScriptedModel(
            tool_call("transfer_to", agent="c", message="x"),
            tool_call("transfer_to", agent="b", message="x"),
        )
        first = await client.execute_agent(Agent("a", model=model, tools=[one]), "", "go")
        assert first.response == "1"
        states = [part.state for part in await call_parts(client, first.session_id)]
        assert states == ["error", "completed"]
        model = ScriptedModel(tool_call("transfer_to", agent="b", message="x"), "not handed over")
        second = await client.execute_agent(Agent("a", model=model, tools=[two]), "", "go")
        assert second.response == "not handed over"
    with pytest.raises(UsageError):
        transfer_to([])
    with pytest.raises(UsageError):
        transform("", version=0)(lambda _: HandoffPayload(task=""))
