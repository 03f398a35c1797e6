"""AgentOrchestrator: others work for an agent, and every result comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, toolset
from holdfast.errors import AgentTimeout, BudgetExceeded, DelegationRefused, NotFound, UsageError
from holdfast.hooks.points import AgentBeforeExecution
from holdfast.orchestration.delegation import AgentTask, DelegationLimits
from holdfast.policy import Budget
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call
from holdfast.tools import tool

WAIT_S = 20


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


@tool(effect="read")
async def peek(at: str) -> str:
    """Peek."""
    return f"peeked {at}"


def echo(request: ModelRequest) -> str:
    return f"did {request.messages[-1].text}"


def worker(name: str = "worker", **fields: object) -> Agent:
    fields.setdefault("model", FunctionModel(echo))
    return Agent(name, mode="subagent", **fields)  # type: ignore[arg-type]


def error_code(result: object) -> str:
    return result.metadata["error"]["code"]  # type: ignore[attr-defined]


async def calls_of(client: AsyncClient, session_id: str) -> dict[str, str]:
    page = await client.list_messages(session_id)
    return {call.tool: call.state for message in page.items for call in message.tool_calls}


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("left", [{"tool_ids": ["look", "lok"]}, {"skill_names": ["tea"]}])
async def test_tools_and_skills_that_there_are_not_are_refused_before_anything_is_kept(
    tmp_path: Path, left: dict[str, list[str]], is_observed: bool
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        await client.register_tool(look)
        session = await client.create_session("Above", directory=tmp_path)
        if is_observed:
            await client.events.subscribe("*", lambda _event: None)
        orchestrator = await client.runs.orchestrator()
        result = await orchestrator.delegate_task(Agent("boss"), "worker", "go", session.id, **left)
        assert (result.status, error_code(result)) == ("failed", NotFound.code)
        assert [one.id for one in (await client.list_sessions()).items] == [session.id]
        with pytest.raises(UsageError):
            await orchestrator.delegate_task(Agent("boss"), "worker", "go", session.id, "look")


async def test_tools_of_the_agent_and_patterns_can_be_left_to_a_child(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker(tools=[peek, *toolset("todo")]))
        session = await client.create_session("Above", directory=tmp_path)
        orchestrator = await client.runs.orchestrator()
        result = await orchestrator.delegate_task(
            Agent("boss"), "worker", "go", session.id, ["Peek", "todo*"]
        )
        assert result.status == "completed"


async def test_child_works_in_a_session_below_the_callers(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        session = await client.create_session("Above", directory=tmp_path)
        orchestrator = await client.runs.orchestrator()
        result = await orchestrator.delegate_task(
            Agent("boss"), "worker", "the work", session.id, [], []
        )
        assert (result.status, result.response) == ("completed", "did the work")
        child = await client.get_session(result.session_id)
        assert child.parent_id == session.id
        assert child.directory == session.directory
        found = await client.runs.family_events(session.id)
        assert {one.path for one in found if one.depth == 1} == {"boss/worker"}
        seqs = [one.event.seq for one in found]
        assert seqs == sorted(seqs)
        # Nothing is stored twice: the parent's own log holds nothing of the child.
        assert len(await client.events.list(session.id)) == 1


async def test_child_is_there_with_its_run_and_before_it_where_somebody_listens(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        session = await client.create_session("Above")
        orchestrator = await client.runs.orchestrator()
        plain = await orchestrator.delegate_task(Agent("boss"), "worker", "one", session.id)
        first = [event.kind for event in await client.events.list(plain.session_id)][:3]
        assert first == ["session.created", "run.queued", "run.started"]
        titles: list[str] = []

        async def look(point: AgentBeforeExecution) -> None:
            titles.append((await client.get_session(point.session_id)).title)

        client.hooks.observe(AgentBeforeExecution, look)
        told = await orchestrator.delegate_task(Agent("boss"), "worker", "two", session.id)
        assert (told.status, titles) == ("completed", ["two"])


async def test_child_has_neither_the_rights_nor_the_tools_that_its_starter_lacks(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        calls = [tool_call("look", at="a"), tool_call("peek", at="a")]
        await client.register_agent(
            worker("one", model=ScriptedModel(calls, "x"), tools=[look, peek])
        )
        await client.register_agent(
            worker("two", model=ScriptedModel(calls, "x"), tools=[look, peek])
        )
        session = await client.create_session("Above")
        orchestrator = await client.runs.orchestrator()
        boss = Agent("boss", denied_tools=["peek"])
        one = await orchestrator.delegate_task(boss, "one", "go", session.id)
        assert await calls_of(client, one.session_id) == {"look": "completed", "peek": "error"}
        two = await orchestrator.delegate_task(Agent("free"), "two", "go", session.id, ["peek"], [])
        assert await calls_of(client, two.session_id) == {"look": "error", "peek": "completed"}


async def test_every_result_comes_back_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        never = asyncio.Event()
        await client.register_agent(worker())
        await client.register_agent(worker("broken", model=ScriptedModel(RuntimeError("no"))))
        await client.register_agent(worker("clumsy").wrapped(before=lambda _: 1 // 0))
        await client.register_agent(worker("endless", model=ScriptedModel(ModelReply(hold=never))))
        session = await client.create_session("Above")
        tasks = [
            AgentTask(agent_name="worker", description="first"),
            AgentTask(agent_name="broken", description="second"),
            AgentTask(agent_name="nobody", description="third"),
            AgentTask(agent_name="endless", description="fourth"),
            AgentTask(agent_name="worker", description="fifth"),
            AgentTask(agent_name="clumsy", description="sixth"),
        ]
        # A slow machine may not be done with the others within a short limit.
        for limit_s in (0.3, 2.0, 8.0):
            orchestrator = await client.runs.orchestrator(limits=DelegationLimits(time_s=limit_s))
            async with asyncio.timeout(WAIT_S):
                results = await orchestrator.run_parallel_agents(tasks, session.id)
            if [one.status for one in results].count("cancelled") == 1:
                break
        assert [one.agent_name for one in results] == [one.agent_name for one in tasks]
        states = [one.status for one in results]
        assert states == ["completed", "failed", "failed", "cancelled", "completed", "failed"]
        assert results[0].response == "did first"
        assert error_code(results[2]) == NotFound.code
        assert error_code(results[3]) == AgentTimeout.code
        assert (await client.runs.get(results[3].run_id)).status == "cancelled"


async def test_no_more_than_the_limit_work_at_the_same_time(tmp_path: Path) -> None:
    busy, most = 0, 0
    gate = asyncio.Event()

    async def work(_request: ModelRequest) -> str:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if busy == 3:
            gate.set()
        async with asyncio.timeout(WAIT_S):
            await gate.wait()
        busy -= 1
        return "done"

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker(model=FunctionModel(work)))
        session = await client.create_session("Above")
        orchestrator = await client.runs.orchestrator(limits=DelegationLimits(parallel=3))
        tasks = [AgentTask(agent_name="worker", description=f"{n}") for n in range(12)]
        results = await orchestrator.run_parallel_agents(tasks, session.id)
        assert [one.response for one in results] == ["done"] * 12
        assert most == 3


async def test_breadth_depth_and_total_are_limited(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        session = await client.create_session("Above")
        tasks = [AgentTask(agent_name="worker", description=f"{n}") for n in range(4)]
        for limits in (DelegationLimits(breadth=2), DelegationLimits(total=2)):
            orchestrator = await client.runs.orchestrator(
                limits=limits, run_id=f"job-{limits.total}"
            )
            results = await orchestrator.run_parallel_agents(tasks, session.id)
            assert [one.status for one in results] == ["completed"] * 2 + ["failed"] * 2
            assert {error_code(one) for one in results[2:]} == {DelegationRefused.code}
        child = results[0].session_id
        deep = await client.runs.orchestrator(limits=DelegationLimits(depth=1), agent=Agent("a"))
        [refused] = await deep.run_parallel_agents(tasks[:1], child)
        assert error_code(refused) == DelegationRefused.code


async def test_same_calls_again_repeat_nothing_that_is_finished(tmp_path: Path) -> None:
    asked: list[str] = []

    def work(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return f"done {request.messages[-1].text}"

    tasks = [AgentTask(agent_name="worker", description=f"{n % 2}") for n in range(4)]
    for _ in range(2):
        async with AsyncClient(tmp_path / "state") as client:
            await client.register_agent(worker(model=FunctionModel(work)))
            session = await client.list_sessions()
            above = next((one.id for one in session.items if one.title == "Above"), "")
            above = above or (await client.create_session("Above")).id
            orchestrator = await client.runs.orchestrator(run_id="job")
            results = await orchestrator.run_parallel_agents(tasks, above)
            assert [one.response for one in results] == ["done 0", "done 1", "done 0", "done 1"]
    assert sorted(asked) == ["0", "0", "1", "1"]


async def test_cancelling_the_caller_cancels_the_children(tmp_path: Path) -> None:
    never, begun = asyncio.Event(), asyncio.Event()

    async def work(_request: ModelRequest) -> str:
        begun.set()
        await never.wait()
        return "never"

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker(model=FunctionModel(work)))
        session = await client.create_session("Above")
        orchestrator = await client.runs.orchestrator(run_id="job")
        tasks = [AgentTask(agent_name="worker", description=f"{n}") for n in range(3)]
        work_task = asyncio.create_task(orchestrator.run_parallel_agents(tasks, session.id))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            work_task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work_task
        runs = {one.event.run_id for one in await client.runs.family_events(session.id)} - {""}
        assert runs
        assert {(await client.runs.get(one)).status for one in runs} == {"cancelled"}


async def test_another_client_cancels_what_an_orchestrator_started(tmp_path: Path) -> None:
    never, begun = asyncio.Event(), asyncio.Event()

    async def work(_request: ModelRequest) -> str:
        begun.set()
        await never.wait()
        return "never"

    async with AsyncClient(tmp_path / "state") as client, AsyncClient(tmp_path / "state") as other:
        await client.register_agent(worker(model=FunctionModel(work)))
        session = await client.create_session("Above")
        orchestrator = await client.runs.orchestrator(run_id="job")
        running = asyncio.create_task(
            orchestrator.delegate_task(Agent("boss"), "worker", "go", session.id)
        )
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            assert await other.runs.cancel_children("job", reason="enough") == 1
            result = await running
        assert (result.status, result.metadata["reason"]) == ("cancelled", "enough")


async def test_all_children_together_stay_below_one_budget(tmp_path: Path) -> None:
    asked = 0

    def work(_request: ModelRequest) -> str:
        nonlocal asked
        asked += 1
        return "done"

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker(model=FunctionModel(work)))
        session = await client.create_session("Above")
        tasks = [AgentTask(agent_name="worker", description=f"{n}") for n in range(50)]
        orchestrator = await client.runs.orchestrator(run_id="job", budget=Budget(max_calls=7))
        results = await orchestrator.run_parallel_agents(tasks, session.id)
        assert [one.status for one in results].count("completed") == asked == 7
        assert {error_code(one) for one in results if one.status == "failed"} == {
            BudgetExceeded.code
        }
    async with AsyncClient(tmp_path / "state") as client:
        # What they spent is known after a restart.
        await client.register_agent(worker(model=FunctionModel(work)))
        orchestrator = await client.runs.orchestrator(run_id="job", budget=Budget(max_calls=8))
        more = [AgentTask(agent_name="worker", description=f"more {n}") for n in range(3)]
        results = await orchestrator.run_parallel_agents(more, session.id)
        assert [one.status for one in results].count("completed") == 1
        assert asked == 8


async def test_sessions_budget_counts_what_its_children_spend(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        session = await client.create_session("Above", metadata={"budget": {"max_calls": 3}})
        orchestrator = await client.runs.orchestrator()
        tasks = [AgentTask(agent_name="worker", description=f"{n}") for n in range(5)]
        results = await orchestrator.run_parallel_agents(tasks, session.id)
        assert [one.status for one in results].count("completed") == 3
        own = await client.execute_agent(worker("own"), session.id, "me too")
        assert error_code(own) == BudgetExceeded.code


async def test_childrens_events_are_seen_live_under_their_parent(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(worker())
        session = await client.create_session("Above")
        stranger = await client.create_session("Stranger")
        orchestrator = await client.runs.orchestrator()
        heard: list[str] = []
        seen: list[tuple[str, str]] = []

        async def listen(after: int) -> None:
            async for event in client.events.stream(
                ("model.completed", "run.completed"),
                after=after,
                session_id=session.id,
                with_children=True,
            ):
                heard.append(event.session_id)
                if event.name == "run.completed":
                    return

        async def watch(after: int) -> None:
            async for one in client.runs.watch_family(session.id, after=after):
                seen.append((one.path, one.event.kind))
                if one.event.kind == "run.completed":
                    return

        now = await (await client.storage.journal()).read_last_seq()
        tasks = [asyncio.create_task(listen(now)), asyncio.create_task(watch(now))]
        async with asyncio.timeout(WAIT_S):
            await client.execute_agent(worker("other"), stranger.id, "x")
            result = await orchestrator.delegate_task(Agent("boss"), "worker", "go", session.id)
            await asyncio.gather(*tasks)
        assert set(heard) == {result.session_id}
        assert ("boss/worker", "message.created") in seen
        assert not any("other" in path for path, _ in seen)
