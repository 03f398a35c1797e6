"""Agents: register, find, remove."""

from __future__ import annotations

from holdfast.agents import (
    Agent,
    AgentRecord,
    AgentRegistry,
    AgentState,
    AgentWarning,
    Resource,
)
from holdfast.operations.caller import Caller
from holdfast.operations.concerns import find_named_agents
from holdfast.operations.operation import local, operation
from holdfast.policy import RuledTool, find_idle_rules, name_matches
from holdfast.runtime import Runtime


@local("put a file for it below `.holdfast/agents`, or serve it with its module")
async def register(runtime: Runtime, /, agent: Agent) -> None:
    """Make an agent known by its name; it is found after a restart too."""
    await runtime.agents.register_agent(agent)
    runtime.toolbox.forget_agents()


@operation("agents:read", agents=find_named_agents)
async def get(runtime: Runtime, caller: Caller, /, name: str) -> AgentRecord | None:
    """Return an agent by name as data, `None` if there is none; what is code in it stays there."""
    found = await runtime.agents.get_agent(name)
    return found.to_record() if found is not None else None


@operation("agents:read")
async def list_(
    runtime: Runtime, caller: Caller, /, *, include_hidden: bool = False
) -> list[AgentRecord]:
    """Return all agents as data: built-in ones first."""
    found = await runtime.agents.list_agents(include_hidden=include_hidden)
    return [one.to_record() for one in found]


@local("use `agents.get`")
async def get_definition(runtime: Runtime, /, name: str) -> Agent | None:
    """Return an agent by name with its code, `None` if there is none."""
    return await runtime.agents.get_agent(name)


@local("use `agents.list`")
async def list_definitions(runtime: Runtime, /, *, include_hidden: bool = False) -> list[Agent]:
    """Return all agents with their code: built-in ones first."""
    return await runtime.agents.list_agents(include_hidden=include_hidden)


@operation("agents:write", agents=find_named_agents)
async def remove(runtime: Runtime, caller: Caller, /, name: str) -> bool:
    """Forget an agent; returns whether there was one."""
    runtime.toolbox.forget_agents()
    return await runtime.agents.remove_agent(name)


@operation("agents:read", agents=find_named_agents)
async def check(runtime: Runtime, caller: Caller, /, name: str = "") -> list[AgentWarning]:
    """Return what has no effect in the rules of an agent, or without a name of all added ones.

    Such as `read *.csv allow` behind `* * allow`, which limits nothing, a rule that a later one
    always overrules, or a name that no tool has. Without a name also files of agents that
    cannot be used.

    Raises:
        NotFound: there is no such agent.
    """
    if name:
        return _list_warnings(runtime, await runtime.agents.require(name))
    # Built-in agents share their first rules; what one of them overrules is meant so.
    agents = [one for one in await runtime.agents.list_agents() if not one.native]
    broken = await runtime.agents.list_broken_files()
    return broken + [warning for agent in agents for warning in _list_warnings(runtime, agent)]


def _list_warnings(runtime: Runtime, agent: Agent) -> list[AgentWarning]:
    """What has no effect, for the tools that the agent was given, else for all."""
    known = agent.tools if agent.tools else tuple(runtime.toolbox.registry)
    tools = [
        RuledTool(
            name=tool.name,
            kind=tool.target_kind,
            own=tool.permission,
            is_optional="optional" in tool.tags,
        )
        for tool in known
    ]
    found = [
        AgentWarning(
            agent=agent.name,
            text=f"{idle.rule.permission} {idle.rule.pattern} {idle.rule.action}",
            because=idle.because,
        )
        for idle in find_idle_rules(agent.permission, tools)
    ]
    for listed in (*agent.allowed_tools, *agent.denied_tools):
        if not any(name_matches(listed, tool.name) for tool in tools):
            because = f"there is no tool {listed!r}"
            found.append(AgentWarning(agent=agent.name, text=listed, because=because))
    return found


@local("install the packages where the runtime is")
async def load_installed(runtime: Runtime, /) -> tuple[Agent, ...]:
    """Import the agents that installed packages offer, and return them.

    They are entry points of the group `holdfast.agents`. Nothing is imported unless this
    is called.

    Raises:
        UsageError: an entry point is no agent, or cannot be imported.
    """
    return runtime.agents.load_entry_points()


@local("use the operations of `agents`")
async def registry(runtime: Runtime, /) -> AgentRegistry:
    """Return the registry, for what the client does not cover."""
    return runtime.agents


@local("resources belong to the process that runs the agent")
async def add_resource(runtime: Runtime, /, agent: str, name: str, make: Resource) -> None:
    """Let an agent have a resource: opened before its first run, closed with the client."""
    runtime.hooks.lives.add_resource(agent, name, make)


@operation("agents:read", agents=find_named_agents, opens=False)
async def state(runtime: Runtime, caller: Caller, /, agent: str) -> AgentState:
    """Return the state of an agent in this process."""
    return runtime.hooks.lives.find_state(agent)
