"""A run that was interrupted goes on, and no effect happens twice or unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import (
    NotFound,
    ResultNotStored,
    RunInterrupted,
    RunInTheWay,
    StorageFull,
    UsageError,
)
from holdfast.journal import AppendRequest, Store
from holdfast.orchestration.workflows import Workflow, WorkflowRequest
from holdfast.providers.model import TextDelta
from holdfast.sessions import Run, Session, compose
from holdfast.testing import ModelReply, ScriptedModel, tool_call
from holdfast.testing.fake_server import FakeServer
from holdfast.testing.fake_server import Reply as ServedReply
from holdfast.testing.vanishing import Vanished, leave, vanish
from holdfast.tools import Intent, Reconciliation, Tool, ToolContext, ToolResult
from holdfast.tools.effects import Effect
from holdfast.turns import Outcome, Turn


class Shop:
    """The outside world: charges that happened, by idempotency key."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.calls = 0

    def tool(self, effect: Effect, *, dies: AsyncClient | None = None) -> Tool:
        async def charge(amount: int, context: ToolContext) -> str:
            """Charge the customer."""
            self.calls += 1
            if effect != "idempotent" or context.idempotency_key not in self.charges:
                self.charges.append(context.idempotency_key)
            if dies is not None:
                await vanish(dies)
            return f"charged {amount}"

        async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
            if intent.idempotency_key in self.charges:
                return Reconciliation(verdict="happened", result=ToolResult("charged before"))
            return Reconciliation(verdict="not_happened")

        if effect == "reconcile":
            return tool(effect=effect, reconcile=reconcile)(charge)
        return tool(effect=effect)(charge)


async def _die_during_charge(path: Path, shop: Shop, effect: Effect) -> None:
    """Run until the charge has happened and its result is not recorded, then vanish."""
    client = AsyncClient(path)
    agent = Agent(
        "seller",
        model=ScriptedModel(tool_call("charge", amount=5)),
        tools=[shop.tool(effect, dies=client)],
    )
    with pytest.raises(Vanished):
        await agent.run("sell", run_id="job", client=client)
    await leave(client)


@pytest.mark.parametrize(
    ("effect", "calls", "answer"),
    [("idempotent", 2, "charged 5"), ("reconcile", 1, "charged before")],
)
async def test_interrupted_charge_happens_once(
    tmp_path: Path, effect: Effect, calls: int, answer: str
) -> None:
    shop = Shop()
    await _die_during_charge(tmp_path, shop, effect)
    model = ScriptedModel("sold")
    agent = Agent("seller", model=model, tools=[shop.tool(effect)])
    async with AsyncClient(tmp_path) as client:
        result = await agent.run("sell", run_id="job", client=client)
    assert (result.response, len(shop.charges), shop.calls) == ("sold", 1, calls)
    [part] = model.requests[0].messages[-1].tool_calls
    assert part.output == answer


@pytest.mark.parametrize(
    ("effect", "reason", "calls"), [("unsafe", "unknown_outcome", 1), ("idempotent", "", 2)]
)
async def test_a_charge_whose_result_found_no_space_is_neither_repeated_nor_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Effect, reason: str, calls: int
) -> None:
    """Even where there is space again for the end of the run, it does not end."""
    shop, model = Shop(), ScriptedModel(tool_call("charge", amount=5), "sold")
    agent = Agent("seller", model=model, tools=[shop.tool(effect)])
    async with AsyncClient(tmp_path) as client:
        store = (await client.storage.journal()).store
        with monkeypatch.context() as patched:
            patched.setattr(store, "append", _without_space_for(store, "message.part.updated"))
            with pytest.raises(RunInterrupted) as interrupted:
                await agent.run("sell", run_id="job", client=client)
        assert isinstance(interrupted.value.error, ResultNotStored)
        assert interrupted.value.run_id == "job" and interrupted.value.is_retryable
        result = await agent.run("sell", run_id="job", client=client)
        assert (result.metadata.get("reason", ""), shop.calls) == (reason, calls)
        questions = await client.approvals.questions()
        assert [one.tool for one in questions] == (["charge"] if reason else [])
        if reason:
            await client.approvals.decide_outcome(
                questions[0].session_id, questions[0].call_id, "happened", by="ada"
            )
            result = await agent.run("sell", run_id="job", client=client)
    assert (result.response, len(shop.charges)) == ("sold", 1)


def _without_space_for(store: Store, kind: str) -> Callable[[AppendRequest], Awaitable[object]]:
    append = store.append

    async def refuse(request: AppendRequest) -> object:
        if any(draft.kind == kind for draft in request.drafts):
            raise StorageFull(path="journal.db")
        return await append(request)

    return refuse


@pytest.mark.parametrize(
    ("verdict", "calls", "state"),
    [("happened", 1, "completed"), ("not_happened", 2, "completed"), ("abort", 1, "error")],
)
async def test_unsafe_charge_is_put_before_a_person(
    tmp_path: Path, verdict: str, calls: int, state: str
) -> None:
    shop = Shop()
    await _die_during_charge(tmp_path, shop, "unsafe")
    model = ScriptedModel("sold")
    agent = Agent("seller", model=model, tools=[shop.tool("unsafe")])
    async with AsyncClient(tmp_path) as client:
        parked = await agent.run("sell", run_id="job", client=client)
        assert (parked.status, parked.metadata["reason"]) == ("parked", "unknown_outcome")
        assert shop.calls == 1
        [question] = await client.approvals.questions()
        assert question.tool == "charge"
        await client.approvals.decide_outcome(
            parked.session_id, question.call_id, verdict, by="tester", result="told by a person"
        )
        result = await agent.run("sell", run_id="job", client=client)
        assert await client.approvals.questions() == []
    assert (result.response, shop.calls) == ("sold", calls)
    [part] = model.requests[0].messages[-1].tool_calls
    assert part.state == state


async def test_completed_model_call_and_tool_are_not_repeated_after_a_crash(
    tmp_path: Path,
) -> None:
    runs = []

    @tool(effect="unsafe")
    async def note(text: str) -> str:
        """Note something."""
        runs.append(text)
        return "noted"

    first = AsyncClient(tmp_path)
    model = ScriptedModel(
        tool_call("note", text="once"), ModelReply(text="half of", hold=asyncio.Event())
    )
    stream = Agent("a", model=model, tools=[note]).stream("go", run_id="job", client=first)
    async for item in stream:
        if isinstance(item, TextDelta):
            break
    # The process vanishes here: its lease runs out, its task never writes again.
    journal = await first.storage.journal()
    for head in await journal.store.heads():
        await journal.store.release(head.session_id, head.epoch)
    async with AsyncClient(tmp_path) as second:
        other = ScriptedModel("done")
        agent = Agent("a", model=other, tools=[note])
        result = await agent.run("go", run_id="job", client=second)
    assert (result.response, runs, len(other.requests)) == ("done", ["once"], 1)
    await stream.aclose()
    await first.close()


async def leave_behind(client: AsyncClient, session: Session, agent: str, **options: object) -> Run:
    turns = await client.runs.turns()
    message = compose(session.id, "user", "boo", 1.0)
    return await turns.submit(
        session.id, message, agent=agent, is_for_any_process=True, options=options
    )


async def test_run_left_behind_is_never_executed_with_another_agents_rights(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("shared")
        await client.register_agent(Agent("ghost", prompt="You are the ghost."))
        left = await leave_behind(client, session, "ghost")
        model = ScriptedModel("from the ghost", "from me")
        mine = Agent("me", model=model, prompt="You are me.")
        result = await mine.run("hello", session=session.id, client=client)
        ended = await client.runs.get(left.id)
    assert (result.response, ended.status) == ("from me", "completed")
    prompts = [request.system.partition(".")[0] for request in model.requests]
    assert prompts == ["You are the ghost", "You are me"]


async def test_run_of_an_unknown_agent_is_left_to_whoever_knows_it(tmp_path: Path) -> None:
    model = ScriptedModel("from me")
    mine = Agent("me", model=model)
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("shared")
        left = await leave_behind(client, session, "ghost")
        with pytest.raises(RunInTheWay) as caught:
            await mine.run("hello", session=session.id, run_id="mine", client=client)
        assert caught.value.context["run_id"] == left.id
        assert not (await client.runs.get(left.id)).has_ended
        # Its caller was told that it did not run, so it does not do so behind his back.
        assert (await client.runs.get("mine")).status == "cancelled"
    async with AsyncClient(tmp_path) as elsewhere:
        await elsewhere.register_agent(Agent("ghost", model=ScriptedModel("boo")))
        result = await elsewhere.execute_agent("ghost", session.id, "", run_id=left.id)
        assert result.response == "boo"
        again = await mine.run("hello", session=session.id, client=elsewhere)
    assert again.response == "from me"


async def test_run_that_this_very_process_gave_up_fails_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    """Its caller has been told, for example that the disk is full; nobody waits for it."""

    async def give_up(turn: Turn) -> Outcome:
        raise turn.make_in_the_way()

    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("shared")
        turns = await client.runs.turns()
        given_up = await turns.submit(session.id, agent="nowhere registered")
        with pytest.raises(RunInTheWay):
            await turns.run(given_up.id, give_up)
        mine = Agent("me", model=ScriptedModel("from me"))
        result = await mine.run("hello", session=session.id, client=client)
        assert result.response == "from me"
        ended = await client.runs.get(given_up.id)
    assert (ended.status, ended.error["code"]) == ("failed", NotFound.code)


async def test_call_by_hand_that_was_left_behind_is_made_and_not_told_to_the_agent(
    tmp_path: Path,
) -> None:
    model = ScriptedModel("from me")
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("shared", directory=tmp_path)
        turns = await client.runs.turns()
        wanted = {"tool": "glob", "arguments": {"pattern": "*.txt"}}
        left = await turns.submit(session.id, is_for_any_process=True, options={"call": wanted})
        mine = Agent("me", model=model, permission=[{"permission": "*", "action": "deny"}])
        result = await mine.run("hello", session=session.id, client=client)
        assert (await client.runs.get(left.id)).status == "completed"
        [call] = await client.get_execution_history(session.id)
    assert (call.tool, call.state) == ("glob", "completed")
    assert (result.response, len(model.requests)) == ("from me", 1)


@pytest.mark.parametrize("kind", ["workflow", "loop"])
async def test_agents_workflows_and_loops_leave_one_anothers_runs_alone(
    tmp_path: Path, kind: str
) -> None:
    """Each stands first in a session where the other one wants to go on."""
    mine = Agent("me", model=ScriptedModel("from me"))
    async with AsyncClient(tmp_path) as client:
        turns = await client.runs.turns()
        shared = await client.create_session("shared")
        other = "workflow:flow" if kind == "workflow" else "loop"
        left = await leave_behind(client, shared, other)
        with pytest.raises(RunInTheWay):
            await mine.run("hello", session=shared.id, client=client)
        assert not (await client.runs.get(left.id)).has_ended
        own = await client.create_session("own")
        first = await leave_behind(client, own, "ghost")
        order = WorkflowRequest(
            definition=Workflow("flow").step("a", value="x").definition, inputs={}
        )
        behind = await leave_behind(client, own, other, **order.to_options())
        with pytest.raises(RunInTheWay) as caught:
            if kind == "workflow":
                await client.workflows.resume(behind.id)
            else:
                await client.loops.run("", run_id=behind.id)
        assert caught.value.context["run_id"] == first.id
        for run in (first, behind):
            assert not (await turns.get(run.id)).has_ended


async def test_no_other_agent_goes_on_with_a_run(tmp_path: Path) -> None:
    shop = Shop()
    await _die_during_charge(tmp_path, shop, "unsafe")
    async with AsyncClient(tmp_path) as client:
        other = Agent("thief", model=ScriptedModel("mine"), tools=[shop.tool("read")])
        with pytest.raises(UsageError):
            await other.run("go on", run_id="job", client=client)
        run = await (await client.runs.turns()).get("job")
        assert (run.agent, run.has_ended) == ("seller", False)
    assert shop.calls == 1


async def test_run_goes_on_with_the_options_that_it_began_with(tmp_path: Path) -> None:
    @tool(permission="ask")
    def charge() -> str:
        """Charge the customer."""
        return "charged"

    agent = Agent("seller", tools=[charge], options={"seed": 1, "user": "me"})
    async with AsyncClient(tmp_path) as client:
        first = ScriptedModel(tool_call("charge"))
        await client.execute_agent(
            agent, "", "sell", {"seed": 2}, run_id="job", model=first, on_ask="park"
        )
        [question] = await client.approvals.questions()
        await client.approvals.approve(question.id, by="me")
    second = ScriptedModel("sold")
    async with AsyncClient(tmp_path) as client:
        result = await client.execute_agent(agent, "", "", run_id="job", model=second)
    assert result.response == "sold"
    assert [one.requests[0].options for one in (first, second)] == [{"seed": 2, "user": "me"}] * 2


async def test_run_left_behind_uses_its_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([ServedReply(text="boo")], wires=["chat"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        monkeypatch.setenv("AGENT_FORCE_CHAT_COMPLETIONS", "true")
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("shared")
            await client.register_agent(Agent("ghost"))
            left = await leave_behind(client, session, "ghost", model="openai:gpt-5.2")
            mine = Agent("me", model=ScriptedModel("from me"))
            result = await mine.run("hello", session=session.id, client=client)
            ended = await client.runs.get(left.id)
    assert (result.response, ended.status) == ("from me", "completed")
    assert [request.json["model"] for request in server.requests if request.json] == ["gpt-5.2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_ask": "prak"},
        {"on_busy": "intrrupt"},
        {"budget": {"max_tokens": 1}},
        {"options": 5},
        {"options": {"k": object()}},
    ],
)
async def test_wish_that_nobody_can_grant_is_refused_before_anything_happens(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("one")
        with pytest.raises(UsageError) as refused:
            await client.execute_agent(
                Agent("me", model=ScriptedModel("never")), session.id, "hello", **wrong
            )
        assert await client.events.count(session.id) == 1
    assert refused.value.code == UsageError.code


async def test_two_who_begin_the_same_run_at_once_share_it(tmp_path: Path) -> None:
    is_ready, may_go = asyncio.Event(), asyncio.Event()

    async def wait(message: str) -> str:
        is_ready.set()
        await may_go.wait()
        return message

    late = Agent("seller", model=ScriptedModel("never")).wrapped(before=wait)
    async with AsyncClient(tmp_path) as one, AsyncClient(tmp_path) as other:
        behind = asyncio.create_task(late.run("sell", run_id="job", client=one))
        await asyncio.wait_for(is_ready.wait(), 10)
        agent = Agent("seller", model=ScriptedModel("sold"))
        first = await agent.run("sell", run_id="job", client=other)
        may_go.set()
        second = await behind
        sessions = (await one.list_sessions()).items
    assert (first.response, second.response) == ("sold", "sold")
    assert [session.id for session in sessions] == [first.session_id]
