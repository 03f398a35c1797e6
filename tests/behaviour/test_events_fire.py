"""Every name of an event is heard by a subscriber, and every kind of fact has its test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.agents.handoff import transfer_to
from holdfast.errors import LLMOverloaded
from holdfast.hooks import VIEWS, BusEvent, QueueOptions
from holdfast.hooks.names import EPHEMERAL
from holdfast.journal import list_known_kinds
from holdfast.messages import TextPart
from holdfast.orchestration.delegation import AgentTask
from holdfast.orchestration.loop import LoopSetup
from holdfast.orchestration.workflows import Workflow
from holdfast.policy.budgets import Budget
from holdfast.providers import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call
from holdfast.tools import ToolContext

TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    "identity.": "unit/server/test_tenants.py",
    "webhook.": "unit/webhooks/test_webhooks.py",
    "policy.violation": "unit/policy/test_policy_store.py",
    "loop.": "behaviour/loop/test_loop.py",
    "plan.": "behaviour/loop/test_loop.py",
    "request.": "unit/server/test_requests.py",
    "step.": "behaviour/loop/test_loop.py",
    "tool.state_set": "behaviour/state/test_state.py",
    "trigger.": "behaviour/triggers/test_triggers.py",
}
"""Facts that a test shows without saying their name, by the beginning of the name."""


@tool(effect="read")
async def look(context: ToolContext) -> str:
    """Look, and say how far it is."""
    context.report("half", fraction=0.5)
    return "x" * 100_000


@tool(effect="read")
async def fail() -> str:
    """Fail."""
    raise RuntimeError("no luck")


@tool(effect="unsafe", permission="ask")
async def act() -> str:
    """Do something that asks."""
    return "acted"


@tool(effect="unsafe", permission="deny")
async def wipe() -> str:
    """Do something forbidden."""
    return "wiped"


async def converse(client: AsyncClient, session_id: str) -> None:
    """Run an agent through everything that a run may meet."""
    model = ScriptedModel(
        ModelReply(text="hm", reasoning="let me see", calls=(tool_call("look"), tool_call("fail"))),
        [tool_call("wipe"), tool_call("act")],
        "done",
    )
    worker = Agent("worker", model=model, tools=[look, fail, act, wipe])
    result = await client.execute_agent(
        worker, session_id, "go", run_id="job", on_ask="park", budget=Budget(max_tokens=10**6)
    )
    assert result.status == "parked"
    [asked] = await client.approvals.list()
    await client.approvals.approve(asked.id, by="ann")
    items = client.stream_agent(worker, session_id, "go", run_id="job")
    assert [item async for item in items][-1].response == "done"  # type: ignore[union-attr]
    broken = Agent("broken", model=ScriptedModel(LLMOverloaded(provider="test", detail="no")))
    assert (await client.execute_agent(broken, session_id, "go")).status == "failed"


async def cancel(client: AsyncClient, session_id: str) -> None:
    reached = asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Hang."""
        reached.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("hanging", model=ScriptedModel(tool_call("hang")), tools=[hang])
    run = asyncio.create_task(client.execute_agent(agent, session_id, "go", run_id="stuck"))
    async with asyncio.timeout(30):
        await reached.wait()
        await client.runs.steer(session_id, "hurry")
        await client.runs.cancel("stuck")
        await run
        for waiting in await client.runs.interrupted():
            await client.runs.cancel(waiting.id)


async def keep_house(client: AsyncClient, session_id: str) -> None:
    """Do to a session what people do to sessions."""
    message = await client.add_message(session_id, "user", "a note")
    part = TextPart(id=message.parts[0].id, text="another note")
    await client.messages.update_part(session_id, message.id, part)
    await client.delete_message(session_id, message.id)
    talker = Agent("talker", model=ScriptedModel("a long answer " * 300))
    for _ in range(3):
        await client.execute_agent(talker, session_id, "go on " * 300)
    assert await client.sessions.compact(session_id, model=ScriptedModel("in short"))
    fork = await client.fork_session(session_id)
    await client.update_session(fork.id, title="another")
    await client.revert_session(fork.id, to=1)
    await client.archive_session(fork.id)
    await client.restore_session(fork.id)
    await client.delete_session(fork.id)
    memory = await client.store_memory(session_id, "the kettle is blue")
    await client.memory.update(memory, "the kettle is red")
    events = await client.events.list(session_id)
    said = next(event.session_seq for event in events if event.kind == "message.created")
    await (await client.storage.journal()).redact(session_id, [said], reason="asked to")
    artifact = await client.artifacts.save("note.txt", b"a note", session_id=session_id)
    await client.artifacts.delete(artifact.id)
    await client.register_agent(Agent("registered"))
    await client.remove_agent("registered")
    await client.state.set("user/kettle", "blue")
    await client.state.set("user/kettle", "red", expected=0, on_conflict="last-writer")


async def hand_over(client: AsyncClient) -> None:
    """Let one agent hand its conversation over to another."""
    await client.register_agent(Agent("billing", model=ScriptedModel("refunded")))
    model = ScriptedModel(tool_call("transfer_to", agent="billing", message="wants a refund"))
    desk = Agent("desk", model=model, tools=[transfer_to(["billing"])])
    assert (await client.execute_agent(desk, "", "go")).response == "refunded"


async def delegate(client: AsyncClient, session_id: str) -> None:
    """Let agents work for others: one is done, one fails, one is stopped; one spends too much."""
    broken = ScriptedModel(LLMOverloaded(provider="test", detail="no"))
    await client.register_agent(Agent("helper", model=ScriptedModel("helped"), mode="subagent"))
    await client.register_agent(Agent("clumsy", model=broken, mode="subagent"))
    reached = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel(tool_call("wait"))
    await client.register_agent(Agent("slow", model=model, mode="subagent", tools=[wait]))
    orchestrator = await client.runs.orchestrator()
    tasks = [AgentTask(agent_name=name, description="go") for name in ("helper", "clumsy")]
    results = await orchestrator.run_parallel_agents(tasks, session_id)
    assert [result.status for result in results] == ["completed", "failed"]
    stopped = asyncio.create_task(
        orchestrator.run_parallel_agents(
            [AgentTask(agent_name="slow", description="go")], session_id
        )
    )
    async with asyncio.timeout(30):
        await reached.wait()
    stopped.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    spender = Agent("spender", model=ScriptedModel("never"), budget=Budget(max_tokens=1))
    assert (await client.execute_agent(spender, "", "go")).status == "failed"


def play(request: ModelRequest) -> str:
    """Plan, work or review, as the form asks for."""
    fields = (request.output_schema or {}).get("properties", {})
    if "steps" in fields:
        check = {"kind": "function", "function": "is_there"}
        step = {"id": "greet", "title": "Greet", "instruction": "Say hello.", "checks": [check]}
        return json.dumps({"steps": [step]})
    if "verdict" in fields:
        return json.dumps({"verdict": "accept", "reason": "It is a greeting."})
    return "Hello!"


async def reach_goal(client: AsyncClient) -> None:
    """Let the loop plan a step and do it."""
    functions = {"is_there": lambda evidence: bool(evidence.answer)}
    setup = LoopSetup(model=FunctionModel(play), functions=functions)
    assert (await client.loops.run("Greet the reader", options=setup)).outcome == "done"


async def run_script(client: AsyncClient) -> None:
    """Let a script be asked before a tool is called."""
    client.hooks.on_script("tool.before_execution", ["/bin/true"], is_guard=True)
    await client.tools.call("todoread", {})


async def flow(client: AsyncClient) -> None:
    """Run a workflow that works, and one whose step fails."""
    good = Workflow("good").step("one", tool=look, args={})
    good = good.step("two", tool=look, args={}, when="false")
    assert (await client.workflows.run(good)).status == "completed"
    bad = Workflow("bad").step("one", tool=fail, args={})
    assert (await client.workflows.run(bad)).status == "failed"


async def heard_names(folder: Path) -> set[str]:
    heard: set[str] = set()

    async def note(event: BusEvent) -> None:
        heard.add(event.name)

    limits = {"budget.max_tokens": 10**9, "policies.dir": str(folder / "policies")}
    settings = load_settings(overrides=limits).settings
    async with AsyncClient(folder / "state", settings=settings) as client:
        # A subscription per name: one for everything hears a fact under its kind only.
        names = {
            *list_known_kinds(),
            *EPHEMERAL,
            *(view for views in VIEWS.values() for view in views),
        }
        for name in sorted(names):
            await client.events.subscribe(name, note, options=QueueOptions(size=5_000))
        session = await client.create_session("work")
        await converse(client, session.id)
        await cancel(client, session.id)
        await keep_house(client, session.id)
        await flow(client)
        await hand_over(client)
        await delegate(client, session.id)
        await reach_goal(client)
        await run_script(client)
        await client.events.settle()
    return heard


def mentioned() -> str:
    """All tests but this one, as text."""
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


async def test_every_name_is_heard_and_every_kind_of_fact_has_a_test(tmp_path: Path) -> None:
    heard = await heard_names(tmp_path)
    views = {view for views in VIEWS.values() for view in views}
    assert views - heard == set()
    assert set(EPHEMERAL) - heard == set()
    # What needs a crash, a policy or a second machine is shown by tests of its own.
    text = mentioned()
    unproven = {
        kind
        for kind, cls in sorted(list_known_kinds().items())
        if kind not in heard
        and not kind.startswith(tuple(ELSEWHERE))
        and f'"{kind}"' not in text
        and cls.__name__ not in text
    }
    assert unproven == set()
    assert {"agent.handed_off", "state.changed", "state.conflict"} <= heard
    assert all((TESTS / file).exists() for file in ELSEWHERE.values())
