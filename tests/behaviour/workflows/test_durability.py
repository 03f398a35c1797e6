"""A workflow waits, is cancelled, retried and resumed without losing or repeating a step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HookRefused, StepFailed, ToolError, UsageError, WorkflowInvalid
from holdfast.hooks import Cancel, HookPayload
from holdfast.orchestration.workflows import (
    Workflow,
    WorkflowRequest,
    WorkflowResult,
    WorkflowRunner,
    parse_workflow,
    step,
)
from holdfast.orchestration.workflows.runner import hear_nothing
from holdfast.orchestration.workflows.step_executor import WorkflowCode
from holdfast.policy.budgets import Budget
from holdfast.runs.lineage import list_below
from holdfast.testing import FakeClock, ModelReply, ScriptedModel, run_services, tool_call
from holdfast.tools import ToolRegistry
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest


class Ledger:
    """Counts what really happened."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def tool(self, permission: str = "allow"):
        @tool(permission=permission, effect="idempotent")
        async def work(name: str) -> str:
            """Work."""
            self.calls.append(name)
            return f"did {name}"

        return work


def work(name: str, tool: object, **options: object):
    return step(name, tool=tool, args={"name": name}, **options)


async def test_a_tool_that_asks_parks_the_workflow_which_goes_on_elsewhere(tmp_path: Path) -> None:
    done = Ledger()
    free, asks = done.tool(), done.tool("ask")
    flow = Workflow("asks").parallel(
        "both", work("a", free), step("b", tool="careful", args={"name": "b"})
    )
    asks = tool(name="careful", permission="ask", effect="idempotent")(asks.function)
    flow = flow.step("c", value="${steps.b.output}")
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_tool(asks)
        first = await client.workflows.run(flow, run_id="job", on_ask="park")
        assert (first.status, first.reason, done.calls) == ("parked", "approval", ["a"])
        assert (await client.workflows.resume("job")).status == "parked"
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_tool(asks)
        await client.register_tool(free)
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="me")
        result = await client.workflows.resume("job")
        assert (result.status, result.output) == ("completed", "did b")
        assert done.calls == ["a", "b"]
        assert (await client.workflows.resume("job")).steps == result.steps
        assert (await client.workflows.run(flow, run_id="job")).output == "did b"


async def test_an_agent_that_waits_parks_the_workflow(tmp_path: Path) -> None:
    done = Ledger()
    model = ScriptedModel(tool_call("work", name="x"), "finished")
    agent = Agent("worker", model=model, tools=[done.tool("ask")])
    inner = Workflow("inner").step("do", agent=agent, message="go")
    flow = Workflow("outer").step("call", workflow=inner)
    async with AsyncClient(tmp_path / "state") as client:
        assert (await client.workflows.run(flow, run_id="job", on_ask="park")).status == "parked"
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="me")
        result = await client.workflows.run(flow, run_id="job", on_ask="park")
        assert (result.status, result.output, done.calls) == ("completed", "finished", ["x"])


async def test_a_workflow_that_is_attended_goes_on_by_itself(tmp_path: Path) -> None:
    done = Ledger()
    model = ScriptedModel(tool_call("work", name="x"), "finished")
    agent = Agent("worker", model=model, tools=[done.tool("ask")])
    flow = Workflow("outer").step("call", agent=agent, message="go")
    async with AsyncClient(tmp_path / "state") as client, AsyncClient(tmp_path / "state") as other:
        waits = asyncio.Event()
        told: list[str] = []

        async def tell(result: WorkflowResult) -> None:
            told.append(result.status)
            waits.set()

        work = asyncio.create_task(
            client.workflows.run(flow, run_id="job", on_ask="park", stay=tell)
        )
        async with asyncio.timeout(20):
            await waits.wait()
            [question] = await other.approvals.questions()
            await other.approvals.approve(question.id, by="me")
            result = await work
            assert (await other.runs.await_answer("job")).status == "completed"
    assert (result.status, result.output, done.calls) == ("completed", "finished", ["x"])
    assert told == ["parked"]


async def test_without_anybody_to_ask_a_call_is_refused(tmp_path: Path) -> None:
    done = Ledger()
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.run(Workflow("no").add(work("a", done.tool("ask"))))
    assert (result.status, done.calls) == ("failed", [])


async def test_cancelling_a_workflow_reaches_the_child_of_its_child(tmp_path: Path) -> None:
    begun, hold = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def begin() -> str:
        """Begin."""
        begun.set()
        return "begun"

    model = ScriptedModel(tool_call("begin"), ModelReply(text="never", hold=hold))
    agent = Agent("slow", model=model, tools=[begin])
    inner = Workflow("inner").step("do", agent=agent, message="go")
    flow = Workflow("outer").step("call", workflow=inner).step("after", value=1)
    async with AsyncClient(tmp_path / "state") as client:
        running = asyncio.create_task(client.workflows.run(flow, run_id="job"))
        async with asyncio.timeout(20):
            await begun.wait()
            await client.runs.cancel("job", reason="enough")
            result = await running
        assert (result.status, result.reason) == ("cancelled", "enough")
        assert [step.status for step in result.steps] == ["cancelled"]
        child = await client.workflows.get(result.steps[0].child_run)
        assert child.status == "cancelled"
        assert (await client.runs.get(child.steps[0].child_run)).status == "cancelled"


class Undecided:
    """Somebody who is asked, and never answers."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = asyncio.Event()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.times -= 1
        if not self.times:
            self.asked.set()
        await asyncio.Event().wait()
        return None


async def calls_of(client: AsyncClient, run_id: str) -> list[tuple[str, str]]:
    run = await client.runs.get(run_id)
    messages = await client.list_messages(run.session_id)
    return [(part.state, part.error) for one in messages.items for part in one.tool_calls]


@pytest.mark.parametrize("way", ["asked to end", "its caller is cancelled", "parked"])
async def test_a_cancelled_workflow_leaves_no_call_of_its_steps_open(
    tmp_path: Path, way: str
) -> None:
    # A person reads one request at a time: the second call waits behind the first.
    done, nobody = Ledger(), Undecided(1)
    asks = tool(name="careful", permission="ask", effect="idempotent")(done.tool().function)
    both = [work(name, asks) for name in ("b", "c")]
    flow = Workflow("stuck").add(work("a", done.tool())).parallel("both", *both)
    async with AsyncClient(tmp_path / "state") as client:
        client.approver = None if way == "parked" else nobody
        running = asyncio.create_task(client.workflows.run(flow, run_id="job", on_ask="park"))
        async with asyncio.timeout(20):
            if way == "parked":
                assert (await running).status == "parked"
                assert [state for state, _ in await calls_of(client, "job")].count("pending") == 2
                await client.runs.cancel("job", reason="enough")
            elif way == "asked to end":
                await nobody.asked.wait()
                await client.runs.cancel("job", reason="enough")
                assert (await running).status == "cancelled"
            else:
                await nobody.asked.wait()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
        assert (await client.runs.get("job")).status == "cancelled"
        cancelled = ("error", "The run was cancelled.")
        assert await calls_of(client, "job") == [("completed", ""), cancelled, cancelled]
        assert done.calls == ["a"]


async def test_a_call_that_a_failure_beside_it_ended_has_a_result(tmp_path: Path) -> None:
    done, nobody = Ledger(), Undecided(1)

    @tool(effect="read")
    async def fail() -> str:
        """Fail as soon as somebody is asked about the other one."""
        await nobody.asked.wait()
        raise RuntimeError("boom")

    both = work("a", done.tool("ask")), step("b", tool=fail)
    flow = Workflow("fast").parallel("both", *both)
    async with AsyncClient(tmp_path / "state") as client:
        client.approver = nobody
        async with asyncio.timeout(20):
            assert (await client.workflows.run(flow, run_id="job")).status == "failed"
        assert {state for state, _ in await calls_of(client, "job")} == {"error"}


async def test_retries_wait_longer_each_time_and_stop(tmp_path: Path) -> None:
    clock = FakeClock()
    waited: list[float] = []
    attempts = 0

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await clock.sleep(seconds)

    @tool(effect="read")
    async def flaky(until: int) -> str:
        """Fail some times."""
        nonlocal attempts
        attempts += 1
        if attempts < until:
            raise RuntimeError("not yet")
        return "at last"

    async with AsyncClient(tmp_path / "state") as client:
        services = run_services(
            await client.sessions.manager(), await client.runs.turns(), clock=clock
        )
        code = WorkflowCode(tools=ToolRegistry([flaky]), sleep=sleep)
        retry = {"attempts": 4, "wait": 1.0, "factor": 3.0, "most_wait": 5.0}
        for until, status in ((4, "completed"), (9, "failed")):
            attempts = 0
            waited.clear()
            flow = Workflow("retry").step("f", tool="flaky", args={"until": until}, retry=retry)
            session = await client.create_session("retry")
            order = WorkflowRequest(definition=flow.definition)
            result = await WorkflowRunner(services, code).run(order, session)
            assert (result.status, attempts, waited) == (status, 4, [1.0, 3.0, 5.0])
            assert result.steps[0].attempts == 4


async def test_a_refused_or_mistaken_step_is_not_retried(tmp_path: Path) -> None:
    flow = Workflow("no", inputs={"x": {"type": "object"}}).step(
        "a", tool="calculator", args={"expression": "${inputs.x.gone}"}, retry={"attempts": 3}
    )
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.run(flow, {"x": {}})
    assert (result.status, result.error["code"]) == ("failed", StepFailed.code)
    assert result.steps[0].attempts <= 1


async def test_a_changed_definition_does_not_change_what_was_begun(tmp_path: Path) -> None:
    done = Ledger()
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_tool(done.tool("ask"))
        one = Workflow("same").step("a", tool="work", args={"name": "old"})
        await client.workflows.run(one, run_id="job", on_ask="park")
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="me")
        other = Workflow("same").step("a", tool="work", args={"name": "new"})
        assert (await client.workflows.run(other, run_id="job")).output == "did old"


async def test_hooks_change_inputs_and_stop_steps(tmp_path: Path) -> None:
    client = AsyncClient(tmp_path / "state")
    seen: list[str] = []

    @client.hooks.on("workflow.before_start")
    async def more(payload: HookPayload) -> object:
        return payload.modify(inputs={"n": 7})

    @client.hooks.on("workflow.before_stage")
    async def stop(payload: HookPayload) -> object:
        return Cancel("no") if getattr(payload, "stage", "") == "b" else None

    @client.hooks.observe("workflow.*")
    async def note(payload: HookPayload) -> None:
        seen.append(payload.point)

    flow = (
        Workflow("hooked", inputs={"n": {"type": "integer"}})
        .step("a", value="${inputs.n}")
        .step("b", value=1, on_error="continue")
        .returns(["${steps.a.output}", "${steps.b.status}"])
    )
    async with client:
        result = await client.workflows.run(flow, {"n": 1})
    assert result.output == [7, "failed"]
    assert result.steps[1].error["code"] == HookRefused.code
    assert seen.count("workflow.checkpoint") == 2
    assert seen[-1] == "workflow.complete"


def test_workflows_that_wait_in_a_circle_are_refused() -> None:
    with pytest.raises(WorkflowInvalid):
        _ = Workflow("c").add(step("a", value=1, needs=["b"]), step("b", value=1)).definition


async def test_workflows_that_start_one_another_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    for one, other in (("ping", "pong"), ("pong", "ping")):
        text = f"name: {one}\nsteps:\n  - id: x\n    workflow: {other}\n"
        (folder / f"{one}.yaml").write_text(text)
    async with AsyncClient(tmp_path / "state") as client:
        with pytest.raises(WorkflowInvalid):
            await client.workflows.validate(folder / "ping.yaml")


@pytest.mark.parametrize(
    ("value", "inputs"),
    [(object(), {}), (b"\xff", {}), ("\ud800", {}), (1, {"any": object()})],
)
async def test_a_value_without_a_json_form_is_refused_before_anything_is_kept(
    tmp_path: Path, value: Any, inputs: dict[str, Any]
) -> None:
    flow = Workflow("w", inputs={name: {} for name in inputs}).step("a", value=value)
    async with AsyncClient(tmp_path / "state") as client:
        with pytest.raises(WorkflowInvalid):
            await client.workflows.run(flow, inputs)
        assert (await client.list_sessions()).items == ()


async def test_a_run_that_is_none_of_a_workflow_is_not_resumed_as_one(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        agent = Agent("a", model=ScriptedModel("hello"))
        await client.execute_agent(agent, "", "hi", run_id="job")
        with pytest.raises(UsageError):
            await client.workflows.resume("job")


async def test_a_workflow_below_a_parent_has_no_right_that_the_parent_lacks(tmp_path: Path) -> None:
    done = Ledger()
    model = ScriptedModel(tool_call("work", name="x"), "finished")
    agent = Agent("worker", model=model, tools=[done.tool()], denied_tools=["work"])
    async with AsyncClient(tmp_path / "state") as client:
        above = await client.create_session("above")
        lineage = list_below(agent, above)
        under = await client.create_session("under", metadata=lineage.to_metadata())
        runner = await client._runtime.workflows._make_runner(
            {"tool:work": done.tool()}, hear_nothing
        )
        flow = Workflow("w").step("a", tool="work", args={"name": "x"}, on_error="continue")
        order = WorkflowRequest(definition=flow.definition)
        result = await runner.run(order, under)
        assert result.steps[0].error["code"] == ToolError.code
        inner = WorkflowRequest(
            definition=Workflow("o").step("i", workflow=flow).definition,
            called={"w": flow.definition},
        )
        again = await client.create_session("under 2", metadata=lineage.to_metadata())
        assert (await runner.run(inner, again)).status == "completed"
    assert done.calls == []


async def test_a_budget_holds_for_the_steps_and_what_they_start_together(tmp_path: Path) -> None:
    done = Ledger()
    calls = [tool_call("work", name=str(n)) for n in range(3)]
    agent = Agent("worker", model=ScriptedModel(calls, "finished"), tools=[done.tool()])
    flow = (
        Workflow("spend")
        .add(work("a", done.tool()))
        .step("b", agent=agent, message="go", on_error="continue")
        .add(work("c", done.tool(), on_error="continue"))
    )
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.run(flow, budget=Budget(max_tool_calls=3))
    assert len(done.calls) == 3
    assert [state.status for state in result.steps] == ["completed", "failed", "failed"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\nsteps:\n  - id: x\n    tool: t\n    colour: red\n", 5),
        ("name: a\nsteps:\n  - id: x\n    value: 1\n  - id: x\n    value: 2\n", 5),
        ("name: a\nsteps:\n  - id: x\n    value: ${steps.y.output}\n", 4),
        ("name: a\nsteps:\n  - id: x\n    timeout: '5'\n    value: 1\n", 4),
        ("name: a\nsteps:\n  - id: x\n    value: 1\n    when: 1 +\n", 5),
        ("name: A b\nsteps:\n  - id: x\n    value: 1\n", 1),
        ("name: a\nsteps: &x\n  - id: x\n    value: 1\n", 2),
        ("name: a\ninputs:\n  n: {type: int}\nsteps:\n  - {id: x, value: 1}\n", 3),
    ],
)
def test_every_mistake_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(WorkflowInvalid) as raised:
        parse_workflow(text, source="f.yaml")
    assert [m for m in raised.value.context["mistakes"] if m.startswith(f"f.yaml:{line}:")]  # type: ignore[attr-defined]
