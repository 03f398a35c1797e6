"""Tools of one runtime: the built-in ones, what was registered, what each run is offered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.agents import Agent, AgentRegistry
from holdfast.clock import Clock
from holdfast.orchestration.delegation import select_subagents, task, task_tool
from holdfast.policy import Rights, RuleSet
from holdfast.runs import Confinement, RunPosition, compact, history_tool, plan_tools
from holdfast.runtime.mcp import McpService
from holdfast.runtime.memory import MemoryService
from holdfast.runtime.skills import SkillService
from holdfast.sessions import SessionManager
from holdfast.settings import Settings
from holdfast.skills import skill_tool
from holdfast.tools import (
    LanguageServer,
    LanguageServers,
    SearchProvider,
    Tool,
    ToolRegistry,
    builtin_tools,
    codesearch_tool,
    register_bundles,
    websearch_tool,
)

if TYPE_CHECKING:
    from holdfast.memory import MemoryManager

_AGENTS_KNOWN_S = 5.0
_MOST_LAYERS = 64


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
        self._layers: dict[tuple[RuleSet, Rights], ToolRegistry] = {}
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

    async def tools_for(self, agent: Agent, at: RunPosition) -> ToolRegistry:
        """Return the tools of one run, besides the agent's own.

        `task` names the agents that this one may delegate to.
        """
        tools = self._registry or self.registry
        if self._mcp.layer is not None:
            await self._mcp.prepare(has_network=at.sandbox == "network")
        now = self._clock.monotonic()
        if now - self._looked_at > _AGENTS_KNOWN_S:
            # One looks again; whoever comes meanwhile takes what was known a moment ago.
            self._looked_at = now
            found = tuple(
                [one for one in await self._agents.list_agents() if one.mode != "primary"]
            )
            if found != self._subagents:
                self._subagents = found
                self._layers.clear()
        # Runs of agents with the same rights, under the same ceiling, may delegate to the same.
        key = (self._confinement.ceiling(at.agent_path), at.rights)
        layer = self._layers.get(key)
        if layer is None:
            if len(self._layers) >= _MOST_LAYERS:
                self._layers.clear()
            chosen = select_subagents(self._subagents, *key)
            layer = tools
            if chosen:
                layer = tools.child(scope="built-in")
                layer.register(task_tool(chosen), replace=True)
            self._layers[key] = layer
        return layer

    def forget_agents(self) -> None:
        """Look anew which agents there are, because one came or went."""
        self._looked_at = self._clock.monotonic() - _AGENTS_KNOWN_S - 1

    def use_search(self, web: SearchProvider | None, code: SearchProvider | None) -> None:
        """Let `websearch` and `codesearch` ask these providers from now on."""
        if web is not None:
            self.registry.register(websearch_tool(web), replace=True)
        if code is not None:
            self.registry.register(codesearch_tool(code), replace=True)

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
        own = (
            skill_tool(self._skills.offered),
            compact,
            history_tool(self._sessions),
            *plan_tools(self._sessions),
            task,
            *self._memory_tools(),
        )
        layer = builtin.child(own, scope="built-in")
        if settings.mcp_endpoints:
            layer = self._mcp.layer = layer.child(scope="mcp")
        registry = layer.child(scope="project")
        if settings.tools.searxng_url:
            from holdfast.tools import searxng_tools  # noqa: PLC0415 - by choice

            for made in searxng_tools(str(settings.tools.searxng_url)):
                registry.register(made, replace=True)
        register_bundles(registry, settings.tools.dir)
        return registry

    def _memory_tools(self) -> tuple[Tool, ...]:
        if not self._settings.memory.has_tools:
            return ()
        from holdfast.memory import memory_tools  # noqa: PLC0415 - a room of its own

        manager: Callable[[str], Awaitable[MemoryManager]] = self._memory.manager
        return memory_tools(manager)
