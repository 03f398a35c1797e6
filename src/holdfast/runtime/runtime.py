"""Runtime: builds every service once, opens them in order, closes them from one list.

Everything that can be asked of Holdfast from outside is an operation over one of these
(`holdfast.operations`); nothing else puts services together.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.agents import AGENTS, AgentFiles, AgentRegistry
from holdfast.artifacts import ARTIFACT_PROJECTIONS
from holdfast.context import ContextBuilder, MemoriesStep, RecallStep, list_default_steps
from holdfast.errors import StorageError, StorageReadOnly, UsageError
from holdfast.identity import ControlPlane
from holdfast.journal import (
    SYSTEM_SESSION,
    Chains,
    CopyReport,
    Journal,
    RoleKind,
    SchemaStatus,
    copy_records,
    declare_payload_modules,
    grant_role,
    list_store_places,
    migrate_store,
    open_chains,
    open_store,
)
from holdfast.observability import process_redactor
from holdfast.orchestration.triggers import TRIGGER_PROJECTIONS
from holdfast.policy import APPROVALS, TENANTS, Budget, BudgetLedger, PolicyStore, SharedBudget
from holdfast.runs import CHILDREN, Budgets, Confinement, MessageFiles
from holdfast.runtime.anchors import AnchorService
from holdfast.runtime.approvals import ApprovalService
from holdfast.runtime.artifacts import ArtifactService
from holdfast.runtime.calls import CallEnvironment
from holdfast.runtime.contexts import ContextService
from holdfast.runtime.egress import EgressService
from holdfast.runtime.feed import SharedFeed
from holdfast.runtime.hand_calls import HandCallService
from holdfast.runtime.hooks import HookService
from holdfast.runtime.idempotency import IdempotencyService
from holdfast.runtime.log_lines import LogLines
from holdfast.runtime.mcp import McpService
from holdfast.runtime.memory import MemoryService
from holdfast.runtime.models import ModelService
from holdfast.runtime.plugin_service import PluginService
from holdfast.runtime.processes import ProcessEnvironment
from holdfast.runtime.recovery import RecoveryService
from holdfast.runtime.request_events import REQUEST_KEYS
from holdfast.runtime.runs import RunService
from holdfast.runtime.skills import SkillService, list_skill_folders
from holdfast.runtime.state import StateService, read_state_limits
from holdfast.runtime.storage import StorageService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.settings import (
    Settings,
    list_governing_places,
    list_secret_places,
    load_settings,
    make_config_error,
    make_unvouched_settings,
)
from holdfast.skills import InstructionTrust, TrustStore
from holdfast.state import STATE
from holdfast.tools import HostRates, SafeHttpClient
from holdfast.turns import LeaseKeeper, TurnQueue
from holdfast.webhooks import WEBHOOK_PROJECTIONS

if TYPE_CHECKING:
    from holdfast.identity import ApiKey
    from holdfast.redaction import Redactor
    from holdfast.runtime.audit import AuditService
    from holdfast.runtime.loops import LoopService
    from holdfast.runtime.traces import TraceService
    from holdfast.runtime.triggers import TriggerService
    from holdfast.runtime.undo import UndoService
    from holdfast.runtime.workers import WorkerService
    from holdfast.runtime.workflows import WorkflowService
    from holdfast.webhooks import WebhookService

PROJECTIONS = (
    *SESSION_PROJECTIONS,
    AGENTS,
    APPROVALS,
    TENANTS,
    CHILDREN,
    STATE,
    REQUEST_KEYS,
    *WEBHOOK_PROJECTIONS,
    *TRIGGER_PROJECTIONS,
    *ARTIFACT_PROJECTIONS,
)
"""The tables that follow from the log."""
# Their rooms are loaded when they are used, or when an event of theirs is read.
declare_payload_modules(
    "holdfast.agents.handoff",
    "holdfast.context.events",
    "holdfast.mcp.events",
    "holdfast.memory.events",
    "holdfast.orchestration.loop.events",
    "holdfast.orchestration.triggers.events",
    "holdfast.orchestration.workflows.events",
    "holdfast.policy.file_events",
    "holdfast.providers.events",
    "holdfast.runtime.identity_events",
    "holdfast.tools.egress.events",
)
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_Close = Callable[[], Awaitable[None]]


def make_forked_error() -> UsageError:
    """Say that a client belongs to the process from which this one was forked."""
    return UsageError(detail="This client was made before this process was forked; make a new one.")


class Runtime:
    """One state directory with everything that works on it.

    The constructor builds and checks, and touches no file but the settings'; the first
    `opened` opens. The caller that forks makes a new one.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        base_dir: str | os.PathLike[str] | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
        control: ControlPlane | None = None,
    ) -> None:
        """Build every service; `base_dir` and `tenant` are those of the settings unless given.

        `control` is what tenants share; without it this is the operator's own tenant.

        Raises:
            ConfigError: the settings are wrong; all mistakes are named.
        """
        self.settings = settings if settings is not None else load_settings().settings
        chosen = base_dir if base_dir is not None else self.settings.storage_path
        # Absolute, because a tool may change the directory of the process.
        self.base_dir = Path(chosen).absolute()
        self._refuse_doubtful_settings()
        self.tenant = tenant or self.settings.tenant
        if not _TENANT.fullmatch(self.tenant):
            raise UsageError(detail=f"{self.tenant!r} cannot be the name of a tenant.")
        self.redactor = redactor if redactor is not None else process_redactor(self.settings)
        self._owns_control = control is None
        self.control = control or ControlPlane(self.base_dir, operator=self.tenant)
        self._process = os.getpid()
        self._one_at_a_time = asyncio.Lock()
        self._one_reads_policies = asyncio.Lock()
        self._is_open = self._is_ending = self._is_closed = self._has_policies = False
        self._build_records()
        self._build_limits()
        self._build_runs()
        self._build_orchestration()
        self._auditing: asyncio.Task[None] | None = None
        self._tracing: asyncio.Task[None] | None = None
        self._end_reports: Callable[[], None] | None = None
        if self._owns_control:
            self.control.keys.on_use = self._note_key_use
        # In this order: who starts work first, the records last.
        self._closing: tuple[_Close, ...] = (
            self._close_webhooks,
            self.recovery.close,
            self.runs.close,
            self.feed.close,
            self.memory.close,
            self.models.close,
            self.policies.close,
            self.turns.close,
            self._close_leases,
            self.artifacts.close,
            self.anchors.close,
            self._close_audit,
            self._close_traces,
            self._close_workers,
            self._close_reports,
            self.journal.close,
            self.mcp.close,
            self.hooks.close,
            self.toolbox.close,
            self._close_control,
        )

    def _build_records(self) -> None:
        store = open_store(
            self.settings.storage.url,
            base_dir=self.base_dir,
            projections=PROJECTIONS,
            durability=self.settings.storage.durability,
        )
        self.journal = Journal(store, redactor=self.redactor)
        self.journal.on_stored = LogLines(self.settings, self.tenant).note
        self.feed = SharedFeed(self.journal)
        self.idempotency = IdempotencyService(self.journal)
        self._keeper = LeaseKeeper(self.journal, ttl_s=self.settings.sessions.lease_ttl_s)
        self.sessions = SessionManager(self.journal, self._keeper)
        self.turns = TurnQueue(self.sessions, self._keeper)
        self.artifacts = ArtifactService(
            self.settings, self.base_dir, self.journal, self.tenant, self._name_process
        )
        self.anchors = AnchorService(
            self.journal, self.settings, base_dir=self.base_dir, store=self.tenant
        )

    def _build_limits(self) -> None:
        """What confines every run: policies, network, sandbox, budgets."""
        settings = self.settings
        unvouched = make_unvouched_settings(settings, self.base_dir)
        self._writes = unvouched.writes
        self.policies = PolicyStore(
            settings.policies.dir,
            is_net_allowed=settings.network.allow_net,
            journal=self.journal,
            unvouched=unvouched,
        )
        policies = self.policies
        records = list_store_places(settings.storage.url, base_dir=self.base_dir)
        # What lies in the state directory is hidden with it.
        chosen = self.artifacts.place if settings.artifacts.url else None
        files = () if chosen is None else (chosen,)
        secrets = list_secret_places(settings)
        # Tools and programs ask hosts on one account, and so do all processes of this directory.
        rates = HostRates(self.journal.clock, self.base_dir / "rates")
        is_tenant = self.tenant != self.control.operator
        hidden = (
            self.control.directory,
            *self.control.workspaces,
            self.base_dir,
            *self.anchors.files,
        )
        self.confinement = Confinement(
            policies=policies,
            http=SafeHttpClient(lambda: policies.bundle.network_rules, rates=rates),
            # The records, and the files with keys: no tool and no program may see them.
            hidden=tuple(map(str, dict.fromkeys((*hidden, *records, *files, *secrets)))),
            home=str(settings.workspace) if is_tenant else "",
            lent=tuple(map(str, list_skill_folders(settings))) if is_tenant else (),
            read_only=tuple(map(str, list_governing_places(settings))),
            unvouched=unvouched,
        )
        self.processes = ProcessEnvironment(self.confinement, self.journal.clock)
        self.egress = EgressService(self.journal, self.confinement, self.journal.clock, rates=rates)
        shared = SharedBudget(
            self.journal,
            self.tenant,
            Budget(**settings.budget.model_dump()),
            owner=self._keeper.owner,
        )
        self.budgets = Budgets(ledger=BudgetLedger(), tenant=shared)

    def _build_runs(self) -> None:
        """Agents, models, hooks, tools, and what executes them."""
        settings, trust = self.settings, TrustStore(self.base_dir)
        files = AgentFiles(
            settings.workspace,
            user_folder=settings.user_dir / "agents",
            trust=trust,
            writes=self._writes,
        )
        self.agents = AgentRegistry(self.journal, files=files)
        self.plugins = PluginService(settings.plugins.enabled)
        self.models = ModelService(settings, self.base_dir, self.plugins)
        self.hooks = HookService(
            settings, self.journal, trust, self.load_policies_once, self.processes
        )
        self.skills = SkillService(settings, trust)
        self.memory = MemoryService(
            settings, self.base_dir, self.sessions, self.models, self.redactor, self.tenant
        )
        self.mcp = McpService(
            settings,
            self.base_dir,
            self.journal,
            self.redactor,
            self.load_policies_once,
            self.processes,
            self.egress,
            self.agents,
        )
        self.toolbox = ToolService(
            settings,
            self.sessions,
            self.confinement,
            self.agents,
            skills=self.skills,
            memory=self.memory,
            mcp=self.mcp,
        )
        self.runs = RunService(
            settings,
            self.sessions,
            self.turns,
            agents=self.agents,
            models=self.models,
            hooks=self.hooks,
            skills=self.skills,
            memory=self.memory,
            toolbox=self.toolbox,
            confinement=self.confinement,
            context=self._make_context_builder(),
            budgets=self.budgets,
            calls=CallEnvironment(
                self.journal,
                self.confinement,
                self.artifacts,
                self.processes,
                self.egress,
                self.journal.clock,
                tenant=self.tenant,
                state_limits=read_state_limits(settings),
            ),
            files=MessageFiles(self.artifacts),
        )
        self.hand_calls = HandCallService(
            self.sessions, self.turns, self.runs, self.agents, self.toolbox
        )
        self.runs.take_over = self.hand_calls.take_over
        self.runs.check_policies = self.load_policies_once

    def _build_orchestration(self) -> None:
        """Everything that starts runs of its own, and what looks after the records."""
        sessions, turns, runs = self.sessions, self.turns, self.runs
        self.approvals = ApprovalService(sessions, turns, runs, self.toolbox)
        self.state = StateService(
            self.settings,
            self.journal,
            self.hooks.hooks,
            self.tenant,
            self._find_session_of_run,
            self._find_owner_of_session,
        )
        self.contexts = ContextService(
            sessions,
            runs=runs,
            models=self.models,
            hooks=self.hooks,
            skills=self.skills,
            memory=self.memory,
            toolbox=self.toolbox,
            state=self.state,
        )
        self.storage = StorageService(
            sessions, self.agents, self.memory, self.artifacts, lambda: self.loops
        )
        self.recovery = RecoveryService(self)

    @functools.cached_property
    def loops(self) -> LoopService:
        """Autonomous loops; the room behind them is loaded with the first one."""
        from holdfast.runtime.loops import LoopService  # noqa: PLC0415 - optional

        return LoopService(
            self.settings, self.base_dir, self.sessions, self.turns, self.runs, self.artifacts
        )

    @functools.cached_property
    def audit(self) -> AuditService:
        """The audit trail; what writes it is loaded a second after the start, or at the end."""
        from holdfast.runtime.audit import AuditService  # noqa: PLC0415 - optional

        return AuditService(self.settings, self.base_dir, self.sessions, self.tenant)

    @functools.cached_property
    def traces(self) -> TraceService:
        """Traces for OpenTelemetry; loaded with the first one."""
        from holdfast.runtime.traces import TraceService  # noqa: PLC0415 - optional

        return TraceService(self.settings, self.base_dir, self.journal, self.turns, self.tenant)

    @property
    def _has_audit(self) -> bool:
        """Whether there is a trail: what is kept nowhere has none."""
        return self.settings.audit.enabled and self.settings.storage.url != "memory://"

    @functools.cached_property
    def undo(self) -> UndoService:
        """What takes back the newest part of a session."""
        from holdfast.runtime.undo import UndoService  # noqa: PLC0415 - optional

        return UndoService(self.sessions, self.confinement)

    @functools.cached_property
    def workflows(self) -> WorkflowService:
        """Workflows; the room behind them is loaded with the first one."""
        from holdfast.runtime.workflows import WorkflowService  # noqa: PLC0415 - optional

        return WorkflowService(
            self.settings,
            self.sessions,
            self.turns,
            runs=self.runs,
            toolbox=self.toolbox,
            mcp=self.mcp,
            redactor=self.redactor,
        )

    @functools.cached_property
    def triggers(self) -> TriggerService:
        """Triggers; the room behind them is loaded with the first one."""
        from holdfast.runtime.triggers import TriggerService  # noqa: PLC0415 - optional

        return TriggerService(self.settings, self.sessions, self.runs, self.workflows)

    @functools.cached_property
    def workers(self) -> WorkerService:
        """Workers on the sessions of this tenant; loaded by those who are one, or ask for them."""
        from holdfast.runtime.workers import WorkerService  # noqa: PLC0415 - optional

        return WorkerService(self)

    @functools.cached_property
    def webhooks(self) -> WebhookService:
        """Webhooks; they are sent by the process that begins to."""
        from holdfast.webhooks import WebhookService  # noqa: PLC0415 - optional

        return WebhookService(
            self.sessions,
            base_dir=self.base_dir,
            tenant=self.tenant,
            networks=self.settings.server.webhook_networks,
            sinks=self.plugins.sinks,
        )

    def _make_context_builder(self) -> ContextBuilder:
        builder = ContextBuilder(
            self.sessions,
            steps=list_default_steps(InstructionTrust(TrustStore(self.base_dir), self._writes)),
        )
        tokens = self.settings.memory.recall_tokens
        if not tokens:
            return builder
        # Whatever fits the budget is shown, as the journal says; a token has four characters.
        shown = builder.with_replacement(
            MemoriesStep(max_chars=max(MemoriesStep.MAX_CHARS, 4 * tokens))
        )
        return shown.with_step(RecallStep(self.memory.recall), after="history")

    # --- opening and closing ----------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the records are open."""
        return self._is_open

    async def opened(self) -> Runtime:
        """Return this runtime, open.

        Raises:
            UsageError: it is closed, or belongs to the process from which this one was forked.
        """
        if os.getpid() != self._process:
            # It would write as the same owner, on the same connection, beside the other one.
            raise make_forked_error()
        if not self._is_open:
            async with self._one_at_a_time:
                if self._is_closed:
                    raise UsageError(detail="This client is closed; make a new one.")
                if not self._is_open:
                    if self.settings.telemetry.errors:
                        # First, so that what cannot be reported to is said before any work.
                        if self._end_reports is None:
                            self._end_reports = await asyncio.to_thread(self._report_errors)
                    if self.plugins.enabled:
                        await asyncio.to_thread(self.plugins.load, self)
                    await self.journal.open()
                    self._is_open = True
                    self.anchors.begin()
                    if self._has_audit:
                        self._auditing = asyncio.create_task(self._follow_audit(), name="audit")
                    if self.settings.telemetry.otlp_url:
                        # What ends from now on is sent, also what ends before the first look.
                        await self.traces.send_quietly()
                        self._tracing = asyncio.create_task(self.traces.follow(), name="traces")
        # Hooks that came since may want to be told of stored facts.
        if not self.hooks.has_begun or not self.hooks.hooks.is_empty:
            await self.hooks.begin()
        return self

    async def close(self) -> None:
        """Finish what was accepted and give everything back; safe to repeat."""
        if self._is_open and not self._is_ending:
            self._is_ending = True
            # The caller that is told may still ask something, so this comes first.
            await self.hooks.say_goodbye()
        self._is_closed = True
        async with self._one_at_a_time:
            if not self._is_open:
                return
            self._is_open = False
            failed: list[Exception] = []
            for close in self._closing:
                try:
                    await close()
                except Exception as error:  # noqa: BLE001 - the others have to be closed too
                    failed.append(error)
            if failed:
                raise failed[0]

    async def chains(self) -> Chains:
        """Return the chains of all sessions, from the file alone where nothing can be written."""
        try:
            await self.opened()
        except StorageReadOnly:
            chains = open_chains(self.settings.storage.url, base_dir=self.base_dir)
            if chains is None:
                raise
            return chains
        return self.journal.store

    async def migrate_store(self, *, is_dry: bool) -> SchemaStatus:
        """Bring the schema of the records up to date, or say what that would change."""
        url = self.settings.storage.url
        records = await migrate_store(
            url, base_dir=self.base_dir, projections=PROJECTIONS, is_dry=is_dry
        )
        applied, pending = [*records.applied], [*records.pending]
        for what, service in (("memories", self.memory), ("artifacts", self.artifacts)):
            found = await service.migrate_store(is_dry=True)
            if found is None or (is_dry and not found.version):
                continue  # what was never used is set up by its first use
            if not is_dry:
                try:
                    found = await service.migrate_store(is_dry=False) or found
                except StorageError as error:
                    # A server without pgvector can keep everything but memories.
                    if found.version:
                        raise
                    pending.append(f"{what} ({error.context['detail']})")
                    continue
            applied += [f"{what} {step}" for step in found.applied]
            pending += [f"{what} {step}" for step in found.pending]
        return msgspec.structs.replace(records, applied=tuple(applied), pending=tuple(pending))

    async def grant_role(self, role: str, kind: RoleKind) -> None:
        """Let a role of the database of the records do what a kind of process needs."""
        await grant_role(self.settings.storage.url, role, kind)
        if kind == "records":
            await self.memory.grant_role(role)
            await self.artifacts.grant_role(role)

    async def copy_store(
        self, source: str, target: str, progress: Callable[[int, int], None]
    ) -> CopyReport:
        """Copy the records of one store to another."""
        stores = [
            open_store(url, base_dir=self.base_dir, projections=PROJECTIONS, durability="power")
            for url in (source, target)
        ]
        return await copy_records(*stores, progress=progress)

    async def load_policies_once(self) -> PolicyStore:
        """Return the policies in force, read with the first call.

        Raises:
            PolicyInvalid: a policy file is wrong, or one of the candidate's in
                `policies.shadow_dir`; no run begins until it is corrected.
        """
        if self._has_policies:
            return self.policies
        async with self._one_reads_policies:
            # Others waited for the first; were each to read, the log would tell of many changes.
            if not self._has_policies:
                await self.policies.load()
                if self.settings.policies.shadow_dir is not None:
                    await self.policies.watch_candidate(self.settings.policies.shadow_dir)
                self._has_policies = True
                self.policies.begin_following()
        return self.policies

    async def _find_session_of_run(self, run_id: str) -> str:
        """Return the session of a run; raises NotFound."""
        return (await self.turns.get(run_id)).session_id

    async def _find_owner_of_session(self, session_id: str) -> str:
        """Return in whose name a session was begun; raises NotFound."""
        return (await self.sessions.get_session(session_id)).owner

    async def _follow_audit(self) -> None:
        await asyncio.sleep(1)
        await self.audit.follow()

    async def _close_audit(self) -> None:
        if self._auditing is not None:
            self._auditing.cancel()
            await asyncio.gather(self._auditing, return_exceptions=True)
            await self.audit.write_quietly()

    async def _close_traces(self) -> None:
        if self._tracing is not None:
            self._tracing.cancel()
            await asyncio.gather(self._tracing, return_exceptions=True)
            await self.traces.send_quietly()

    def _report_errors(self) -> Callable[[], None]:
        from holdfast.observability import install_error_reporter  # noqa: PLC0415 - optional

        return install_error_reporter(self.settings)

    async def _close_reports(self) -> None:
        if self._end_reports is not None:
            await asyncio.to_thread(self._end_reports)

    async def _note_key_use(self, key: ApiKey) -> None:
        from holdfast.runtime.identity_events import KeyUsed  # noqa: PLC0415 - optional

        used = KeyUsed(key_id=key.id, name=key.name, subject=key.subject, tenant=key.tenant)
        await (await self.opened()).journal.append(SYSTEM_SESSION, [used])

    async def _close_webhooks(self) -> None:
        if "webhooks" in self.__dict__:
            await self.webhooks.close()

    async def _close_workers(self) -> None:
        if "workers" in self.__dict__:
            await self.workers.close()

    async def _close_control(self) -> None:
        if self._owns_control:
            await self.control.close()

    async def _name_process(self) -> str:
        """Return the name of this process among all who share the store, which knows it to live."""
        await self._keeper.show_presence()
        return self._keeper.owner

    async def _close_leases(self) -> None:
        await asyncio.to_thread(self._keeper.close)

    def _refuse_doubtful_settings(self) -> None:
        if self.base_dir == self.settings.storage_path:
            return
        # Who loaded the settings did not know of this directory, and what is noted there.
        settings = self.settings
        doubts = make_unvouched_settings(settings, self.base_dir).mistakes(
            lambda: (*list_governing_places(settings), *list_secret_places(settings))
        )
        if doubts:
            raise make_config_error(doubts)
