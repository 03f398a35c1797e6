"""Tools of one runtime: the built-in ones, what was registered, what each run is offered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from holdfast.agents import Agent, AgentRegistry, ToolReference
from holdfast.clock import Clock
from holdfast.errors import AgentToolMissing, AlreadyExists, NotFound
from holdfast.policy import Rights, RuleSet, has_fixed_part, is_same_permission, name_matches
from holdfast.runs import Confinement, RunPosition
from holdfast.runtime.mcp import McpService
from holdfast.runtime.memory import MemoryService
from holdfast.runtime.skills import SkillService
from holdfast.sessions import SessionManager
from holdfast.settings import Settings
from holdfast.tools import (
    LanguageServer,
    LanguageServers,
    SearchProvider,
    Tool,
    ToolRegistry,
    builtin_tools,
    make_codesearch_tool,
    make_websearch_tool,
    register_bundles,
    stands_for_builtin,
)

if TYPE_CHECKING:
    from holdfast.memory import MemoryManager

_AGENTS_KNOWN_S = 5.0
_MOST_LAYERS = 64
_IN_CODE = frozenset({"built-in", "project"})
"""Where a tool must come from that stands in for one which an agent was given."""
_Key: TypeAlias = tuple[object, ...]


class ToolService:
    """Makes the registry of tools with the first use, and the layer of each run."""

    def __init__(
        self,
        settings: Settings,
        sessions: SessionManager,
        confinement: Confinement,
        agents: AgentRegistry,
        *,
        skills: SkillService,
        memory: MemoryService,
        mcp: McpService,
    ) -> None:
        """Offer the tools that these settings allow."""
        self._settings = settings
        self._sessions = sessions
        self._confinement = confinement
        self._agents = agents
        self._skills = skills
        self._memory = memory
        self._mcp = mcp
        self._clock: Clock = sessions.journal.clock
        self._registry: ToolRegistry | None = None
        self._language_servers: LanguageServers | None = None
        self._layers: dict[_Key, ToolRegistry] = {}
        self._subagents: tuple[Agent, ...] = ()
        self._looked_at = self._clock.monotonic() - _AGENTS_KNOWN_S - 1

    @property
    def registry(self) -> ToolRegistry:
        """The tools of this runtime: the built-in ones, and what was registered."""
        if self._registry is None:
            self._registry = self._make()
        return self._registry

    async def find(self, name: str) -> Tool:
        """Return a tool, one of an MCP server too; raises NotFound."""
        if self.registry.find(name) is None:
            await self._mcp.prepare(has_network=True)
        return self.registry.get(name)

    async def select_tools_for(self, agent: Agent, at: RunPosition) -> ToolRegistry:
        """Return the tools of one run, and no others.

        An agent that was given tools has exactly these; any other has those that its rules or
        `allowed_tools` choose. `task` names the
        agents that this one may delegate to.

        Raises:
            NotFound: there is no tool of a name in `allowed_tools`, or this process lacks one
                that the agent was given where it was registered.
            AlreadyExists: another tool of the application has the name of one that was given.
        """
        registry = self._registry if self._registry is not None else self.registry
        if self._mcp.layer is not None and not agent.has_tools and _may_choose_mcp(agent):
            await self._mcp.prepare(has_network=at.sandbox == "network")
        if agent.has_tools or agent.permission or agent.allowed_tools:
            now = self._clock.monotonic()
            if now - self._looked_at > _AGENTS_KNOWN_S:
                # One looks again; others take meanwhile what was known a moment ago.
                self._looked_at = now
                await self._look_for_agents()
        ceiling = self._confinement.policies.bundle.find_ceiling(at.agent_path)
        # Runs of agents with the same tools and rights, under the same ceiling, have the same.
        key: _Key = (
            registry.state,
            ceiling,
            at.rights,
            agent.required_tools,
            tuple(map(id, agent.tools)) if agent.has_tools else agent.allowed_tools,
            agent.has_tools,
        )
        layer = self._layers.get(key)
        if layer is None:
            if len(self._layers) >= _MOST_LAYERS:
                self._layers.clear()
            choose = self._select_given if agent.has_tools else self._choose_tools
            layer = self._layers[key] = choose(agent, registry, ceiling, at.rights)
            layer.needs = tuple([need for one in layer for need in one.signature.needs])
        return layer

    async def _look_for_agents(self) -> None:
        found = tuple([one for one in await self._agents.list_agents() if one.mode != "primary"])
        if found != self._subagents:
            self._subagents = found
            self._layers.clear()

    def _select_given(
        self, agent: Agent, registry: ToolRegistry, ceiling: RuleSet, rights: Rights
    ) -> ToolRegistry:
        """Return the tools of an agent that was given tools."""
        given = [self._require_tool(agent, registry, one) for one in agent.required_tools]
        for tool in agent.tools:
            if stands_for_builtin(tool):
                tool = self._find_builtin(agent, registry, tool.name)
            elif registry.find_scope(tool.name) == "project":
                if registry.find(tool.name) is not tool:
                    # Rules and consents know tools by their names: two would share them.
                    raise AlreadyExists(kind="tool", value=tool.name)
            given.append(tool)
        layer = ToolRegistry(given, scope="agent")
        self._check_listed(agent, registry.names() | layer.names())
        if any(tool.name == "task" and tool is registry.find("task") for tool in given):
            self._offer_agents(layer, ceiling, rights)
        return layer

    def _find_builtin(self, agent: Agent, registry: ToolRegistry, name: str) -> Tool:
        found = registry.find(name)
        if found is None:
            what = "has it switched off"
            raise AgentToolMissing(agent=agent.name, value=name, what=what)
        return found

    def _require_tool(self, agent: Agent, registry: ToolRegistry, wanted: ToolReference) -> Tool:
        """Return the tool of this process that an agent was given where it was registered."""
        if wanted.is_builtin:
            return self._find_builtin(agent, registry, wanted.name)
        found = registry.find(wanted.name)
        if found is not None and registry.find_scope(wanted.name) in _IN_CODE:
            if found.schema_hash == wanted.schema_hash:
                return found
        what = "lacks it" if found is None else "has another one of this name"
        raise AgentToolMissing(agent=agent.name, value=wanted.name, what=what)

    def _offer_agents(self, layer: ToolRegistry, ceiling: RuleSet, rights: Rights) -> None:
        """Let `task` name the agents that may be delegated to, if there are any."""
        from holdfast.orchestration.delegation import (  # noqa: PLC0415 - where it is offered
            make_task_tool,
            select_subagents,
        )

        others = select_subagents(self._subagents, ceiling, rights)
        if others:
            layer.register(make_task_tool(others), replace=True)

    def _choose_tools(
        self, agent: Agent, registry: ToolRegistry, ceiling: RuleSet, rights: Rights
    ) -> ToolRegistry:
        """Return the tools that the agent's rules, or `allowed_tools`, choose."""
        known = registry.names()
        self._check_listed(agent, known)
        wanted = [*agent.allowed_tools]
        wanted += [rule.permission for rule in agent.permission if rule.action != "deny"]
        if all(_is_name(one, known) for one in wanted):
            # Named one by one: no other tool has to be made for this.
            names = [name for name in known if agent.chooses(name)]
        else:
            names = [tool.name for tool in registry if agent.chooses(tool.name, tool.target_kind)]
        chosen = registry.select(names)
        if "task" in names:
            chosen = chosen.child(scope="built-in")
            self._offer_agents(chosen, ceiling, rights)
        return chosen

    def _check_listed(self, agent: Agent, known: frozenset[str]) -> None:
        """Refuse a name in `allowed_tools` that no tool has.

        A pattern may cover what is not there yet, and a server's tool is there once it answers.
        """
        for listed in agent.allowed_tools:
            if any(name_matches(listed, name) for name in known):
                continue
            if "*" in listed or "?" in listed:
                continue
            if self._mcp.layer is not None and listed.startswith("mcp__"):
                continue
            import difflib  # noqa: PLC0415 - only for those who made a mistake

            near = difflib.get_close_matches(listed, known, n=1)
            raise NotFound(kind="tool", value=listed, nearest=near[0] if near else "")

    def forget_agents(self) -> None:
        """Look anew which agents there are, because one came or went."""
        self._looked_at = self._clock.monotonic() - _AGENTS_KNOWN_S - 1

    def use_search(self, web: SearchProvider | None, code: SearchProvider | None) -> None:
        """Let `websearch` and `codesearch` ask these providers from now on."""
        if web is not None:
            self.registry.register(make_websearch_tool(web), replace=True)
        if code is not None:
            self.registry.register(make_codesearch_tool(code), replace=True)

    async def close(self) -> None:
        """End the language servers."""
        if self._language_servers is not None:
            await self._language_servers.close()

    # --- inside -----------------------------------------------------------------------

    def _make(self) -> ToolRegistry:
        settings = self._settings
        servers = [
            LanguageServer(
                name=name,
                command=(said.command, *said.args),
                endings=said.endings,
                readable=said.readable,
            )
            for name, said in settings.tools.language_servers.items()
        ]
        self._language_servers = LanguageServers(servers)
        builtin = builtin_tools(language_servers=self._language_servers)
        layer = builtin.child(scope="built-in", makers=self._list_makers())
        if settings.mcp_endpoints:
            layer = self._mcp.layer = layer.child(scope="mcp")
        layer = layer.child(scope="bundle")
        register_bundles(layer, settings.tools.dir)
        registry = layer.child(scope="project")
        if settings.tools.searxng_url:
            from holdfast.tools import make_searxng_tools  # noqa: PLC0415 - by choice

            for made in make_searxng_tools(str(settings.tools.searxng_url)):
                registry.register(made, replace=True)
        return registry

    def _list_makers(self) -> dict[str, Callable[[], Tool]]:
        """Tools that act on this runtime's own records; made when they are looked for."""

        def skill() -> Tool:
            from holdfast.skills import make_skill_tool  # noqa: PLC0415 - first use

            return make_skill_tool(self._skills.offered)

        def compact() -> Tool:
            from holdfast.runs import compact  # noqa: PLC0415 - first use

            return compact

        def history() -> Tool:
            from holdfast.runs import make_history_tool  # noqa: PLC0415 - first use

            return make_history_tool(self._sessions)

        def plan(place: int) -> Tool:
            from holdfast.runs import plan_tools  # noqa: PLC0415 - first use

            return plan_tools(self._sessions)[place]

        def task() -> Tool:
            from holdfast.orchestration.delegation import task  # noqa: PLC0415 - first use

            return task

        def memory(place: int) -> Tool:
            from holdfast.memory import make_memory_tools  # noqa: PLC0415 - a room of its own

            manager: Callable[[str], Awaitable[MemoryManager]] = self._memory.manager
            return make_memory_tools(manager)[place]

        makers: dict[str, Callable[[], Tool]] = {
            "skill": skill,
            "compact": compact,
            "search_history": history,
            "plan_enter": lambda: plan(0),
            "plan_exit": lambda: plan(1),
            "task": task,
        }
        if self._settings.memory.has_tools:
            makers |= {"remember": lambda: memory(0), "recall": lambda: memory(1)}
        return makers


def _may_choose_mcp(agent: Agent) -> bool:
    """Say whether a rule or the list of an agent may mean the tool of an MCP server."""
    wanted = [*agent.allowed_tools, *(rule.permission for rule in agent.permission)]
    return any(not has_fixed_part(one) or "*" in one or one.startswith("mcp") for one in wanted)


def _is_name(wanted: str, known: frozenset[str]) -> bool:
    """Say whether a permission is the name of one tool, and of no kind of target."""
    return any(is_same_permission(wanted, name) for name in known)
