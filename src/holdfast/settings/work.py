"""What agents work with and may do: models, approvals, budgets, network, policies, tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.settings.language_servers import LanguageServerTable
from holdfast.settings.section import SettingsSection, name_variable
from holdfast.settings.values import (
    Directory,
    Duration,
    Line,
    Lines,
    OptionalCount,
    OptionalDollars,
    OptionalDuration,
    Secret,
    Switch,
    Url,
)


class ModelSettings(SettingsSection):
    """Which model answers, and where."""

    name: Line | None = Field(
        default=None,
        description="Model to use, such as `gpt-4o-mini` or `openai:gpt-4o-mini`; "
        "without it, the provider's own default.",
        json_schema_extra=name_variable("AGENT_MODEL"),
    )
    provider: Line | None = Field(
        default=None,
        description="Provider to use by name; without it, the first that is configured.",
    )
    openai_base_url: Url | None = Field(
        default=None,
        description="Address of an OpenAI-compatible server, such as LM Studio's "
        "`http://127.0.0.1:1234/v1`.",
        json_schema_extra=name_variable("OPENAI_BASE_URL"),
    )
    anthropic_base_url: Url | None = Field(
        default=None, description="Address of a server that speaks Anthropic Messages."
    )
    force_chat_completions: Switch = Field(
        default=False,
        description="Use Chat Completions even where Responses is available.",
        json_schema_extra=name_variable("AGENT_FORCE_CHAT_COMPLETIONS"),
    )


class ApprovalSettings(SettingsSection):
    """How consent to calls that ask is given."""

    expires_after_s: Duration = Field(
        default=604_800.0,
        description="A request that no approver answered, or used, for this long ends.",
    )
    required: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="How many different people have to consent to a call."
    )


class BudgetSettings(SettingsSection):
    """What all sessions of the state directory may spend together; `none` is without limit."""

    max_cost_usd: OptionalDollars = Field(
        default=None, description="Dollars that all model calls together may cost."
    )
    max_tokens: OptionalCount = Field(
        default=None, description="Tokens that all model calls together may use."
    )
    max_calls: OptionalCount = Field(default=None, description="Model calls in all.")
    max_tool_calls: OptionalCount = Field(default=None, description="Tool calls in all.")
    max_wall_s: OptionalDuration = Field(
        default=None, description="How long one run may work, without the time it is parked."
    )


class OrchestrationSettings(SettingsSection):
    """How many agents may work for each other, and how long."""

    parallel: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=32, description="Agents that one caller lets work at the same time."
    )
    depth: Annotated[int, Field(ge=1, le=32)] = Field(
        default=4, description="How many agents may stand above each other."
    )
    breadth: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=100, description="Runs that one run may start itself."
    )
    total: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=500, description="Runs that one run may start, directly or through others."
    )
    time_s: Duration = Field(
        default=3_600.0, description="How long a run that another one started may take."
    )


class NetworkSettings(SettingsSection):
    """What agents may reach."""

    allow_net: Switch = Field(
        default=False,
        description="Let tools reach the network, within the policies.",
        json_schema_extra=name_variable("ALLOW_NET"),
    )


class PolicySettings(SettingsSection):
    """Where the operator's policies are."""

    dir: Directory = Field(
        description="Directory of `tools.yaml`, `network.yaml` and `paths.yaml`; by default "
        "`policies` in the workspace.",
    )
    shadow_dir: Directory | None = Field(
        default=None,
        description="Directory of candidate policies that judge every call too, and change "
        "nothing; where they would decide differently, `holdfast policies shadow` says so.",
    )


class PromotionSettings(SettingsSection):
    """What must hold before `run --promote` merges what an agent did."""

    checks: Lines = Field(
        default=(),
        description="Commands that must end with 0, one after the other, such as "
        '`["ruff check .", "pytest -q"]`. They run in a fresh checkout of what would be merged, '
        "through the gate and in the sandbox. Without any, nothing is promoted.",
    )
    check_timeout_s: Annotated[float, Field(gt=0, le=600)] = Field(
        default=600.0, description="Seconds that one of them may take."
    )
    protected: Lines = Field(
        default=(
            ".github/**",
            ".gitlab-ci.yml",
            ".pre-commit-config.yaml",
            ".gitattributes",
            "**/.gitattributes",
            ".gitmodules",
            "holdfast*.toml",
            ".holdfast/**",
            "policies/**",
        ),
        description="Files that only a person changes: where a run has changed one, nothing is "
        "merged by itself.",
    )
    dir: Directory | None = Field(
        default=None,
        description="Directory for the worktrees; by default beside the repository, under its "
        "name with `.worktrees` behind.",
    )


class ToolSettings(SettingsSection):
    """Where installed tools are."""

    dir: Directory = Field(
        description="Directory of installed tool bundles; by default `tools` in the state "
        "directory.",
        json_schema_extra=name_variable("AGENT_TOOLS_DIR"),
    )
    searxng_url: Url | None = Field(
        default=None,
        description="Address of a SearXNG server with its JSON format on, for `websearch` and "
        "`codesearch`; its host must be allowed by the network rules.",
    )
    language_servers: LanguageServerTable = Field(
        default_factory=dict,
        description="Language servers for the `lsp` tool besides those that it finds itself, each "
        "in a table of its own, such as `[tools.language_servers.rust]`; a project's file cannot "
        "name any. See the guide on language servers.",
    )


class SecretSettings(SettingsSection):
    """Keys; they come from variables or the secrets file, never from a TOML file."""

    file: Directory | None = Field(
        default=None,
        description="File of `NAME=value` lines with keys, readable by its owner only "
        "(mode 0600); by default `.holdfast/secrets.env` if it exists.",
        json_schema_extra=name_variable("HOLDFAST_SECRETS_FILE"),
    )
    artifact_key: Secret | None = Field(
        default=None,
        description="Key that encrypts artifacts, AES-256-GCM (extra `artifacts`): 32 random bytes "
        "in base64. Without it they are kept as they are.",
        json_schema_extra=name_variable("HOLDFAST_ARTIFACT_KEY"),
    )
    artifact_former_key: Secret | None = Field(
        default=None,
        description="Key that encrypted artifacts before, until `holdfast artifacts rekey` is "
        "through.",
        json_schema_extra=name_variable("HOLDFAST_ARTIFACT_FORMER_KEY"),
    )
    anchor_token: Secret | None = Field(
        default=None,
        description="Token that is sent to the address of `audit.anchor`.",
        json_schema_extra=name_variable("HOLDFAST_ANCHOR_TOKEN"),
    )
    link_key: Secret | None = Field(
        default=None,
        description="Key that signs links to artifacts; another one makes all links invalid.",
        json_schema_extra=name_variable("HOLDFAST_LINK_KEY"),
    )
    oidc_client_secret: Secret | None = Field(
        default=None,
        description="Secret of `server.jwt.client_id` at the issuer; clients that are public "
        "have none.",
        json_schema_extra=name_variable("HOLDFAST_OIDC_CLIENT_SECRET"),
    )
    otlp_headers: Secret | None = Field(
        default=None,
        description="Headers for the OTLP receiver, such as `authorization=Bearer KEY`, with "
        "commas between them.",
        json_schema_extra=name_variable("OTEL_EXPORTER_OTLP_HEADERS"),
    )
    sentry_dsn: Secret | None = Field(
        default=None,
        description='Where errors are sent with `telemetry.errors = "sentry"`.',
        json_schema_extra=name_variable("SENTRY_DSN"),
    )
    openai_api_key: Secret | None = Field(
        default=None,
        description="Key for OpenAI or an OpenAI-compatible server.",
        json_schema_extra=name_variable("OPENAI_API_KEY"),
    )
    api_key: Secret | None = Field(
        default=None,
        description="Key for the Holdfast server at `remote.url`.",
        json_schema_extra=name_variable("HOLDFAST_API_KEY"),
    )
    anthropic_api_key: Secret | None = Field(
        default=None,
        description="Key for Anthropic.",
        json_schema_extra=name_variable("ANTHROPIC_API_KEY"),
    )
