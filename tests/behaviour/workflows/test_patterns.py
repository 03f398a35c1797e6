"""Every pattern of a workflow, through the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import StepFailed, WorkflowInvalid, WorkflowLimit
from holdfast.orchestration.workflows import (
    Workflow,
    WorkflowResult,
    loop,
    parallel,
    parse_workflow,
    step,
    when,
)
from holdfast.redaction import Redactor
from holdfast.testing import FunctionModel, ScriptedModel, tool_call


@tool(effect="read")
async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


@tool(effect="read")
async def fail(text: str) -> str:
    """Fail."""
    raise RuntimeError(text)


async def run(folder: Path, flow: Workflow, **inputs: object) -> WorkflowResult:
    async with AsyncClient(folder / "state") as client:
        return await client.workflows.run(flow, inputs)


def statuses(result: WorkflowResult) -> dict[str, str]:
    return {state.path: state.status for state in result.steps}


async def test_steps_run_in_order_and_take_earlier_outputs(tmp_path: Path) -> None:
    flow = (
        Workflow("sums", inputs={"n": {"type": "integer"}})
        .step("one", tool=add, args={"a": "${inputs.n}", "b": 1}, output={"type": "integer"})
        .step("two", tool=add, args={"a": "${steps.one.output}", "b": 10})
        .returns({"sum": "${steps.two.output}", "text": "It is ${steps.one.output}."})
    )
    result = await run(tmp_path, flow, n=4)
    assert (result.status, result.output) == ("completed", {"sum": "15", "text": "It is 5."})
    assert statuses(result) == {"one": "completed", "two": "completed"}


@pytest.mark.parametrize(
    ("word", "given"), [("${inputs.word}", "s3cret-word-7"), ("s3cret-word-7", "")]
)
async def test_a_workflow_with_a_secret_is_refused_rather_than_run_with_a_marker(
    tmp_path: Path, word: str, given: str
) -> None:
    seen: list[str] = []

    @tool(effect="read")
    async def note(text: str) -> str:
        """Note."""
        seen.append(text)
        return ""

    flow = Workflow("notes", inputs={"word": {"type": "string"}}).step(
        "one", tool=note, args={"text": word}
    )
    redactor = Redactor({"MY_WORD": "s3cret-word-7"})
    async with AsyncClient(tmp_path / "state", redactor=redactor) as client:
        with pytest.raises(WorkflowInvalid, match="holds a secret") as caught:
            await client.workflows.run(flow, {"word": given})
        assert "s3cret" not in str(caught.value)
        assert (await client.list_sessions()).items == ()
    assert seen == []


async def test_parallel_steps_run_at_the_same_time_and_bounded(tmp_path: Path) -> None:
    now, most, together = 0, 0, asyncio.Barrier(3)

    @tool(effect="read")
    async def busy(n: int) -> str:
        """Be busy until two others are."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.wait_for(together.wait(), 30)
        now -= 1
        return str(n)

    steps = [step(f"s{n}", tool=busy, args={"n": n}) for n in range(9)]
    flow = Workflow("many").parallel("all", *steps, most=3)
    result = await run(tmp_path, flow)
    assert result.output == {f"s{n}": str(n) for n in range(9)}
    assert most == 3


@pytest.mark.parametrize(("n", "expected"), [(1, "small"), (50, "large")])
async def test_a_condition_chooses_the_branch(tmp_path: Path, n: int, expected: str) -> None:
    flow = Workflow("choose", inputs={"n": {"type": "integer"}}).when(
        "size",
        "${inputs.n > 10}",
        then=[step("big", value="large")],
        otherwise=[step("little", value="small")],
    )
    assert (await run(tmp_path, flow, n=n)).output == expected


async def test_a_step_whose_condition_does_not_hold_is_left_out(tmp_path: Path) -> None:
    flow = (
        Workflow("skip")
        .step("a", value=1)
        .step("b", value=2, when="steps.a.output > 5")
        .returns("${steps.b.status}")
    )
    assert (await run(tmp_path, flow)).output == "skipped"


async def test_loops_go_through_a_collection_a_range_and_a_condition(tmp_path: Path) -> None:
    flow = (
        Workflow("loops", inputs={"names": {"type": "array"}})
        .loop("each", step("hi", value="Hi ${loop.item}"), over="${inputs.names}")
        .loop("count", step("n", value="${loop.index + 1}"), times=3, parallel=2)
        .loop(
            "grow",
            step("g", value="${default(loop.last, 0) + 2}"),
            while_="default(loop.last, 0) < 5",
        )
        .returns(["${steps.each.output}", "${steps.count.output}", "${steps.grow.output}"])
    )
    result = await run(tmp_path, flow, names=["Ada", "Alan"])
    assert result.output == [["Hi Ada", "Hi Alan"], [1, 2, 3], [2, 4, 6]]


async def test_workflows_run_inside_workflows_and_loops_inside_loops(tmp_path: Path) -> None:
    inner = (
        Workflow("inner", inputs={"n": {"type": "integer"}})
        .step("x", value="${inputs.n + 100}")
        .returns("${steps.x.output}")
    )
    flow = Workflow("outer").loop(
        "rows",
        loop("cells", step("call", workflow=inner, args={"n": "${loop.item}"}), over=[1, 2]),
        times=2,
    )
    result = await run(tmp_path, flow)
    assert result.output == [[101, 102], [101, 102]]
    assert "rows[1]/cells[0]/call" in statuses(result)


async def test_agents_are_steps_and_stand_below_the_workflow(tmp_path: Path) -> None:
    writer = Agent("writer", model=ScriptedModel("A poem about sea."))
    flow = (
        Workflow("poem", inputs={"topic": {"type": "string"}})
        .step("write", agent=writer, message="Write about ${inputs.topic}.")
        .returns("${upper(steps.write.output)}")
    )
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.run(flow, {"topic": "sea"})
        assert result.output == "A POEM ABOUT SEA."
        [state] = result.steps
        child = await client.get_session(state.child_session)
        assert child.parent_id == result.session_id
        events = await client.events.list(child.id)
        assert "workflow:poem/writer" in {event.agent_path for event in events}


async def test_agent_in_a_step_calls_only_the_tools_it_was_given(tmp_path: Path) -> None:
    model = ScriptedModel([tool_call("add", a=1, b=2), tool_call("fail", text="x")], "done")
    agent = Agent("worker", model=model, tools=[add, fail])
    flow = Workflow("limited").step("work", agent=agent, message="go", tools=["add"])
    await run(tmp_path, flow)
    calls = {call.tool: call.state for call in model.requests[1].messages[-1].tool_calls}
    assert calls == {"add": "completed", "fail": "error"}


async def test_fail_fast_ends_the_others_and_the_workflow(tmp_path: Path) -> None:
    was_cancelled = asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()
        return ""

    flow = (
        Workflow("fast")
        .parallel("both", step("a", tool=hang), step("b", tool=fail, args={"text": "boom"}))
        .step("never", value=1)
    )
    result = await run(tmp_path, flow)
    assert (result.status, result.error["code"]) == ("failed", StepFailed.code)
    assert was_cancelled.is_set()
    assert "never" not in statuses(result)


async def test_continue_goes_on_and_shows_the_error(tmp_path: Path) -> None:
    flow = (
        Workflow("on")
        .step("a", tool=fail, args={"text": "boom"}, on_error="continue")
        .returns("${steps.a.status}: ${steps.a.output}: ${'boom' in steps.a.error}")
    )
    assert (await run(tmp_path, flow)).output == "failed: null: true"


async def test_a_block_that_continues_takes_the_failure_of_its_steps(tmp_path: Path) -> None:
    inner = when("w", "true", then=[step("x", tool=fail, args={"text": "b"}), step("y", value=1)])
    flow = (
        Workflow("blocks")
        .add(parallel("p", inner, step("ok", value=2), on_error="continue"))
        .returns("${steps.p.status}")
    )
    result = await run(tmp_path, flow)
    assert result.output == "failed"
    assert "y" not in statuses(result)


async def test_what_needs_says_is_the_order(tmp_path: Path) -> None:
    order: list[str] = []

    @tool(effect="read")
    async def note(name: str) -> str:
        """Note."""
        order.append(name)
        return name

    def one(name: str, *needs: str):
        return step(name, tool=note, args={"name": name}, needs=list(needs))

    flow = Workflow("dag").add(one("d", "b", "c"), one("b", "a"), one("c", "a"), one("a"))
    result = await run(tmp_path, flow)
    assert result.status == "completed"
    assert order[0] == "a" and order[-1] == "d" and sorted(order) == ["a", "b", "c", "d"]


async def test_the_yaml_form_runs_like_the_builder(tmp_path: Path) -> None:
    text = """
name: yaml-form
inputs:
  names: {type: array, items: {type: string}, default: [Ada]}
steps:
  - id: each
    loop: {over: "${inputs.names}", most: 5}
    steps:
      - id: hi
        value: Hello ${loop.item}
  - id: pick
    if: len(steps.each.output) > 1
    then:
      - {id: many, value: many}
    else:
      - {id: one, value: one}
result: {said: "${steps.each.output}", how: "${steps.pick.output}"}
"""
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.run(parse_workflow(text))
        assert result.output == {"said": ["Hello Ada"], "how": "one"}
        again = await client.workflows.run(parse_workflow(text), {"names": ["A", "B"]})
        assert again.output["how"] == "many"
        with pytest.raises(WorkflowInvalid):
            await client.workflows.run(parse_workflow(text), {"names": [1]})


async def test_a_while_that_never_ends_is_ended_with_a_reason(tmp_path: Path) -> None:
    flow = Workflow("forever").loop("w", step("x", value=1), while_="true", most=7)
    result = await run(tmp_path, flow)
    assert (result.status, result.error["code"]) == ("failed", WorkflowLimit.code)
    assert sum(path.startswith("w[") for path in statuses(result)) == 7


async def test_a_step_that_hangs_is_ended_with_a_reason(tmp_path: Path) -> None:
    @tool(effect="read")
    async def hang() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    flow = Workflow("hang").step("h", tool=hang, timeout=0.05)
    result = await run(tmp_path, flow)
    assert (result.status, result.error["code"]) == ("failed", StepFailed.code)
    model = FunctionModel(lambda request: tool_call("hang"))
    agent = Agent("stuck", model=model, tools=[hang])
    async with AsyncClient(tmp_path / "state") as client:
        # A slow machine may use up a short limit before the agent is asked.
        for limit_s in (0.3, 2.0, 8.0):
            slow = Workflow("slow").step("h", agent=agent, message="go", timeout=limit_s)
            result = await client.workflows.run(slow)
            assert result.status == "failed"
            if model.requests:
                break
        [state] = result.steps
        assert (await client.runs.get(state.child_run)).status == "cancelled"


async def test_an_output_that_is_too_large_is_refused(tmp_path: Path) -> None:
    flow = Workflow("huge", inputs={"text": {"type": "string"}}).step(
        "big", value=["${inputs.text}", "${inputs.text}", "${inputs.text}"]
    )
    result = await run(tmp_path, flow, text="x" * 400_000)
    assert (result.status, result.error["code"]) == ("failed", WorkflowLimit.code)


async def test_a_thousand_steps_run(tmp_path: Path) -> None:
    steps = [step(f"s{n}", value=n) for n in range(1000)]
    result = await run(tmp_path, Workflow("long").add(*steps))
    assert (result.status, result.output, len(result.steps)) == ("completed", 999, 1000)


async def test_output_that_does_not_fit_its_schema_fails_the_step(tmp_path: Path) -> None:
    flow = Workflow("typed").step(
        "a", tool=add, args={"a": 1, "b": 2}, output={"type": "object", "required": ["x"]}
    )
    result = await run(tmp_path, flow)
    assert (result.status, result.error["code"]) == ("failed", StepFailed.code)


async def test_unknown_tools_and_agents_are_refused_before_anything_runs(tmp_path: Path) -> None:
    flow = Workflow("who").step("a", tool="no_such").step("b", agent="nobody", message="x")
    async with AsyncClient(tmp_path / "state") as client:
        with pytest.raises(WorkflowInvalid) as raised:
            await client.workflows.run(flow)
        assert len(raised.value.context["mistakes"]) == 2  # type: ignore[arg-type]
        assert await client.workflows.runs() == []
