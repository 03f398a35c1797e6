"""Every setting with its default, its meaning and its variable.

The sections lie beside it (`work`, `records`, `service`). Together they are the single definition:
the loader, `holdfast config view` and the reference page `docs/reference/configuration.md` are
made from them. A setting is read from the variable given with `name_variable`, else from
`HOLDFAST_<SECTION>__<KEY>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from holdfast.settings.mcp import McpEndpoints
from holdfast.settings.records import (
    ArtifactSettings,
    MemorySettings,
    SessionSettings,
    StateSettings,
    StorageSettings,
    WorkerSettings,
)
from holdfast.settings.section import SettingsSection, name_variable
from holdfast.settings.service import (
    AuditSettings,
    LogSettings,
    PluginSettings,
    RemoteSettings,
    ServerSettings,
    TelemetrySettings,
)
from holdfast.settings.values import AnyCase, Directory, Line
from holdfast.settings.work import (
    ApprovalSettings,
    BudgetSettings,
    ModelSettings,
    NetworkSettings,
    OrchestrationSettings,
    PolicySettings,
    PromotionSettings,
    SecretSettings,
    ToolSettings,
)

Environment = Annotated[Literal["dev", "staging", "prod"], AnyCase]


class Settings(SettingsSection):
    """All settings of one process; made by `load_settings`, then frozen."""

    env: Environment | None = Field(
        default=None,
        description="Overlay to read: `holdfast.<env>.toml` beside the project file.",
        json_schema_extra=name_variable("HOLDFAST_ENV"),
    )
    workspace: Directory = Field(
        description="Directory that agents work in; by default the working directory.",
        json_schema_extra=name_variable("AGENT_WORKSPACE"),
    )
    user_dir: Directory = Field(
        description="Directory of your own `skills` and `agents`; by default "
        "`$XDG_CONFIG_HOME/holdfast` or `~/.config/holdfast`.",
        json_schema_extra=name_variable("HOLDFAST_USER_DIR"),
    )
    home_dir: Directory | None = Field(
        default=None,
        description="Your home directory, whose `.agents/skills` and `.claude/skills` are offered "
        "as your own skills; by default `$HOME`.",
    )
    tenant: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = Field(
        default="default",
        description="On whose account runs spend (what `budget` limits is counted per tenant), and "
        "whose memories are found.",
    )
    default_agent: Line = Field(
        default="build",
        description="Agent that works where neither a request nor its session names one.",
        json_schema_extra=name_variable("AGENT_DEFAULT"),
    )
    model: ModelSettings = Field(default_factory=ModelSettings)
    storage: StorageSettings
    artifacts: ArtifactSettings = Field(default_factory=ArtifactSettings)
    sessions: SessionSettings = Field(default_factory=SessionSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    workers: WorkerSettings = Field(default_factory=WorkerSettings)
    state: StateSettings = Field(default_factory=StateSettings)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    orchestration: OrchestrationSettings = Field(default_factory=OrchestrationSettings)
    network: NetworkSettings = Field(default_factory=NetworkSettings)
    policies: PolicySettings
    tools: ToolSettings
    promotion: PromotionSettings = Field(default_factory=PromotionSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    mcp_endpoints: McpEndpoints = Field(
        default_factory=dict,
        description="MCP servers whose tools agents may use, each in a table of its own, such as "
        "`[mcp_endpoints.files]`; files add up, and the stronger one wins where both name a "
        "server. See the guide on MCP servers.",
    )
    server: ServerSettings = Field(default_factory=ServerSettings)
    remote: RemoteSettings = Field(default_factory=RemoteSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    plugins: PluginSettings = Field(default_factory=PluginSettings)
    secrets: SecretSettings = Field(default_factory=SecretSettings)

    @property
    def storage_path(self) -> Path:
        """The directory that holds all records: `storage.state_dir`."""
        return self.storage.state_dir
