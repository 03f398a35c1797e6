"""What both clients have: namespaces, the flat names, and what is set for all runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.operations import Channel, Mode, Surface
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.client.namespaces.agents import AgentNamespace
    from holdfast.client.namespaces.approvals import ApprovalNamespace
    from holdfast.client.namespaces.artifacts import ArtifactNamespace
    from holdfast.client.namespaces.audit import AuditNamespace
    from holdfast.client.namespaces.events import EventNamespace
    from holdfast.client.namespaces.hooks import HookNamespace
    from holdfast.client.namespaces.keys import KeyNamespace
    from holdfast.client.namespaces.loops import LoopNamespace
    from holdfast.client.namespaces.mcp import McpNamespace
    from holdfast.client.namespaces.memory import MemoryNamespace
    from holdfast.client.namespaces.messages import MessageNamespace
    from holdfast.client.namespaces.policies import PolicyNamespace
    from holdfast.client.namespaces.providers import ProviderNamespace
    from holdfast.client.namespaces.runs import RunNamespace
    from holdfast.client.namespaces.sessions import SessionNamespace
    from holdfast.client.namespaces.skills import SkillNamespace
    from holdfast.client.namespaces.state import StateNamespace
    from holdfast.client.namespaces.storage import StorageNamespace
    from holdfast.client.namespaces.tenants import TenantNamespace
    from holdfast.client.namespaces.tools import ToolNamespace
    from holdfast.client.namespaces.triggers import TriggerNamespace
    from holdfast.client.namespaces.usage import UsageNamespace
    from holdfast.client.namespaces.webhooks import WebhookNamespace
    from holdfast.client.namespaces.workers import WorkerNamespace
    from holdfast.client.namespaces.workflows import WorkflowNamespace
    from holdfast.context import ContextBuilder
    from holdfast.hooks import ExecutionContext
    from holdfast.providers import RateLimiter
    from holdfast.redaction import Redactor
    from holdfast.settings import Settings
    from holdfast.tools import Approver, Attendant

if TYPE_CHECKING:
    from holdfast.client.flat import FlatNames as _Flat
else:
    _Flat = Surface

FLAT: Final = {
    "create_session": "sessions.create",
    "get_session": "sessions.get",
    "list_sessions": "sessions.list",
    "update_session": "sessions.update",
    "archive_session": "sessions.archive",
    "restore_session": "sessions.restore",
    "delete_session": "sessions.delete",
    "fork_session": "sessions.fork",
    "revert_session": "sessions.revert",
    "add_message": "messages.add",
    "list_messages": "messages.list",
    "get_message": "messages.get",
    "delete_message": "messages.delete",
    "register_agent": "agents.register",
    "get_agent": "agents.get_definition",
    "list_agents": "agents.list_definitions",
    "remove_agent": "agents.remove",
    "register_tool": "tools.register",
    "get_execution_history": "tools.history",
    "execute_agent": "runs.execute",
    "stream_agent": "runs.stream",
    "stream": "runs.stream",
    "store_memory": "memory.store",
    "search_memory": "memory.search",
    "summarize_memories": "memory.summarize",
    "use_callbacks": "hooks.use_callbacks",
}
"""Names without a namespace: those that people know from elsewhere, each a forward."""


class ClientSurface(_Flat[Mode]):
    """Namespaces over one channel; each is loaded when it is first used."""

    def __init__(self, runtime: Runtime, channel: Channel) -> None:
        """Ask this runtime over this channel."""
        super().__init__(channel)
        self._runtime = runtime
        self._namespaces: dict[str, Any] = {}

    def _open_namespace(self, name: str, kind: str) -> Any:  # noqa: ANN401 - typed by the properties
        found = self._namespaces.get(name)
        if found is None:
            module = importlib.import_module(f"holdfast.client.namespaces.{name}")
            found = self._namespaces[name] = getattr(module, kind)(self._channel)
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - typed above
            """Forward a flat name to its namespace."""
            if name not in FLAT:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            namespace, _, method = FLAT[name].partition(".")
            found = self.__dict__[name] = getattr(getattr(self, namespace), method)
            return found

        def __dir__(self) -> list[str]:
            """Name the flat names too."""
            return sorted({*super().__dir__(), *FLAT})

    # --- namespaces -------------------------------------------------------------------

    @property
    def sessions(self) -> SessionNamespace[Mode]:
        """Sessions: create, find, change, archive, fork, revert, export, import."""
        found: SessionNamespace[Mode] = self._open_namespace("sessions", "SessionNamespace")
        return found

    @property
    def messages(self) -> MessageNamespace[Mode]:
        """Messages: add, read, change, delete."""
        found: MessageNamespace[Mode] = self._open_namespace("messages", "MessageNamespace")
        return found

    @property
    def runs(self) -> RunNamespace[Mode]:
        """Runs: start, follow, end."""
        found: RunNamespace[Mode] = self._open_namespace("runs", "RunNamespace")
        return found

    @property
    def loops(self) -> LoopNamespace[Mode]:
        """The autonomous loop."""
        found: LoopNamespace[Mode] = self._open_namespace("loops", "LoopNamespace")
        return found

    @property
    def agents(self) -> AgentNamespace[Mode]:
        """Agents: register, find, remove."""
        found: AgentNamespace[Mode] = self._open_namespace("agents", "AgentNamespace")
        return found

    @property
    def tools(self) -> ToolNamespace[Mode]:
        """Tools: register, call by hand, see what was called."""
        found: ToolNamespace[Mode] = self._open_namespace("tools", "ToolNamespace")
        return found

    @property
    def memory(self) -> MemoryNamespace[Mode]:
        """Memories: store, search, supersede, forget."""
        found: MemoryNamespace[Mode] = self._open_namespace("memory", "MemoryNamespace")
        return found

    @property
    def artifacts(self) -> ArtifactNamespace[Mode]:
        """Artifacts: save, load, stream, find, version, share and delete files."""
        found: ArtifactNamespace[Mode] = self._open_namespace("artifacts", "ArtifactNamespace")
        return found

    @property
    def state(self) -> StateNamespace[Mode]:
        """State: values by address, with versions, shared by agents and kept between runs."""
        found: StateNamespace[Mode] = self._open_namespace("state", "StateNamespace")
        return found

    @property
    def approvals(self) -> ApprovalNamespace[Mode]:
        """What waits for a person."""
        found: ApprovalNamespace[Mode] = self._open_namespace("approvals", "ApprovalNamespace")
        return found

    @property
    def policies(self) -> PolicyNamespace[Mode]:
        """The operator's policies."""
        found: PolicyNamespace[Mode] = self._open_namespace("policies", "PolicyNamespace")
        return found

    @property
    def workflows(self) -> WorkflowNamespace[Mode]:
        """Workflows: check, run, resume, list."""
        found: WorkflowNamespace[Mode] = self._open_namespace("workflows", "WorkflowNamespace")
        return found

    @property
    def triggers(self) -> TriggerNamespace[Mode]:
        """Triggers: events and schedules that start runs."""
        found: TriggerNamespace[Mode] = self._open_namespace("triggers", "TriggerNamespace")
        return found

    @property
    def mcp(self) -> McpNamespace[Mode]:
        """MCP servers."""
        found: McpNamespace[Mode] = self._open_namespace("mcp", "McpNamespace")
        return found

    @property
    def skills(self) -> SkillNamespace[Mode]:
        """Skills."""
        found: SkillNamespace[Mode] = self._open_namespace("skills", "SkillNamespace")
        return found

    @property
    def usage(self) -> UsageNamespace[Mode]:
        """Tokens and dollars."""
        found: UsageNamespace[Mode] = self._open_namespace("usage", "UsageNamespace")
        return found

    @property
    def audit(self) -> AuditNamespace[Mode]:
        """The hash chains."""
        found: AuditNamespace[Mode] = self._open_namespace("audit", "AuditNamespace")
        return found

    @property
    def keys(self) -> KeyNamespace[Mode]:
        """API keys: make, list, rotate, revoke."""
        found: KeyNamespace[Mode] = self._open_namespace("keys", "KeyNamespace")
        return found

    @property
    def tenants(self) -> TenantNamespace[Mode]:
        """Tenants: make, suspend, export, delete; erase a user."""
        found: TenantNamespace[Mode] = self._open_namespace("tenants", "TenantNamespace")
        return found

    @property
    def webhooks(self) -> WebhookNamespace[Mode]:
        """Webhooks: who is told what happens, and what became of it."""
        found: WebhookNamespace[Mode] = self._open_namespace("webhooks", "WebhookNamespace")
        return found

    @property
    def workers(self) -> WorkerNamespace[Mode]:
        """Workers: who goes on with sessions, and what was given up."""
        found: WorkerNamespace[Mode] = self._open_namespace("workers", "WorkerNamespace")
        return found

    @property
    def storage(self) -> StorageNamespace[Mode]:
        """The store itself."""
        found: StorageNamespace[Mode] = self._open_namespace("storage", "StorageNamespace")
        return found

    @property
    def events(self) -> EventNamespace[Mode]:
        """Events, as they happen and as they are stored."""
        found: EventNamespace[Mode] = self._open_namespace("events", "EventNamespace")
        return found

    @property
    def hooks(self) -> HookNamespace[Mode]:
        """Hooks: register before or while the client is open; list and trust those of files."""
        found: HookNamespace[Mode] = self._open_namespace("hooks", "HookNamespace")
        return found

    @property
    def providers(self) -> ProviderNamespace[Mode]:
        """Providers and models."""
        found: ProviderNamespace[Mode] = self._open_namespace("providers", "ProviderNamespace")
        return found

    # --- what is set for all runs -----------------------------------------------------

    @property
    def context(self) -> ExecutionContext:
        """What every run of this client inherits: data, and services by type."""
        return self._runtime.hooks.execution

    @property
    def settings(self) -> Settings:
        """The settings of this client."""
        return self._runtime.settings

    @property
    def base_dir(self) -> Path:
        """Where the records are kept."""
        return self._runtime.base_dir

    @property
    def tenant(self) -> str:
        """On whose account runs of this client spend, and whose memories it keeps and finds."""
        return self._runtime.tenant

    @property
    def redactor(self) -> Redactor:
        """What keeps secrets out of the state directory."""
        return self._runtime.redactor

    @property
    def context_builder(self) -> ContextBuilder:
        """The builder of all contexts; put another one in its place to change its steps."""
        return self._runtime.runs.context

    @context_builder.setter
    def context_builder(self, builder: ContextBuilder) -> None:
        self._runtime.runs.context = builder

    @property
    def approver(self) -> Approver | None:
        """Who answers when a call asks; no caller unless set."""
        return self._runtime.runs.approver

    @approver.setter
    def approver(self, approver: Approver | None) -> None:
        self._runtime.runs.approver = approver

    @property
    def attendant(self) -> Attendant | None:
        """Who answers questions of agents while they wait; without one, the run parks."""
        return self._runtime.hooks.attendant

    @attendant.setter
    def attendant(self, attendant: Attendant | None) -> None:
        self._runtime.hooks.attendant = attendant

    @property
    def rate_limiter(self) -> RateLimiter | None:
        """Rules that every model opened from now on keeps to, such as calls per minute."""
        return self._runtime.models.rate_limiter

    @rate_limiter.setter
    def rate_limiter(self, limiter: RateLimiter | None) -> None:
        self._runtime.models.rate_limiter = limiter

    @property
    def fallback_models(self) -> tuple[str, ...]:
        """Models to ask in this order when the wanted one fails; each step is journalled."""
        return self._runtime.models.fallback_models

    @fallback_models.setter
    def fallback_models(self, models: tuple[str, ...]) -> None:
        self._runtime.models.fallback_models = models


__all__ = ["FLAT", "ClientSurface"]
