from __future__ import annotations

from typing import Any

import msgspec
import pytest
from offline_kit import CALCULATOR, FILE_TOOLS, Drive, ask, calculate, spec, user
from pydantic import BaseModel, Field

from holdfast.messages import Message, ToolPart
from holdfast.providers.json_schema import fits
from holdfast.providers.model import Finished, Model, ModelRequest, TextDelta, ToolCallDelta
from holdfast.providers.offline import MAX_ROUNDS, OfflineModel


class Step(BaseModel):
    id: str = Field(pattern=r"^step-\d+$")
    title: str
    description: str
    depends_on: list[str] = []
    status: str = Field(default="pending")
    priority: int = Field(ge=1, le=5)
    checks: list[str] = []


class Plan(BaseModel):
    goal: str
    steps: list[Step] = Field(min_length=1)


class Verdict(BaseModel):
    verdict: str = Field(json_schema_extra={"enum": ["PASS", "RETRY", "FAIL"]})
    reason: str


async def structured(goal: str, schema: dict[str, Any], **fields: Any) -> Any:
    message = await ask(ModelRequest(messages=(user(goal),), output_schema=schema, **fields))
    return msgspec.json.decode(message.text)


@pytest.mark.parametrize(
    "goal", ["Describe this workspace", "What is 15 times 23?", "Write a poem"]
)
async def test_a_plan_request_gets_a_valid_plan(goal: str) -> None:
    schema = Plan.model_json_schema()
    plan = Plan.model_validate(await structured(goal, schema, tools=FILE_TOOLS))
    assert plan.goal == goal
    assert fits(plan.model_dump(), schema)
    for number, step in enumerate(plan.steps):
        assert step.depends_on == ([f"step-{number}"] if number else [])


async def test_a_plan_is_as_long_as_the_schema_demands() -> None:
    schema = {
        "type": "object",
        "properties": {"steps": {"type": "array", "minItems": 4, "items": {"type": "string"}}},
        "required": ["steps"],
    }
    assert len((await structured("Write a poem", schema))["steps"]) == 4


async def test_a_plan_is_handed_over_by_a_tool_that_takes_one() -> None:
    tool = spec(
        "submit_plan", required="steps", steps={"type": "array", "items": {"type": "string"}}
    )
    request = ModelRequest(
        messages=(user("Describe this workspace"),),
        system="You are the planner. Submit a plan.",
        tools=(tool,),
    )
    message = await ask(request)
    assert message.tool_calls[0].tool == "submit_plan"
    assert message.tool_calls[0].input["steps"]
    done = ToolPart(
        call_id=message.tool_calls[0].call_id, tool="submit_plan", state="completed", output="ok"
    )
    after = Message(id="t", session_id="s", role="tool", parts=(done,))
    request = msgspec.structs.replace(request, messages=(*request.messages, message, after))
    assert not (await ask(request)).tool_calls


async def test_a_planner_without_schema_gets_a_plan_as_json() -> None:
    request = ModelRequest(
        messages=(user("Describe this workspace"),), system="Return a plan as JSON."
    )
    assert msgspec.json.decode((await ask(request)).text)["steps"]


async def test_a_verdict_follows_what_is_visible_and_says_how() -> None:
    schema = Verdict.model_json_schema()
    good = await structured("Review: the step listed 12 files.", schema, tools=FILE_TOOLS)
    bad = await structured("Review: the command failed with exit code 2.", schema)
    assert (good["verdict"], bad["verdict"]) == ("PASS", "RETRY")
    assert "fixed rule" in good["reason"]


async def test_a_schema_for_the_answer_gets_the_answer_after_the_tools() -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string"}, "value": {"type": "number"}},
        "required": ["answer", "value"],
    }
    drive = Drive(calculate, (CALCULATOR,))
    message = await drive.answer("What is 15 times 23?", output_schema=schema)
    assert msgspec.json.decode(message.text) == {"answer": "15 * 23 = 345", "value": 345}


async def test_what_is_not_known_is_not_made_up() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
        "required": ["city", "population"],
    }
    request = ModelRequest(messages=(user("How many people live in Bern?"),), output_schema=schema)
    text = (await ask(request)).text
    assert "city" in text
    assert "I do not make things up" in text


async def test_no_tool_is_called_when_none_may_be() -> None:
    request = ModelRequest(
        messages=(user("Describe this workspace"),), tools=FILE_TOOLS, tool_choice="none"
    )
    message = await ask(request)
    assert not message.tool_calls
    assert message.stop_reason == "stop"


async def test_a_named_tool_is_called() -> None:
    request = ModelRequest(
        messages=(user("Describe this workspace"),), tools=FILE_TOOLS, tool_choice="read"
    )
    message = await ask(request)
    assert [(call.tool, call.input) for call in message.tool_calls] == [
        ("read", {"file_path": "README.md"})
    ]


async def test_a_required_call_is_made_only_with_a_harmless_tool() -> None:
    wipe = spec("wipe_disk")
    goal = (user("Sing a song"),)
    request = ModelRequest(messages=goal, tools=(wipe, *FILE_TOOLS), tool_choice="required")
    assert [call.tool for call in (await ask(request)).tool_calls] == ["list"]
    alone = ModelRequest(messages=goal, tools=(wipe,), tool_choice="required")
    assert not (await ask(alone)).tool_calls


async def test_an_answer_tool_gets_the_answer() -> None:
    tool = spec("final_answer", required="answer", answer={"type": "string"})
    request = ModelRequest(messages=(user("Sing a song"),), tools=(tool,), tool_choice="required")
    call = (await ask(request)).tool_calls[0]
    assert call.tool == "final_answer"
    assert call.input["answer"].startswith("I cannot do this")


async def test_calls_end_after_a_bounded_number_of_rounds() -> None:
    messages = [user("Sing a song")]
    for _ in range(MAX_ROUNDS + 3):
        request = ModelRequest(messages=tuple(messages), tools=FILE_TOOLS, tool_choice="required")
        answer = await ask(request)
        if not answer.tool_calls:
            break
        messages.append(answer)
        part = msgspec.structs.replace(answer.tool_calls[0], state="completed", output="x")
        messages.append(Message(id="t", session_id="s", role="tool", parts=(part,)))
    assert not answer.tool_calls


async def test_an_empty_conversation_gets_an_honest_answer() -> None:
    assert "No goal was given" in (await ask(ModelRequest(messages=()))).text


async def test_deltas_join_to_the_message() -> None:
    model: Model = OfflineModel()
    assert model.info.is_llm is False
    request = ModelRequest(messages=(user("Sing"),))
    deltas = [delta async for delta in model.stream(request)]
    assert isinstance(deltas[-1], Finished)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert text == deltas[-1].message.text
    request = ModelRequest(messages=(user("Describe this workspace"),), tools=FILE_TOOLS)
    deltas = [delta async for delta in model.stream(request)]
    assert isinstance(deltas[0], ToolCallDelta)
    assert model.count_tokens(request) > 10
    await model.close()
