"""Agents: register, find, remove."""

from __future__ import annotations

from holdfast.agents import Agent, AgentRecord, AgentRegistry, AgentState, Resource
from holdfast.operations.caller import Caller
from holdfast.operations.concerns import of_name
from holdfast.operations.operation import local, operation
from holdfast.runtime import Runtime


@local("put a file for it below `.holdfast/agents`, or serve it with its module")
async def register(runtime: Runtime, /, agent: Agent) -> None:
    """Make an agent known by its name; it is found after a restart too."""
    await runtime.agents.register_agent(agent)
    runtime.toolbox.forget_agents()


@operation("agents:read", agents=of_name)
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


@operation("agents:write", agents=of_name)
async def remove(runtime: Runtime, caller: Caller, /, name: str) -> bool:
    """Forget an agent; returns whether there was one."""
    runtime.toolbox.forget_agents()
    return await runtime.agents.remove_agent(name)


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


@operation("agents:read", agents=of_name, opens=False)
async def state(runtime: Runtime, caller: Caller, /, agent: str) -> AgentState:
    """Return the state of an agent in this process."""
    return runtime.hooks.lives.state_of(agent)
