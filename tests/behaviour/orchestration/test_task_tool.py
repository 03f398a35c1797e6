"""The task tool: a real sub-agent, below its caller, that can park, go on and be cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.agents import AgentResult
from holdfast.errors import BudgetExceeded, StepFailed
from holdfast.messages import ToolPart
from holdfast.orchestration.workflows import Workflow, engine
from holdfast.policy import Budget
from holdfast.providers.model import ModelRequest, TextDelta
from holdfast.runs.streaming import ChildPiece
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call
from holdfast.tools import Tool, ToolContext, tool
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest

WAIT_S = 20
LIMITS_S = (0.2, 1.0, 8.0)
"""Time limits to try: a slow machine may use up a short one before it begins at all."""
ENDS = ("run.completed", "run.failed", "run.cancelled")
MAY_SEND = [{"permission": "*", "action": "allow"}]


def make_delete(done: list[str]) -> Tool:
    @tool(permission="ask", target="path", effect="idempotent")
    async def delete(path: str) -> str:
        """Delete a file."""
        done.append(path)
        return f"deleted {path}"

    return delete


def boss(*replies: object, **fields: object) -> Agent:
    fields.setdefault("permission", MAY_SEND)
    return Agent("boss", model=ScriptedModel(*replies), **fields)  # type: ignore[arg-type]


def calls(result: AgentResult) -> list[ToolPart]:
    return [part for part in result.parts if isinstance(part, ToolPart)]


async def call_parts(client: AsyncClient, session_id: str) -> list[ToolPart]:
    page = await client.list_messages(session_id)
    return [call for message in page.items for call in message.tool_calls]


async def test_sub_agent_reports_and_goes_on_in_its_session(tmp_path: Path) -> None:
    model = ScriptedModel("It is here.", "It is 3 lines long.")
    finder = Agent("finder", description="Finds things.", mode="subagent", model=model)
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(finder)
        errand = {"description": "find it", "prompt": "Where is it?", "subagent_type": "finder"}
        top = boss(tool_call("task", **errand), "found")
        first = await client.execute_agent(top, "", "look for it")
        assert first.response == "found"
        [call] = await call_parts(client, first.session_id)
        child = str(call.metadata["session_id"])
        assert call.output == f"It is here.\n\n(session_id: {child})"
        assert call.title == "find it"
        shown = {spec.name: spec.description for spec in top.model.requests[0].tools}
        assert "- finder: Finds things." in shown["task"]
        assert "- general:" in shown["task"]
        assert "- build:" not in shown["task"]
        again = boss(
            tool_call("task", subagent_type="finder", prompt="How long?", session_id=child), "ok"
        )
        await client.execute_agent(again, first.session_id, "go on")
        page = await client.list_messages(child)
        said = [message.text for message in page.items]
        assert said == ["Where is it?", "It is here.", "How long?", "It is 3 lines long."]
        runs = {one.event.run_id for one in await client.runs.family_events(first.session_id)}
        assert len(runs - {""}) == 4


async def test_session_of_somebody_else_is_no_child(tmp_path: Path) -> None:
    finder = Agent("finder", mode="subagent", model=ScriptedModel("x"))
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(finder)
        private = await client.create_session("Private")
        top = boss(
            tool_call("task", subagent_type="finder", prompt="?", session_id=private.id), "ok"
        )
        result = await client.execute_agent(top, "", "go")
        [call] = await call_parts(client, result.session_id)
        assert call.state == "error"
        assert (await client.get_session(private.id)).message_count == 0


@pytest.mark.parametrize(
    "rules",
    [
        [{"permission": "task", "action": "deny"}],
        [{"permission": "*", "action": "allow"}, {"permission": "task", "action": "deny"}],
        [
            {"permission": "task", "pattern": "general", "action": "deny"},
            {"permission": "task", "pattern": "explore", "action": "deny"},
        ],
    ],
)
async def test_tool_is_hidden_where_no_sub_agent_is_allowed(tmp_path: Path, rules: list) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        top = boss("ok", permission=rules)
        await client.execute_agent(top, "", "go")
        assert "task" not in {spec.name for spec in top.model.requests[0].tools}


async def test_rules_name_the_agents_that_may_be_sent(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        rules = [*MAY_SEND, {"permission": "task", "pattern": "general", "action": "deny"}]
        top = boss(tool_call("task", subagent_type="general", prompt="x"), "ok", permission=rules)
        result = await client.execute_agent(top, "", "go")
        [call] = await call_parts(client, result.session_id)
        assert call.state == "error"
        [spec] = [one for one in top.model.requests[0].tools if one.name == "task"]
        assert "- general:" not in spec.description


async def test_read_only_starter_has_read_only_children(tmp_path: Path) -> None:
    seen: list[bool] = []

    @tool(effect="read")
    async def inspect(context: ToolContext) -> str:
        """Look at the sandbox."""
        seen.append(context.is_read_only)
        return "ok"

    child = Agent("child", mode="subagent", model=ScriptedModel(tool_call("inspect"), "x"))
    child = child.wrapped(tools=[inspect])
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(child)
        top = boss(tool_call("task", subagent_type="child", prompt="x"), "ok", sandbox="read-only")
        assert (await client.execute_agent(top, "", "go")).status == "completed"
    assert seen == [True]


async def test_parent_parks_with_its_child_and_goes_on_elsewhere(tmp_path: Path) -> None:
    done: list[str] = []

    def cleaner() -> Agent:
        def work(request: ModelRequest) -> object:
            is_done = request.messages[-1].role == "tool"
            return "cleaned" if is_done else tool_call("delete", path="a.txt")

        model = FunctionModel(work)  # type: ignore[arg-type]
        return Agent("cleaner", mode="subagent", model=model, tools=[make_delete(done)])

    def top() -> Agent:
        def work(request: ModelRequest) -> object:
            is_done = request.messages[-1].role == "tool"
            return (
                "all done"
                if is_done
                else tool_call("task", subagent_type="cleaner", prompt="clean")
            )

        return Agent("boss", model=FunctionModel(work), permission=MAY_SEND)  # type: ignore[arg-type]

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner())
        parked = await client.execute_agent(top(), "", "go", run_id="job", on_ask="park")
        assert (parked.status, parked.metadata["reason"]) == ("parked", "approval")
        # Nothing has happened: it parks again.
        parked = await client.execute_agent(top(), "", "go", run_id="job", on_ask="park")
        assert parked.status == "parked"
    async with AsyncClient(tmp_path / "state") as other:
        [question] = await other.approvals.questions()
        assert question.session_id != parked.session_id
        assert [child.id for child in await other.runs.children("job")] == [question.run_id]
        await other.approvals.approve(question.id, by="ann")
        assert (await other.runs.get("job")).status == "queued"
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner())
        result = await client.execute_agent(top(), "", "go", run_id="job", on_ask="park")
        assert (result.status, result.response) == ("completed", "all done")
    assert done == ["a.txt"]


async def test_parent_whose_wake_up_was_lost_goes_on_with_its_child(tmp_path: Path) -> None:
    done: list[str] = []
    model = ScriptedModel(tool_call("delete", path="a"), "cleaned")
    cleaner = Agent("cleaner", mode="subagent", model=model, tools=[make_delete(done)])
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner)
        top = boss(tool_call("task", subagent_type="cleaner", prompt="clean"), "all done")
        parked = await client.execute_agent(top, "", "go", run_id="job", on_ask="park")
        [question] = await client.approvals.questions()
        # As after a crash right behind the answer: the child is woken, its parent is not.
        client._tell_above = _nothing  # type: ignore[method-assign]
        await client.approvals.approve(question.id, by="ann")
        assert (await client.runs.get("job")).status == "parked"
        result = await client.execute_agent(
            top, parked.session_id, "go", run_id="job", on_ask="park"
        )
        assert (result.status, done) == ("completed", ["a"])


async def _nothing(*_: object) -> None:
    return None


async def test_always_in_a_child_holds_for_the_whole_line(tmp_path: Path) -> None:
    done: list[str] = []
    asks = [{"permission": "*", "action": "allow"}, {"permission": "delete", "action": "ask"}]
    model = ScriptedModel(*[tool_call("delete", path="a"), "cleaned"] * 2)
    cleaner = Agent("cleaner", mode="subagent", model=model, tools=[make_delete(done)])
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner)
        errand = tool_call("task", subagent_type="cleaner", prompt="clean")
        top = boss(errand, "one", errand, "two", permission=asks)
        parked = await client.execute_agent(top, "", "go", run_id="one", on_ask="park")
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="ann", always=True)
        above = await client.get_session(parked.session_id)
        assert [(rule.permission, rule.pattern) for rule in above.permission] == [("delete", "a")]
        first = await client.execute_agent(top, above.id, "go", run_id="one", on_ask="park")
        assert first.status == "completed"
        # A new child asks its own agent's level only where no person has answered: the
        # parent's level is answered now, the child's own session is new.
        second = await client.execute_agent(top, above.id, "again", run_id="two", on_ask="park")
        assert second.status == "parked"
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="ann")
        second = await client.execute_agent(top, above.id, "again", run_id="two", on_ask="park")
        assert (second.status, done) == ("completed", ["a", "a"])


async def test_always_at_the_prompt_asks_once_for_a_whole_line(tmp_path: Path) -> None:
    done: list[str] = []
    asked: list[str] = []

    class Ann:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
            asked.append(request.agent_path)
            return ApprovalAnswer(verdict="allow", by="ann", rules=request.rules)

    asks = [{"permission": "*", "action": "allow"}, {"permission": "delete", "action": "ask"}]
    twice = [tool_call("delete", path="a"), tool_call("delete", path="a"), "cleaned"]
    cleaner = Agent(
        "cleaner", mode="subagent", model=ScriptedModel(*twice), tools=[make_delete(done)]
    )
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner)
        errand = tool_call("task", subagent_type="cleaner", prompt="clean")
        top = boss(errand, "one", permission=asks, approve=Ann())
        result = await client.execute_agent(top, "", "go")
        assert (result.status, done) == ("completed", ["a", "a"])
        assert asked == ["boss/cleaner"]
        above = await client.get_session(result.session_id)
        assert [(rule.permission, rule.pattern) for rule in above.permission] == [("delete", "a")]


async def test_cancelling_a_parked_parent_cancels_its_parked_child(tmp_path: Path) -> None:
    model = ScriptedModel(tool_call("delete", path="a"), "cleaned")
    cleaner = Agent("cleaner", mode="subagent", model=model, tools=[make_delete([])])
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(cleaner)
        top = boss(tool_call("task", subagent_type="cleaner", prompt="clean"), "all done")
        await client.execute_agent(top, "", "go", run_id="job", on_ask="park")
        [question] = await client.approvals.questions()
    async with AsyncClient(tmp_path / "state") as other:
        await other.runs.cancel("job", reason="enough")
        assert (await other.runs.get(question.run_id)).status == "cancelled"
        assert await other.approvals.questions() == []


async def test_parent_cancelled_by_another_client_takes_its_child_along(tmp_path: Path) -> None:
    never, begun = asyncio.Event(), asyncio.Event()

    async def work(_request: ModelRequest) -> str:
        begun.set()
        await never.wait()
        return "never"

    slow = Agent("slow", mode="subagent", model=FunctionModel(work))
    async with AsyncClient(tmp_path / "state") as client, AsyncClient(tmp_path / "state") as other:
        await client.register_agent(slow)
        top = boss(tool_call("task", subagent_type="slow", prompt="x"), "never")
        session = await client.create_session("Above")
        running = asyncio.create_task(client.execute_agent(top, session.id, "go", run_id="job"))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            await (await other.runs.turns()).cancel("job", reason="enough")
            result = await running
        assert result.status == "cancelled"
        runs = {one.event.run_id for one in await client.runs.family_events(session.id)} - {
            "",
            "job",
        }
        assert [(await client.runs.get(one)).status for one in runs] == ["cancelled"]


async def test_child_that_never_ends_is_told_to_and_its_parent_goes_on(tmp_path: Path) -> None:
    hold = asyncio.Event()
    slow = Agent("slow", mode="subagent", model=ScriptedModel(ModelReply(hold=hold)))
    settings = load_settings(overrides={"orchestration.time_s": 0.2}).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        await client.register_agent(slow)
        top = boss(tool_call("task", subagent_type="slow", prompt="x"), "without it")
        async with asyncio.timeout(WAIT_S):
            result = await client.execute_agent(top, "", "go")
        assert result.response == "without it"
        [call] = await call_parts(client, result.session_id)
        assert (call.state, call.metadata["status"]) == ("error", "cancelled")


def endless(kind: str) -> Agent:
    """An agent whose model never answers, or whose tool never returns."""
    hold = asyncio.Event()

    @tool(effect="read")
    async def stare() -> str:
        """Stare."""
        await hold.wait()
        return "seen"

    model = ScriptedModel(ModelReply(hold=hold) if kind == "model" else tool_call("stare"), "done")
    return Agent("slow", mode="subagent", model=model, tools=[stare])


async def ended_below(client: AsyncClient, session_id: str) -> list[str]:
    """How the runs below a session ended; those that have not ended are missing."""
    found = await client.runs.family_events(session_id)
    return [one.event.kind for one in found if one.depth and one.event.kind in ENDS]


@pytest.mark.parametrize("kind", ["model", "tool"])
async def test_child_that_never_ends_has_no_more_time_than_its_parent(
    tmp_path: Path, kind: str
) -> None:
    ends: list[str] = []
    for limit_s in LIMITS_S:
        async with AsyncClient(tmp_path / f"{limit_s}") as client:
            await client.register_agent(endless(kind))
            top = boss(tool_call("task", subagent_type="slow", prompt="x"), "too late")
            budget = Budget(max_wall_s=limit_s)
            async with asyncio.timeout(WAIT_S):
                result = await client.execute_agent(top, "", "go", budget=budget)
            assert (result.status, result.response) == ("failed", "")
            assert result.metadata["error"]["code"] == BudgetExceeded.code
            ends = await ended_below(client, result.session_id)
        if ends:
            break
    [end] = ends
    assert end in ("run.cancelled", "run.failed")


@pytest.mark.parametrize("kind", ["model", "tool"])
async def test_step_that_never_ends_has_no_more_time_than_its_workflow(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "model":
        # It ends by itself, however long a slow machine takes for that.
        monkeypatch.setattr(engine, "_GRACE_S", WAIT_S)
    for limit_s in LIMITS_S:
        async with AsyncClient(tmp_path / f"{limit_s}") as client:
            slow = endless(kind)
            await client.register_agent(slow)
            inner = Workflow("inner").step("one", agent="slow", message="x")
            flow = Workflow("outer").step("all", workflow=inner)
            async with asyncio.timeout(WAIT_S):
                result = await client.workflows.run(flow, budget=Budget(max_wall_s=limit_s))
        assert result.status == "failed"
        if slow.model.requests:
            break
    # The run of the step ends by its own time; what does not is ended with the workflow.
    wanted = StepFailed.code if kind == "model" else BudgetExceeded.code
    assert result.error["code"] == wanted


async def test_child_spends_from_its_parents_budget(tmp_path: Path) -> None:
    eager = Agent("eager", mode="subagent", model=FunctionModel(lambda _: "done"))
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(eager)
        errands = [tool_call("task", subagent_type="eager", prompt=f"{n}") for n in range(5)]
        top = boss(errands, "done")
        result = await client.execute_agent(top, "", "go", budget=Budget(max_calls=3))
        assert result.metadata["error"]["code"] == BudgetExceeded.code
        states = [call.state for call in await call_parts(client, result.session_id)]
        assert states.count("completed") == 2


async def test_batch_and_skill_limits_reach_the_child(tmp_path: Path) -> None:
    child = Agent(
        "child",
        mode="subagent",
        model=ScriptedModel(tool_call("glob", pattern="*"), "x"),
    )
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(child)
        rules = [*MAY_SEND, {"permission": "glob", "action": "deny"}]
        inner = {"tool": "task", "parameters": {"subagent_type": "child", "prompt": "look"}}
        top = boss(tool_call("batch", tool_calls=[inner]), "ok", permission=rules)
        result = await client.execute_agent(top, "", "go")
        assert result.status == "completed"
        page = await client.list_sessions()
        [below] = [one for one in page.items if one.parent_id == result.session_id]
        [call] = await call_parts(client, below.id)
        assert (call.tool, call.state) == ("glob", "error")


async def test_stop_at_the_prompt_of_a_child_ends_all_that_wait_for_it(tmp_path: Path) -> None:
    done: list[str] = []

    class Stops:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            return ApprovalAnswer(verdict="stop", by="ann")

    errand = tool_call("task", subagent_type="cleaner", prompt="clean")
    middle = Agent("middle", mode="subagent", model=ScriptedModel(errand), permission=MAY_SEND)
    asks = ScriptedModel(tool_call("delete", path="a"))
    cleaner = Agent("cleaner", mode="subagent", model=asks, tools=[make_delete(done)])
    async with AsyncClient(tmp_path / "state") as client:
        client.approver = Stops()
        await client.register_agent(middle)
        await client.register_agent(cleaner)
        top = boss(tool_call("task", subagent_type="middle", prompt="see to it"))
        async with asyncio.timeout(WAIT_S):
            result = await client.execute_agent(top, "", "go", run_id="job")
        assert (result.status, result.metadata["reason"]) == ("cancelled", "ann stopped the run")
        assert result.was_stopped
        runs = [await client.runs.get(run.id) for run in await client.runs.children("job")]
        assert [(run.status, run.stopped_by) for run in runs] == [("cancelled", "ann")] * 2
        assert len(top.model.requests) == len(middle.model.requests) == 1
    assert done == []


async def test_cancelling_a_child_is_no_stop_whatever_reason_is_given(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def answer(_: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    slow = Agent("slow", mode="subagent", model=FunctionModel(answer))
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(slow)
        top = boss(tool_call("task", subagent_type="slow", prompt="take your time"), "went on")
        run = asyncio.create_task(client.execute_agent(top, "", "go", run_id="job"))
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
            [child] = await client.runs.children("job")
            await client.runs.cancel(child.id, reason="ann stopped the run")
            result = await run
        assert (result.status, result.response) == ("completed", "went on")
        ended = await client.runs.get(child.id)
        assert (ended.status, ended.stopped_by) == ("cancelled", "")


async def test_stream_carries_what_children_do_under_their_path(tmp_path: Path) -> None:
    def middle() -> Agent:
        errand = tool_call("task", subagent_type="leaf", prompt="deeper")
        model = ScriptedModel(errand, "half")
        return Agent("middle", mode="subagent", model=model, permission=MAY_SEND)

    said: dict[bool, list[tuple[str, str]]] = {}
    for with_children in (False, True):
        async with AsyncClient(tmp_path / str(with_children)) as client:
            await client.register_agent(middle())
            leaf = Agent("leaf", mode="subagent", model=ScriptedModel("leaf"))
            await client.register_agent(leaf)
            top = boss(tool_call("task", subagent_type="middle", prompt="see to it"), "whole")
            heard = [
                item async for item in client.stream(top, "", "go", with_children=with_children)
            ]
            assert isinstance(heard[-1], AgentResult)
            below = {run.id: run.session_id for run in await client.runs.children(heard[-1].run_id)}
        pieces = [one for one in heard if isinstance(one, ChildPiece)]
        assert {one.run_id: one.session_id for one in pieces} == (below if with_children else {})
        said[with_children] = [
            (one.path, one.item.text) for one in pieces if isinstance(one.item, TextDelta)
        ]
    assert said == {False: [], True: [("boss/middle/leaf", "leaf"), ("boss/middle", "half")]}
