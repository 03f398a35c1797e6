"""A child never has a right that its parent lacks, whichever way it was started.

Each example draws rules for two or three agents and lets the last one call a few tools. It is
started in every way there is; whatever it then did, its starter would have been allowed to.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Agent, AsyncClient
from holdfast.agents.handoff import transfer_to
from holdfast.agents.launch import Launch
from holdfast.agents.lineage import below
from holdfast.orchestration.delegation import AgentTask
from holdfast.orchestration.workflows import Workflow
from holdfast.policy import CallRequest, Rights, RuleSet, decide
from holdfast.providers.model import ModelRequest
from holdfast.sessions import PermissionRule
from holdfast.skills import Skill
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools import ToolContext, tool

NAMES = ("touch", "wipe")
TARGETS = ("a", "b")
RULES = st.lists(
    st.builds(
        PermissionRule,
        permission=st.sampled_from([*NAMES, "*"]),
        pattern=st.sampled_from([*TARGETS, "*"]),
        action=st.sampled_from(["allow", "deny", "ask"]),
    ),
    max_size=4,
)
SANDBOXES = st.sampled_from(["read-only", "workspace-write"])
SKILLS = st.none() | st.sets(st.sampled_from(["one", "two"])).map(tuple)
STARTING = PermissionRule(permission="*", action="allow")
MAY_START = [
    PermissionRule(permission=name, action="allow")
    for name in ("task", "batch", "mid", "low", "transfer_to", "skill")
]

Way = Callable[[AsyncClient, Agent, Agent, str, Any], Awaitable[object]]


class World:
    """What the child did: calls that ran, sandboxes it saw, skills it loaded."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.read_only: list[bool] = []

    def tools(self) -> list[Any]:
        @tool(effect="read", target="at")
        async def touch(at: str, context: ToolContext) -> str:
            """Touch."""
            self.done.append(("touch", at))
            self.read_only.append(context.is_read_only)
            return "ok"

        @tool(effect="read", target="at", permission="ask")
        async def wipe(at: str, context: ToolContext) -> str:
            """Wipe."""
            self.done.append(("wipe", at))
            self.read_only.append(context.is_read_only)
            return "ok"

        return [touch, wipe]


def calling(*calls: Any) -> FunctionModel:
    """A model that makes its calls, then says that it is done."""

    def answer(request: ModelRequest) -> Any:
        return "done" if request.messages[-1].role == "tool" else list(calls)

    return FunctionModel(answer)


def child_agent(rules: list[PermissionRule], world: World, sandbox: Any) -> Agent:
    calls = [tool_call(name, at=at) for name in NAMES for at in TARGETS]
    calls += [tool_call("skill", name=name) for name in ("one", "two")]
    return Agent(
        "low",
        mode="subagent",
        model=calling(*calls),
        tools=world.tools(),
        permission=[*rules, *MAY_START],
        sandbox=sandbox,
    )


def starter(rules: list[PermissionRule], sandbox: Any, name: str = "top") -> Agent:
    return Agent(name, mode="all", permission=[*rules, *MAY_START], sandbox=sandbox)


async def launch(client: AsyncClient, agent: Agent, session_id: str, skills: Any) -> object:
    return await client.launch(
        Launch(message="go", agent=agent, session_id=session_id, skill_names=skills)
    )


async def by_task(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    call = tool_call("task", agent="low", task="go")
    return await launch(client, top.wrapped(model=calling(call)), at, skills)


async def by_batch(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    inner = {"tool": "task", "parameters": {"agent": "low", "task": "go"}}
    model = calling(tool_call("batch", tool_calls=[inner]))
    return await launch(client, top.wrapped(model=model), at, skills)


async def by_tool(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    agent = top.wrapped(model=calling(tool_call("low", task="go")), tools=[low.as_tool()])
    return await launch(client, agent, at, skills)


async def by_hand_off(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    call = tool_call("transfer_to", agent="low", message="go")
    agent = top.wrapped(model=calling(call), tools=[transfer_to(["low"])])
    return await launch(client, agent, at, skills)


async def by_grandchild(
    client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any
) -> object:
    """Through an agent that may do everything itself."""
    middle = Agent("mid", permission=[STARTING], tools=[low.as_tool()])
    middle = middle.wrapped(model=calling(tool_call("low", task="go")))
    agent = top.wrapped(model=calling(tool_call("mid", task="go")), tools=[middle.as_tool()])
    return await launch(client, agent, at, skills)


async def by_delegation(
    client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any
) -> object:
    orchestrator = await client.orchestrator()
    return await orchestrator.delegate_task(top, "low", "go", at, None, skills)


async def by_parallel(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    orchestrator = await client.orchestrator(agent=top)
    tasks = [AgentTask(agent_name="low", description="go", skill_names=skills)] * 2
    return await orchestrator.run_parallel_agents(tasks, at)


async def by_workflow(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    """From a session that the starter began; a workflow takes no skills away by itself."""
    lineage = below(top, await client.get_session(at), skill_names=skills)
    session = await client.create_session("Mid", parent_id=at, metadata=lineage.to_metadata())
    flow = Workflow("flow").step("one", agent="low", message="go")
    return await client.run_workflow(flow, parent_id=session.id)


WAYS: tuple[Way, ...] = (
    by_workflow,
    by_task,
    by_batch,
    by_tool,
    by_hand_off,
    by_grandchild,
    by_delegation,
    by_parallel,
)


def may(rules: list[PermissionRule], session: list[PermissionRule], name: str, at: str) -> bool:
    """Say whether somebody with these rules could have made a call, without asking."""
    default = "ask" if name == "wipe" else "allow"
    request = CallRequest(permission=name, targets=(at,), target_kind="text", default=default)
    own = Rights(agent=RuleSet(rules=(*rules, *MAY_START)), session=RuleSet(rules=tuple(session)))
    return decide(request, agent=own.agent, session=own.session).action == "allow"


async def loaded(client: AsyncClient, session_id: str) -> set[str]:
    """The skills that were loaded below a session."""
    names: set[str] = set()
    for one in {each.event.session_id for each in await client.family_events(session_id)}:
        for message in (await client.list_messages(one)).items:
            names |= {
                str(call.input["name"])
                for call in message.tool_calls
                if call.tool == "skill" and call.state == "completed"
            }
    return names


@contextlib.asynccontextmanager
async def client_with(low: Agent) -> AsyncIterator[AsyncClient]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncClient(folder) as client:
            await client.register_agent(low)
            for name in ("one", "two"):
                await client.register_skill(Skill(name=name, description=name, content="Do it."))
            yield client


@given(
    above=RULES, under=RULES, person=RULES, above_box=SANDBOXES, below_box=SANDBOXES, skills=SKILLS
)
@settings(max_examples=8, deadline=None)
async def test_child_does_nothing_that_its_starter_may_not(
    above: list[PermissionRule],
    under: list[PermissionRule],
    person: list[PermissionRule],
    above_box: Any,
    below_box: Any,
    skills: Any,
) -> None:
    world = World()
    top, low = starter(above, above_box), child_agent(under, world, below_box)
    person = [*person, *MAY_START]
    async with client_with(low) as client:
        for way in WAYS:
            world.done.clear()
            session = await client.create_session("Top", permission=person)
            await way(client, top, low, session.id, skills)
            for name, at in world.done:
                assert may(above, person, name, at), (way.__name__, name, at)
                assert may(under, [], name, at), (way.__name__, name, at)
            if skills is not None:
                assert await loaded(client, session.id) <= set(skills), way.__name__
    if "read-only" in (above_box, below_box):
        assert all(world.read_only)


async def test_what_both_may_do_is_done_whichever_way_the_child_was_started() -> None:
    world = World()
    top, low = starter([STARTING], "workspace-write"), child_agent([STARTING], world, "read-only")
    async with client_with(low) as client:
        for way in WAYS:
            world.done.clear()
            session = await client.create_session("Top")
            await way(client, top, low, session.id, ("one",))
            assert set(world.done) == {(name, at) for name in NAMES for at in TARGETS}
            assert await loaded(client, session.id) == {"one"}, way.__name__
    assert set(world.read_only) == {True}
