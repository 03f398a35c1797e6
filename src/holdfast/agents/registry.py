"""AgentRegistry: the agents that can be called by name."""

from __future__ import annotations

from holdfast.agents.builtin import builtin_agents
from holdfast.agents.definition import Agent, AgentRecord
from holdfast.errors import AlreadyExists, NotFound
from holdfast.journal import (
    SYSTEM_SESSION,
    Event,
    Journal,
    Payload,
    Projection,
    RowQuery,
    payload,
)


@payload("agent.registered", is_open=True, is_inherited=False)
class AgentRegistered(Payload, frozen=True, kw_only=True):
    """An agent can be called by its name from now on."""

    agent: AgentRecord


@payload("agent.removed", is_open=True, is_inherited=False)
class AgentRemoved(Payload, frozen=True, kw_only=True):
    """An agent can no longer be called."""

    name: str


class AgentsTable(Projection[AgentRecord]):
    """One row per registered agent."""

    name = "agents"
    version = 1
    row_type = AgentRecord
    columns = ("name", "mode")
    kinds = frozenset({AgentRegistered.kind, AgentRemoved.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """Names are the same whatever their case."""
        if isinstance(payload, AgentRegistered):
            return payload.agent.name.casefold()
        assert isinstance(payload, AgentRemoved)
        return payload.name.casefold()

    def apply(self, row: AgentRecord | None, event: Event, payload: Payload) -> AgentRecord | None:
        """Keep the newest registration."""
        return payload.agent if isinstance(payload, AgentRegistered) else None


AGENTS = AgentsTable()


class AgentRegistry:
    """Built-in agents, and those that an application registered; names ignore case.

    Registered agents are kept in the journal and found after a restart. What is code in them
    (tools, output type) is known to this process only, as long as it lives.
    """

    def __init__(self, journal: Journal) -> None:
        """Keep agents in this journal."""
        self._journal = journal
        self._builtin = builtin_agents()
        self._living: dict[str, Agent] = {}

    async def register_agent(self, agent: Agent, *, replace: bool = True) -> None:
        """Make an agent known; one of the same name is replaced unless told otherwise.

        Raises:
            AlreadyExists: the name belongs to a built-in agent, or is taken.
        """
        key = agent.name.casefold()
        taken = await self.get_agent(agent.name)
        if key in self._builtin or (taken is not None and not replace):
            raise AlreadyExists(kind="agent", value=agent.name)
        await self._journal.append(SYSTEM_SESSION, [AgentRegistered(agent=agent.to_record())])
        self._living[key] = agent

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none."""
        key = name.casefold()
        found = self._builtin.get(key) or self._living.get(key)
        if found is not None:
            return found
        record = await self._journal.row(AGENTS, SYSTEM_SESSION, key)
        return Agent.from_record(record) if record is not None else None

    async def list_agents(self, *, include_hidden: bool = False) -> list[Agent]:
        """Return all agents: the built-in ones, then the registered ones by name."""
        query = RowQuery(projection=AGENTS, session_id=SYSTEM_SESSION, limit=10_000)
        kept = [
            self._living.get(keyed.key) or Agent.from_record(keyed.row)
            for keyed in await self._journal.rows(query)
        ]
        agents = [*self._builtin.values(), *kept]
        return [agent for agent in agents if include_hidden or not agent.hidden]

    async def remove_agent(self, name: str) -> bool:
        """Forget an agent; returns whether there was one.

        Raises:
            AlreadyExists: it is a built-in agent, which stays.
        """
        if name.casefold() in self._builtin:
            raise AlreadyExists(kind="built-in agent", value=name)
        if await self.get_agent(name) is None:
            return False
        await self._journal.append(SYSTEM_SESSION, [AgentRemoved(name=name)])
        self._living.pop(name.casefold(), None)
        return True

    async def require(self, name: str) -> Agent:
        """Return an agent by name.

        Raises:
            NotFound: there is none.
        """
        found = await self.get_agent(name)
        if found is None:
            raise NotFound(kind="agent", value=name)
        return found
