"""AgentRegistry: the agents that can be called by name."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

import msgspec

from holdfast.agents.builtin import list_builtin_agents
from holdfast.agents.definition import Agent, AgentRecord
from holdfast.agents.files import AgentFiles, FoundAgents
from holdfast.errors import AlreadyExists, ConfigError, NotFound, UsageError
from holdfast.hooks import select_points
from holdfast.journal import (
    SYSTEM_SESSION,
    Event,
    Journal,
    Payload,
    Projection,
    RowQuery,
    payload,
)

ENTRY_POINT_GROUP = "holdfast.agents"
AgentSource: TypeAlias = Literal["built-in", "installed", "user", "project", "registered"]


@payload("agent.registered", is_open=True, is_inherited=False, is_of_store=True)
class AgentRegistered(Payload, frozen=True, kw_only=True):
    """An agent can be called by its name from now on."""

    agent: AgentRecord


@payload("agent.removed", is_open=True, is_inherited=False, is_of_store=True)
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


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, and where it comes from."""

    agent: Agent
    source: AgentSource
    path: str = ""
    is_trusted: bool = True


class AgentWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something in an agent's rules or lists, or its whole file, that has no effect, and why."""

    agent: str
    text: str
    """The rule, the name in a list, or `its file`."""
    because: str


class AgentRegistry:
    """The agents that can be called by name; names ignore case.

    Built-in agents stand lowest, above them those of installed packages (once asked for),
    of the user's files, of the project's files, and highest those that an application
    registered. A project's file replaces a built-in agent only when a person has trusted it.
    Registered agents are kept in the journal and found after a restart. What is code in them
    (tools, output type) is known to this process only, as long as it lives.
    """

    def __init__(self, journal: Journal, *, files: AgentFiles | None = None) -> None:
        """Keep agents in this journal; look into these files too."""
        self._journal = journal
        self._files = files
        self._builtin = list_builtin_agents()
        self._installed: dict[str, Agent] = {}
        self._living: dict[str, Agent] = {}

    async def register_agent(self, agent: Agent, *, replace: bool = True) -> None:
        """Make an agent known; one of the same name is replaced unless told otherwise.

        Raises:
            AlreadyExists: the name belongs to a built-in agent, or is taken.
        """
        key = agent.name.casefold()
        if key in self._builtin:
            raise AlreadyExists(kind="agent", value=agent.name)
        if not replace and await self.get_agent(agent.name) is not None:
            raise AlreadyExists(kind="agent", value=agent.name)
        await self._journal.append(SYSTEM_SESSION, [AgentRegistered(agent=agent.to_record())])
        self._living[key] = agent

    def offer(self, agent: Agent) -> None:
        """Offer an agent for as long as this process lives; it is stored nowhere.

        Raises:
            AlreadyExists: it has the name of a built-in agent.
        """
        key = agent.name.casefold()
        if key in self._builtin:
            raise AlreadyExists(kind="built-in agent", value=agent.name)
        self._installed[key] = self._living[key] = agent

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none.

        Raises:
            ConfigError: there is a file for this agent, and it cannot be read.
        """
        key = name.casefold()
        registered = self._living.get(key)
        if registered is not None:
            return registered
        if key not in self._builtin:
            record = await self._journal.row(AGENTS, SYSTEM_SESSION, key)
            if record is not None:
                return Agent.from_record(record)
        found = await self._find()
        if found is not None and key in found.agents:
            return found.agents[key].agent
        known = self._installed.get(key) or self._builtin.get(key)
        if known is None and found is not None and key in found.problems:
            raise ConfigError(detail=found.problems[key], mistakes=[found.problems[key]])
        return known

    async def entries(self) -> tuple[AgentEntry, ...]:
        """Return every agent once, with where it comes from: built-in ones first."""
        chosen = {
            key: AgentEntry(agent=agent, source="built-in") for key, agent in self._builtin.items()
        }
        chosen |= {k: AgentEntry(agent=a, source="installed") for k, a in self._installed.items()}
        found = await self._find()
        for key, file in sorted(found.agents.items()) if found is not None else ():
            chosen[key] = AgentEntry(
                agent=file.agent,
                source=file.source,
                path=str(file.path),
                is_trusted=file.is_trusted,
            )
        query = RowQuery(projection=AGENTS, session_id=SYSTEM_SESSION, limit=10_000)
        for keyed in await self._journal.rows(query):
            agent = self._living.get(keyed.key) or Agent.from_record(keyed.row)
            chosen[keyed.key] = AgentEntry(agent=agent, source="registered")
        return tuple(chosen.values())

    async def problems(self) -> tuple[str, ...]:
        """Return what is wrong with agent files, each as `path:line: text`."""
        found = await self._find()
        return tuple(found.problems.values()) if found is not None else ()

    async def list_broken_files(self) -> list[AgentWarning]:
        """Return each agent file that cannot be used, and why."""
        found = await self._find()
        problems = found.problems.items() if found is not None else ()
        return [AgentWarning(agent=name, text="its file", because=why) for name, why in problems]

    async def list_agents(self, *, include_hidden: bool = False) -> list[Agent]:
        """Return all agents: the built-in ones first."""
        agents = [entry.agent for entry in await self.entries()]
        return [agent for agent in agents if include_hidden or not agent.hidden]

    async def remove_agent(self, name: str) -> bool:
        """Forget a registered agent; returns whether there was one.

        Raises:
            UsageError: it is a built-in agent, which stays.
        """
        key = name.casefold()
        if key in self._builtin:
            raise UsageError(detail=f"The agent {name!r} is built in and stays.")
        record = await self._journal.row(AGENTS, SYSTEM_SESSION, key)
        if record is None and key not in self._living:
            return False
        await self._journal.append(SYSTEM_SESSION, [AgentRemoved(name=name)])
        self._living.pop(key, None)
        return True

    def load_entry_points(
        self, group: str = ENTRY_POINT_GROUP, *, packages: Collection[str] | None = None
    ) -> tuple[Agent, ...]:
        """Import the agents that installed packages offer; only when asked.

        An entry point names an Agent, or an iterable of agents. With `packages`, only theirs.

        Raises:
            UsageError: an entry point holds something else, or cannot be imported.
        """
        loaded: list[Agent] = []
        points = select_points(importlib.metadata.entry_points(group=group), packages)
        for point in sorted(points, key=lambda one: (one.name, one.value)):
            try:
                value: object = point.load()
            except Exception as error:
                detail = f"The entry point {point.value!r} cannot be imported: {error}"
                raise UsageError(detail=detail) from error
            offered = [value] if isinstance(value, Agent) else value
            if not isinstance(offered, Iterable):
                raise UsageError(detail=f"The entry point {point.value!r} is no agent.")
            for agent in offered:
                if not isinstance(agent, Agent):
                    raise UsageError(detail=f"The entry point {point.value!r} is no agent.")
                loaded.append(agent)
        self._installed |= {agent.name.casefold(): agent for agent in loaded}
        return tuple(loaded)

    async def trust(self, name: str) -> AgentEntry:
        """Vouch for a project's agent file as it is now.

        Raises:
            NotFound: there is no file for this agent.
        """
        if self._files is None:
            raise NotFound(kind="agent file", value=name)
        file = await asyncio.to_thread(self._files.trust, name)
        return AgentEntry(
            agent=file.agent, source=file.source, path=str(file.path), is_trusted=file.is_trusted
        )

    async def require(self, name: str) -> Agent:
        """Return an agent by name.

        Raises:
            NotFound: there is none.
        """
        found = await self.get_agent(name)
        if found is None:
            raise NotFound(kind="agent", value=name)
        return found

    async def _find(self) -> FoundAgents | None:
        if self._files is None or not self._files.has_any():
            return None
        return await asyncio.to_thread(self._files.find, self._builtin.keys())
