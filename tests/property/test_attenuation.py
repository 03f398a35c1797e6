"""A child never has a right that its parent lacks, whichever way it was started.

Each example draws rules, hosts, sandboxes and seconds for two or three agents and lets the last
one call a few tools, one of them of a real MCP server. It is started in every way there is;
whatever it then did, its starter would have been allowed to, on the same network, and before the
time of both was over.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.server.mcpserver import MCPServer
from mcp_kit import program, served

from holdfast import Agent, AsyncClient
from holdfast.agents.handoff import transfer_to
from holdfast.agents.request import RunRequest
from holdfast.clock import SystemClock
from holdfast.orchestration.delegation import AgentTask
from holdfast.orchestration.workflows import Workflow
from holdfast.policy import Budget, CallRequest, Rights, RuleSet, decide
from holdfast.policy.budgets import Share
from holdfast.providers.model import ModelRequest
from holdfast.runs.lineage import list_below
from holdfast.sessions import PermissionRule
from holdfast.settings import load_settings
from holdfast.skills import Skill
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools import ToolContext, make_host_target, tool

NAMES = ("touch", "wipe")
TARGETS = ("a", "b")
HOSTS = ("a.example", "b.example")
SHUT = "shut.example"
"""Open to everybody but the starter, whom the operator's policies keep away from it."""
REMOTE, REMOTE_TARGET, LOCAL = "mcp__far__mark", "far/mark", "127.0.0.1"
"""A tool of a server on this machine, as rules know it."""
POLICIES = {
    "network.yaml": f"allow_net: true\nallowed_hosts: [{', '.join((*HOSTS, SHUT))}]\n"
    "raw_processes: true\n",
    "tools.yaml": "agents:\n  top:\n    rules:\n"
    f"      - {{permission: network, pattern: {SHUT}, action: deny}}\n",
}
ACTIONS = st.sampled_from(["allow", "deny", "ask"])
RULES = st.lists(
    st.builds(
        PermissionRule,
        permission=st.sampled_from([*NAMES, "*"]),
        pattern=st.sampled_from([*TARGETS, "*"]),
        action=ACTIONS,
    )
    | st.builds(
        PermissionRule,
        permission=st.sampled_from(["network", "fetch"]),
        pattern=st.sampled_from([*HOSTS, LOCAL, "*"]),
        action=ACTIONS,
    )
    | st.builds(
        PermissionRule,
        permission=st.sampled_from([REMOTE, "mcp_*"]),
        pattern=st.sampled_from([REMOTE_TARGET, "far/other", "*"]),
        action=ACTIONS,
    ),
    max_size=4,
)
BOXES = ("read-only", "workspace-write", "network")
SANDBOXES = st.sampled_from(BOXES)
LATE_S = 10.0
"""How long the starter thinks before it starts the child."""
SECONDS = st.sampled_from([None, 2 * LATE_S, 50 * LATE_S])
SKILLS = st.none() | st.sets(st.sampled_from(["one", "two"])).map(tuple)
EVERYTHING = [PermissionRule(permission=name, action="allow") for name in ("*", "wipe", "mcp__*")]
"""A `*` alone lifts no question that a tool asks of itself; its name does."""
MAY_START = [
    PermissionRule(permission=name, action="allow")
    for name in ("task", "batch", "mid", "low", "transfer_to", "skill")
]

Way = Callable[[AsyncClient, Agent, Agent, str, Any], Awaitable[object]]


class Thought:
    """Time that passes because somebody thinks, beside that of the machine."""

    seconds = 0.0

    def monotonic(self, _clock: SystemClock) -> float:
        return time.monotonic() + self.seconds


THOUGHT = Thought()


class World:
    """What the child did: calls that ran, sandboxes it saw, seconds it had."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.boxes: list[str] = []
        self.seconds: list[float | None] = []

    def clear(self) -> None:
        self.done, self.boxes, self.seconds = [], [], []

    def see(self, name: str, at: str, context: ToolContext) -> str:
        self.done.append((name, at))
        place = 0 if context.is_read_only else 1 + context.has_network
        self.boxes.append(BOXES[place])
        self.seconds.append(context.child_limits.seconds_left())
        return "ok"

    def tools(self) -> list[Any]:
        @tool(effect="read", target="at")
        async def touch(at: str, context: ToolContext) -> str:
            """Touch."""
            return self.see("touch", at, context)

        @tool(effect="read", target="at", permission="ask")
        async def wipe(at: str, context: ToolContext) -> str:
            """Wipe."""
            return self.see("wipe", at, context)

        @tool(effect="read", target=make_host_target("url"))
        async def fetch(url: str, context: ToolContext) -> str:
            """Fetch."""
            return self.see("fetch", url.removeprefix("https://"), context)

        return [touch, wipe, fetch]


def calling(*calls: Any) -> FunctionModel:
    """A model that makes its calls, then says that it is done."""

    def answer(request: ModelRequest) -> Any:
        return "done" if request.messages[-1].role == "tool" else list(calls)

    return FunctionModel(answer)


def starting(call: Any) -> FunctionModel:
    """A model that thinks for a while, makes one call, then says that it is done."""

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        THOUGHT.seconds += LATE_S
        return call

    return FunctionModel(answer)


def limited(seconds: float | None) -> Budget:
    return Budget(max_wall_s=seconds)


def child_agent(
    rules: list[PermissionRule], world: World, sandbox: Any, seconds: float | None = None
) -> Agent:
    calls = [tool_call(name, at=at) for name in NAMES for at in TARGETS]
    calls += [tool_call("fetch", url=f"https://{host}") for host in (*HOSTS, SHUT)]
    calls += [tool_call("skill", name=name) for name in ("one", "two")]
    calls.append(tool_call(REMOTE, at="here"))
    return Agent(
        "low",
        mode="subagent",
        model=calling(*calls),
        # Chosen, not handed over in code: what it was given would be all that it has.
        allowed_tools=[*(one.name for one in world.tools()), "skill", "mcp__*"],
        permission=[*rules, *MAY_START],
        sandbox=sandbox,
        budget=limited(seconds),
    )


def starter(rules: list[PermissionRule], sandbox: Any, seconds: float | None = None) -> Agent:
    return Agent(
        "top",
        mode="all",
        permission=[*rules, *MAY_START],
        sandbox=sandbox,
        budget=limited(seconds),
    )


async def launch(client: AsyncClient, agent: Agent, session_id: str, skills: Any) -> object:
    return await client.runs.execute_request(
        RunRequest(message="go", agent=agent, session_id=session_id, skill_names=skills)
    )


async def by_task(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    call = tool_call("task", subagent_type="low", prompt="go")
    return await launch(client, top.wrapped(model=starting(call)), at, skills)


async def by_batch(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    inner = {"tool": "task", "parameters": {"subagent_type": "low", "prompt": "go"}}
    model = starting(tool_call("batch", tool_calls=[inner]))
    return await launch(client, top.wrapped(model=model), at, skills)


async def by_tool(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    agent = top.wrapped(model=starting(tool_call("low", task="go")), tools=[low.as_tool()])
    return await launch(client, agent, at, skills)


async def by_hand_off(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    call = tool_call("transfer_to", agent="low", message="go")
    agent = top.wrapped(model=starting(call), tools=[transfer_to(["low"])])
    return await launch(client, agent, at, skills)


async def by_grandchild(
    client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any
) -> object:
    """Through an agent that may do everything itself."""
    middle = Agent("mid", permission=EVERYTHING, tools=[low.as_tool()], sandbox="network")
    middle = middle.wrapped(model=calling(tool_call("low", task="go")))
    agent = top.wrapped(model=starting(tool_call("mid", task="go")), tools=[middle.as_tool()])
    return await launch(client, agent, at, skills)


async def by_delegation(
    client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any
) -> object:
    orchestrator = await client.runs.orchestrator()
    return await orchestrator.delegate_task(top, "low", "go", at, None, skills)


async def by_parallel(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    orchestrator = await client.runs.orchestrator(agent=top)
    tasks = [AgentTask(agent_name="low", description="go", skill_names=skills)] * 2
    return await orchestrator.run_parallel_agents(tasks, at)


async def by_workflow(client: AsyncClient, top: Agent, low: Agent, at: str, skills: Any) -> object:
    """From a session that the starter began; a workflow takes no skills away by itself."""
    share = Share(scope="top", session_id=at, budget=top.budget)
    above = await client.get_session(at)
    lineage = list_below(top, above, skill_names=skills, shares=(share,))
    session = await client.create_session("Mid", parent_id=at, metadata=lineage.to_metadata())
    flow = Workflow("flow", sandbox="network").step("one", agent="low", message="go")
    return await client.workflows.run(flow, parent_id=session.id)


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


RUNS = frozenset({by_task, by_batch, by_tool, by_hand_off, by_grandchild})
"""Here the starter has a run of its own, which has thought before it starts the child."""


MARKS: list[str] = []
"""What the MCP server was called with."""


@pytest.fixture(scope="module")
def far() -> Iterator[dict[str, Any]]:
    """A real MCP server, reached over HTTP on this machine."""
    server = MCPServer("marks")

    @server.tool()
    def mark(at: str) -> str:
        """Leave a mark."""
        MARKS.append(at)
        return "ok"

    with served(server.streamable_http_app()) as port:
        yield {"far": {"transport": "http", "url": f"http://{LOCAL}:{port}/mcp"}}


def may_reach(rules: list[PermissionRule], session: list[PermissionRule]) -> bool:
    """Say whether rules that name the network keep somebody away from the MCP server."""
    named = [[one for one in given if one.permission == "network"] for given in (rules, session)]
    agent, person = (RuleSet(rules=tuple(one)) for one in named)
    request = CallRequest(
        permission="network", targets=(LOCAL,), target_kind="host", default="allow"
    )
    return decide(request, agent=agent, session=person).action == "allow"


def may(rules: list[PermissionRule], session: list[PermissionRule], name: str, at: str) -> bool:
    """Say whether somebody with these rules could have made a call, without asking."""
    default = "ask" if name in ("wipe", REMOTE) else "allow"
    kind = "host" if name == "fetch" else "text"
    request = CallRequest(permission=name, targets=(at,), target_kind=kind, default=default)
    own = Rights(agent=RuleSet(rules=(*rules, *MAY_START)), session=RuleSet(rules=tuple(session)))
    return decide(request, agent=own.agent, session=own.session).action == "allow"


async def loaded(client: AsyncClient, session_id: str) -> set[str]:
    """The skills that were loaded below a session."""
    names: set[str] = set()
    for one in {each.event.session_id for each in await client.runs.family_events(session_id)}:
        for message in (await client.list_messages(one)).items:
            names |= {
                str(call.input["name"])
                for call in message.tool_calls
                if call.tool == "skill" and call.state == "completed"
            }
    return names


@contextlib.asynccontextmanager
async def client_with(
    low: Agent, world: World, endpoints: dict[str, Any]
) -> AsyncIterator[AsyncClient]:
    THOUGHT.seconds = 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(SystemClock, "monotonic", lambda clock: THOUGHT.monotonic(clock)),
    ):
        for name, text in POLICIES.items():
            (Path(folder) / name).write_text(text)
        overrides = {
            "policies.dir": folder,
            "network.allow_net": True,
            "mcp_endpoints": endpoints,
        }
        chosen = load_settings(overrides=overrides).settings
        async with AsyncClient(Path(folder) / "state", settings=chosen) as client:
            for one in world.tools():
                await client.tools.register(one)
            await client.register_agent(low)
            for name in ("one", "two"):
                await client.skills.register(Skill(name=name, description=name, content="Do it."))
            yield client


@given(
    rules=st.tuples(RULES, RULES, RULES),
    boxes=st.tuples(SANDBOXES, SANDBOXES),
    seconds=st.tuples(SECONDS, SECONDS),
    skills=SKILLS,
)
@settings(max_examples=8, deadline=None)
async def test_child_does_nothing_that_its_starter_may_not(
    far: dict[str, Any],
    rules: tuple[list[PermissionRule], ...],
    boxes: tuple[Any, Any],
    seconds: tuple[float | None, float | None],
    skills: Any,
) -> None:
    above, under, person = rules
    world = World()
    top = starter(above, boxes[0], seconds[0])
    low = child_agent(under, world, boxes[1], seconds[1])
    person = [*person, *MAY_START]
    async with client_with(low, world, far) as client:
        for way in WAYS:
            world.clear()
            MARKS.clear()
            session = await client.create_session("Top", permission=person)
            await way(client, top, low, session.id, skills)
            for name, at in world.done:
                assert may(above, person, name, at), (way.__name__, name, at)
                assert may(under, [], name, at), (way.__name__, name, at)
                assert at != SHUT, way.__name__
            if MARKS:
                assert may(above, person, REMOTE, REMOTE_TARGET), way.__name__
                assert may(under, [], REMOTE, REMOTE_TARGET), way.__name__
                assert may_reach(above, person), way.__name__
                assert may_reach(under, []), way.__name__
            if skills is not None:
                assert await loaded(client, session.id) <= set(skills), way.__name__
            narrowest = min(map(BOXES.index, boxes))
            assert all(BOXES.index(box) <= narrowest for box in world.boxes), way.__name__
            limit = least_time(way, seconds)
            for left in world.seconds:
                assert limit is None or (left is not None and left <= limit), (way.__name__, left)


def least_time(way: Way, seconds: tuple[float | None, float | None]) -> float | None:
    """What a child may have left at most: its own time, and what its starter had not used."""
    above, own = seconds
    if above is not None and way in RUNS:
        above -= LATE_S
    return min((one for one in (above, own) if one is not None), default=None)


@pytest.mark.parametrize("box", ["read-only", "network"])
async def test_what_both_may_do_is_done_whichever_way_the_child_was_started(
    far: dict[str, Any], box: Any
) -> None:
    world = World()
    top = starter(EVERYTHING, "network", 50 * LATE_S)
    low = child_agent(EVERYTHING, world, box)
    wanted = {(name, at) for name in NAMES for at in TARGETS} | {("fetch", at) for at in HOSTS}
    async with client_with(low, world, far) as client:
        for way in WAYS:
            world.clear()
            MARKS.clear()
            session = await client.create_session("Top")
            await way(client, top, low, session.id, ("one",))
            assert set(MARKS) == {"here"}, way.__name__
            assert set(world.done) == wanted, way.__name__
            assert set(world.boxes) == {box}, way.__name__
            assert all(left is not None for left in world.seconds), way.__name__
            assert await loaded(client, session.id) == {"one"}, way.__name__


@pytest.mark.parametrize("box", ["read-only", "workspace-write"])
async def test_child_reaches_no_server_whose_program_may_do_more_than_its_starter(box: Any) -> None:
    """One program may write the workspace, one has a network: only who has that too may ask it."""
    endpoints = {
        "writer": program("mcp_rude.py", sandbox="workspace-write"),
        "caller": program("mcp_rude.py", sandbox="read-only-network"),
    }
    calls = [tool_call(f"mcp__{name}__echo", text="x") for name in endpoints]
    world = World()
    top = starter(EVERYTHING, box)
    low = child_agent(EVERYTHING, world, "network").wrapped(model=calling(*calls))
    async with client_with(low, world, endpoints) as client:
        for way in WAYS:
            session = await client.create_session("Top")
            await way(client, top, low, session.id, None)
            ended = {
                (call.tool, call.state)
                for one in {
                    each.event.session_id for each in await client.runs.family_events(session.id)
                }
                for message in (await client.list_messages(one)).items
                for call in message.tool_calls
                if call.tool.startswith("mcp__")
            }
            may_write = "error" if box == "read-only" else "completed"
            wanted = {("mcp__writer__echo", may_write), ("mcp__caller__echo", "error")}
            assert ended == wanted, way.__name__
