"""What stands around a run: hooks, subscribers, and the application's own context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.canonical import JsonObject
from holdfast.context import BuildsContext, ContextBuilder
from holdfast.hooks import NOWHERE, Emitter, ExecutionContext, Hooks, Silence, Where
from holdfast.hooks.points import ToolAfterDiscovery, ToolBeforeDiscovery
from holdfast.providers.model import Model
from holdfast.runs.hooked import HookedContextBuilder, HookedModel
from holdfast.tools import Tool, ToolContext, ToolRegistry
from holdfast.tools.hooked import ToolHooks
from holdfast.tools.manager import ToolExecutionManager
from holdfast.tools.services import Attendant, NobodyAttends, ProgressSink, ProgressUpdate


class Instrumentation(msgspec.Struct, frozen=True, kw_only=True):
    """Hooks, subscribers and context; without them a run pays next to nothing."""

    hooks: Hooks = msgspec.field(default_factory=Hooks)
    bus: Emitter = msgspec.field(default_factory=Silence)
    execution: ExecutionContext = msgspec.field(default_factory=ExecutionContext)
    where: Where = NOWHERE
    attendant: Attendant = msgspec.field(default_factory=NobodyAttends)
    """Who answers the questions of tools while a run goes on."""

    def of_run(
        self, session_id: str, run_id: str, agent_path: str, *, correlation_id: str = ""
    ) -> Instrumentation:
        """Return the surroundings of one run."""
        where = Where(
            session_id=session_id,
            run_id=run_id,
            agent_path=agent_path,
            correlation_id=correlation_id,
        )
        return replace(self, where=where)

    def execution_of_run(self) -> ExecutionContext:
        """Return a context for the tools of the run, which sees the application's."""
        where, above = self.where, self.execution
        return above.inherit(
            session_id=where.session_id,
            run_id=where.run_id,
            conversation_id=above.conversation_id or where.session_id,
        )

    def around_model(self, model: Model) -> Model:
        """Return a model that asks the hooks."""
        return HookedModel(model, self.hooks, self.bus, self.where)

    def around_context(self, builder: ContextBuilder) -> BuildsContext:
        """Return what builds the contexts of the run, and asks the hooks."""
        return HookedContextBuilder(builder.for_turn(), self.hooks, self.where)

    def equip(self, context: ToolContext) -> ToolContext:
        """Return a tool context with the run's execution context, whose progress is heard."""
        return replace(
            context,
            execution=self.execution_of_run(),
            progress=self.progress_sink(),
            attendant=self.attendant,
        )

    def progress_sink(self) -> ProgressSink:
        """Return what tells subscribers how far a tool is."""
        loop = asyncio.get_running_loop()

        def tell(update: ProgressUpdate) -> None:
            if self.bus.wants("tool.progress"):
                data: JsonObject = {
                    "call_id": update.call_id,
                    "text": update.text,
                    "fraction": update.fraction,
                }
                # Tools report from any thread; the loop may have ended meanwhile.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._emit, "tool.progress", data)

        return tell

    def attend(self, manager: ToolExecutionManager) -> None:
        """Have the hooks asked about a manager's calls, and subscribers told of them."""
        if self.hooks:
            manager.hooks = ToolHooks(self.hooks, manager.tool_registry, self.where)
        manager.bus, manager.where = self.bus, self.where

    async def discover(self, registry: ToolRegistry, visible: dict[str, Tool]) -> dict[str, Tool]:
        """Return the tools that the model may see, without those that a hook hides."""
        if not self.hooks.has(ToolBeforeDiscovery, ToolAfterDiscovery):
            return visible
        ids = {
            "session_id": self.where.session_id,
            "run_id": self.where.run_id,
            "agent": self.where.agent_path.rsplit("/", 1)[-1],
        }
        known: Mapping[str, Tool] = registry.tools
        fired = await self.hooks.fire(ToolBeforeDiscovery(tools=tuple(sorted(known)), **ids))
        kept = set(fired.payload.tools)
        shown = {name: tool for name, tool in visible.items() if name in kept}
        await self.hooks.notify(ToolAfterDiscovery(tools=tuple(sorted(shown)), **ids))
        return shown

    def _emit(self, name: str, data: JsonObject) -> None:
        self.bus.emit(name, data, where=self.where)
