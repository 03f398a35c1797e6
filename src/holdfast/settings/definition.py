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
)
from holdfast.settings.section import SettingsSection, name_variable
from holdfast.settings.service import (
    AuditSettings,
    LogSettings,
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
    SecretSettings,
    ToolSettings,
)

Environment = Annotated[Literal["dev", "staging", "prod"], AnyCase]


<<<<<<< HEAD
def _find_named(variable: str) -> dict[str, Any]:
    return {"variable": variable}


class _Section(BaseModel):
    """Frozen, and closed to names that it does not define."""

    # Built with the whole, once, by the process that loads settings first.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )


class ModelSettings(_Section):
    """Which model answers, and where."""

    name: Line | None = Field(
        default=None,
        description="Model to use, such as `gpt-4o-mini` or `openai:gpt-4o-mini`; "
        "without it, the provider's own default.",
        json_schema_extra=_find_named("AGENT_MODEL"),
    )
    provider: Line | None = Field(
        default=None,
        description="Provider to use by name; without it, the first that is configured.",
    )
    openai_base_url: Url | None = Field(
        default=None,
        description="Address of an OpenAI-compatible server, such as LM Studio's "
        "`http://127.0.0.1:1234/v1`.",
        json_schema_extra=_find_named("OPENAI_BASE_URL"),
    )
    anthropic_base_url: Url | None = Field(
        default=None, description="Address of a server that speaks Anthropic Messages."
    )
    force_chat_completions: Switch = Field(
        default=False,
        description="Use Chat Completions even where Responses is available.",
        json_schema_extra=_find_named("AGENT_FORCE_CHAT_COMPLETIONS"),
    )


class RetentionSettings(_Section):
    """How long records are kept; `none` keeps them without limit."""

    message_ttl_s: OptionalDuration = Field(
        default=None, description="Remove messages that are older than this."
    )
    event_ttl_s: OptionalDuration = Field(
        default=None, description="Remove events of ended sessions that are older than this."
    )
    session_ttl_s: OptionalDuration = Field(
        default=None, description="Expire sessions that no process touched for this long."
    )
    max_messages: OptionalCount = Field(
        default=None, description="Keep at most this many messages per session."
    )
    max_events: OptionalCount = Field(
        default=None, description="Keep at most this many events per session."
    )
    max_sessions: OptionalCount = Field(
        default=None, description="Keep at most this many archived sessions."
    )


class StorageSettings(_Section):
    """Where records are kept, and how safely."""

    state_dir: Directory = Field(
        description="Directory of the journal and everything else that is kept; by default "
        "`$XDG_STATE_HOME/holdfast` or `~/.local/state/holdfast`.",
        json_schema_extra=_find_named("AGENT_STATE_DIR"),
    )
    url: StoreUrl = Field(
        default="",
        description="Address of the store that keeps the records: `sqlite:///DIRECTORY` for the "
        "file `journal.db` in a directory (its absolute path), "
        "`postgresql://USER@HOST/DATABASE` for a database that many machines share (extra "
        "`postgres`), `memory://` to keep nothing, or a scheme that an installed package adds; "
        "without it, SQLite in `state_dir`. A project's file cannot set it.",
    )
    durability: Durability = Field(
        default="process",
        description="What a finished step survives: `process` the death of the process, "
        "`power` also a power cut.",
    )
    retention: RetentionSettings = Field(default_factory=RetentionSettings)


class ArtifactSettings(_Section):
    """Where files that agents, tools and people leave are kept, and how much of them."""

    url: StoreUrl = Field(
        default="",
        description="Address of the place: `file:///DIRECTORY`, `sqlite:///DIRECTORY` (the file "
        "`artifacts.db`), `memory://`, or a bucket: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, "
        "`az://CONTAINER/PREFIX` (extra `s3`). Without it, `artifacts` in the state directory. A "
        "project's file cannot set it.",
    )
    endpoint_url: Url | None = Field(
        default=None,
        description="Address of the server of the bucket, where it is not the vendor's own. A "
        "project's file cannot set it.",
    )
    region: Line | None = Field(default=None, description="Region of the bucket.")
    compress: Switch = Field(
        default=True,
        description="Compress contents above 4 KB with zstd, where the extra `artifacts` is "
        "installed.",
    )
    session_bytes: OptionalCount = Field(
        default=None, description="Most bytes of artifacts that one session may keep."
    )
    tenant_bytes: OptionalCount = Field(
        default=None, description="Most bytes of artifacts that all sessions may keep together."
    )
    largest_bytes: OptionalCount = Field(
        default=None, description="Most bytes of a single artifact."
    )
    ttl_s: OptionalDuration = Field(
        default=None, description="Remove artifacts that are older than this."
    )
    keep_versions: OptionalCount = Field(
        default=None, description="Keep at most this many versions of each file."
    )


class SessionSettings(_Section):
    """How turns of one session wait for each other."""

    lease_ttl_s: Duration = Field(
        default=30.0,
        description="A writer that gives no sign of life for this long loses the session.",
    )
    on_busy: OnBusy = Field(
        default="queue", description="What a turn does when the session is busy."
    )


class StateSettings(_Section):
    """What agents keep between runs."""

    max_value_bytes: int = Field(
        default=256 * 1024,
        ge=1,
        le=64 * 1024 * 1024,
        description="How large one value of the state may be, as JSON.",
    )
    max_keys: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="How many keys one scope of the state may have (of one user, one agent, one "
        "session, …).",
    )
    history_ttl_s: OptionalDuration = Field(
        default=None,
        description="Remove values that were replaced longer ago than this; what is set now, and "
        "which versions there were, stays.",
    )
    keep_versions: OptionalCount = Field(
        default=None, description="Keep the value of at most this many versions of a key."
    )


class ApprovalSettings(_Section):
    """How consent to calls that ask is given."""

    expires_after_s: Duration = Field(
        default=604_800.0,
        description="A request that no approver answered, or used, for this long ends.",
    )
    required: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="How many different people have to consent to a call."
    )


class BudgetSettings(_Section):
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


class OrchestrationSettings(_Section):
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


class NetworkSettings(_Section):
    """What agents may reach."""

    allow_net: Switch = Field(
        default=False,
        description="Let tools reach the network, within the policies.",
        json_schema_extra=_find_named("ALLOW_NET"),
    )


class PolicySettings(_Section):
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


class ToolSettings(_Section):
    """Where installed tools are."""

    dir: Directory = Field(
        description="Directory of installed tool bundles; by default `tools` in the state "
        "directory.",
        json_schema_extra=_find_named("AGENT_TOOLS_DIR"),
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


class MemorySettings(_Section):
    """What is remembered, how it is found, and when it is shown to agents."""

    embedder: Line = Field(
        default="static",
        description="What finds memories by their meaning: `static` (built in), `minilm` (extra "
        "`embeddings`), `none` (words only), or `openai:MODEL` for an OpenAI-compatible server "
        "at `model.openai_base_url`.",
    )
    dimensions: OptionalCount = Field(
        default=None,
        description="Length of the vectors to ask a remote embedder for; without it, the "
        "model's own.",
    )
    asks_former: Switch = Field(
        default=True,
        description="After a change of `embedder`, whether searches still ask the server of the "
        "old one for as long as vectors of it are left.",
    )
    recall_tokens: int = Field(
        default=800,
        ge=0,
        le=100_000,
        description="Most tokens of memories that are put before an agent with each request; "
        "0 shows none.",
    )
    recall_scope: Annotated[Literal["session", "project", "user", "global"], AnyCase] = Field(
        default="project",
        description="How far memories come from that are put before an agent: only of its "
        "`session`, also of its `project`, also of the `user` in all projects, also of everyone "
        "(`global`).",
    )
    remember_conversations: RememberScope = Field(
        default="off",
        description="Store every turn of a conversation as a memory, found by this `session`, "
        "by all of the `user` or of the `project`; `off` stores none.",
    )
    has_tools: Switch = Field(
        default=True,
        description="Whether agents are offered the tools `remember` and `recall`.",
    )
    rerank: Switch = Field(
        default=True,
        description="Whether the best memories of a search are ranked again, token by token and "
        "by the kind of answer that is asked for.",
    )
    rerank_within_s: OptionalDuration = Field(
        default=None,
        description="A search that has taken this long is answered without ranking again.",
    )
    recency_weight: float = Field(
        default=0.0,
        ge=0.0,
        le=10.0,
        allow_inf_nan=False,
        description="How much being new counts when memories are ranked, where words and meaning "
        "count 1 together; 0 leaves age out.",
    )
    half_life_days: float = Field(
        default=30.0,
        gt=0.0,
        le=36_500.0,
        allow_inf_nan=False,
        description="After so many days being new counts half: for `recency_weight`, and for "
        "what goes first where `max_entries` or `max_bytes` is reached.",
    )
    max_entries: OptionalCount = Field(
        default=None,
        description="Keep at most this many memories of each session, user and project; the least "
        "important and oldest go first, pinned ones never.",
    )
    max_bytes: OptionalCount = Field(
        default=None,
        description="Keep at most this many bytes of memories of each session, user and project.",
    )


class JwtSettings(_Section):
    """Whose tokens (JWT) the server believes; a project's file cannot say."""

    jwks_file: Directory | None = Field(
        default=None, description="File with the public keys (JWKS) of the issuer."
    )
    jwks_url: Url | None = Field(
        default=None,
        description="Address of the public keys of the issuer: https, or http on this machine. "
        "Fetched without proxies, and from nowhere else.",
    )
    jwks_networks: Lines = Field(
        default=(),
        description="Networks that are not public from which keys may be fetched all the same, "
        "such as `10.1.0.0/16`.",
    )
    issuer: Line | None = Field(
        default=None, description="Who must have made a token (`iss`); needed for JWT."
    )
    audience: Line | None = Field(
        default=None, description="Whom a token must be meant for (`aud`); needed for JWT."
    )
    algorithms: Lines = Field(
        default=("RS256", "ES256", "EdDSA"),
        description="Signatures that are believed; only those with a public key can be named.",
    )
    tenant_claim: Line | None = Field(
        default=None,
        description="Claim that names the tenant, then needed in every token; without it all are "
        "of the server's own tenant.",
    )
    roles_claim: Line = Field(
        default="roles",
        description="Claim with roles (viewer, operator, developer, admin); scopes come from "
        "`scope`.",
    )
    leeway_s: Duration = Field(
        default=30.0, description="How far the issuer's clock may be from ours."
    )


class ServerSettings(_Section):
    """How `holdfast serve` listens, and what it takes.

    A project's file cannot say who may reach it: `host`, `allowed_hosts`, `allowed_origins`,
    `trusted_proxies`, `debug`, `jwt` and the limits of requests.
    """

    host: Line = Field(
        default="127.0.0.1",
        description="Address to listen on; one that other machines can reach needs keys or JWT.",
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=8321, description="Port to listen on; 0 takes a free one."
    )
    allowed_hosts: Lines = Field(
        default=(),
        description="Names by which clients may address the server (`Host`), besides loopback "
        "names and the address that it listens on.",
    )
    allowed_origins: Lines = Field(
        default=(),
        description="Origins of web pages whose scripts may ask, such as "
        "`https://app.example.com`; none unless named.",
    )
    trusted_proxies: Lines = Field(
        default=(),
        description="Addresses or networks of proxies whose `Forwarded` and `X-Forwarded-*` "
        "headers are believed, such as `10.0.0.0/8`.",
    )
    max_body_bytes: Annotated[int, Field(ge=1024, le=2**32)] = Field(
        default=4 * 1024 * 1024, description="Largest JSON body of a request."
    )
    max_upload_bytes: Annotated[int, Field(ge=1024, le=2**40)] = Field(
        default=256 * 1024 * 1024, description="Largest uploaded file."
    )
    max_header_bytes: Annotated[int, Field(ge=1024, le=2**20)] = Field(
        default=32 * 1024, description="Largest head of a request: its line and its headers."
    )
    max_depth: Annotated[int, Field(ge=4, le=500)] = Field(
        default=64, description="Deepest nesting of a JSON body."
    )
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=4_096, description="Connections at the same time; more are answered with 503."
    )
    header_timeout_s: Duration = Field(
        default=10.0, description="How long a client may take to send the head of a request."
    )
    body_timeout_s: Duration = Field(
        default=30.0, description="How long a client may pause while it sends a body."
    )
    request_timeout_s: Duration = Field(
        default=600.0, description="How long one request may take; streams are not limited."
    )
    grace_s: Duration = Field(
        default=20.0,
        description="How long running turns may go on after the server was told to stop.",
    )
    heartbeat_s: Duration = Field(
        default=15.0, description="A stream that is silent for this long sends a comment."
    )
    jwt: JwtSettings = Field(default_factory=JwtSettings)
    requests_per_key: OptionalCount = Field(
        default=None, description="Requests per minute with one API key; `none` is no limit."
    )
    requests_per_user: OptionalCount = Field(
        default=None, description="Requests per minute of one user; `none` is no limit."
    )
    requests_per_tenant: OptionalCount = Field(
        default=None, description="Requests per minute of one tenant; `none` is no limit."
    )
    failed_logins: OptionalCount = Field(
        default=60,
        description="Requests per minute and address without a valid key or token; further ones "
        "are answered with 429.",
    )
    rate_store: StoreUrl = Field(
        default="",
        description="Redis in which servers count requests together, as `redis://host`; without "
        "it each counts for itself.",
    )
    webhook_networks: Lines = Field(
        default=(),
        description="Networks that are not public to which webhooks may be sent all the same, "
        "such as `10.2.0.0/16`.",
    )
    max_tenants: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="Tenants whose records are open at the same time."
    )
    debug: Switch = Field(
        default=False,
        description="Offer `/v1/debug` to callers with the scope `debug:read`: tasks, slow "
        "requests, memory, profiles.",
    )


class RemoteSettings(_Section):
    """The server that the command line asks; a project's file cannot name one."""

    url: Url | None = Field(
        default=None,
        description="Address of a Holdfast server; without it, everything happens here.",
        json_schema_extra=_find_named("HOLDFAST_SERVER"),
    )


class AuditSettings(_Section):
    """The audit trail: files in `audit` of the state directory, and where its lines go besides."""

    enabled: bool = Field(
        default=True,
        description="Write every call, consent, policy change, network action and use of a key "
        "as a JSON line. The journal holds them in any case.",
    )
    max_file_mb: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=64, description="A file that has grown so long is followed by a new one."
    )
    syslog: Annotated[str, Field(max_length=500)] = Field(
        default="",
        description="Send each line to syslog too (RFC 5424): `udp://HOST:514`, `tcp://HOST:601` "
        "or `unix:///dev/log`.",
    )
    webhook: Annotated[str, Field(max_length=2000)] = Field(
        default="",
        description="Post lines, as newline-delimited JSON, to this http or https address too.",
    )
    webhook_networks: Lines = Field(
        default=(),
        description="Networks that are not public to which they may be posted all the same, such "
        "as `10.2.0.0/16`.",
    )
    anchor: StoreUrl = Field(
        default="",
        description="Where the ends of all chains are kept besides the records, so that `audit "
        "verify` also finds what was rolled back or rewritten as a whole: `file:///PATH` for a "
        "file of JSON lines that only grows, `sqlite:///DIRECTORY` or the address of another "
        "store, or `https://…` for an address that takes each by POST and returns them by GET. A "
        "project's file cannot set it.",
    )
    anchor_interval_s: OptionalDuration = Field(
        default=None,
        description="Anchor at most so often; `none` after each run. What is left is anchored "
        "when the process ends.",
    )


class TelemetrySettings(_Section):
    """Traces for OpenTelemetry, made from the journal when a run has ended."""

    otlp_url: Annotated[str, Field(max_length=2000)] = Field(
        default="",
        description="Send the trace of each run that ends to this OTLP receiver: over HTTP "
        "(protobuf), such as `http://127.0.0.1:4318`, where `/v1/traces` is added if no path is "
        "given (extra `otel`), or over gRPC, such as `grpc://127.0.0.1:4317`, with TLS "
        "`grpcs://HOST:4317` (extra `grpc`). Headers come from `OTEL_EXPORTER_OTLP_HEADERS`.",
    )
    errors: Annotated[str, Field(max_length=500)] = Field(
        default="",
        description="Report what fails, beside the log: `sentry` (extra `sentry`, with "
        "`SENTRY_DSN`, or as your application has set it up), or `package.module:function`, "
        "which is called with each `ErrorReport`.",
    )
    sample_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=1.0, description="Which part of the runs is sent; all spans of a run, or none."
    )
    content: bool = Field(
        default=False,
        description="Send what models answered, and arguments and results of tools, too; without "
        "the secrets that the journal does not hold either.",
    )


class PluginSettings(_Section):
    """Installed packages that may add to Holdfast; a project's file cannot name any."""

    enabled: Lines = Field(
        default=(),
        description="Packages whose tools, agents, providers, hooks and webhook sinks are loaded "
        "at the start, by their names, or `*` for all that offer some. `holdfast plugins list` "
        "shows what is installed.",
    )


class LogSettings(_Section):
    """What the log says, and how."""

    level: LogLevel = Field(
        default="warning",
        description="Least important message that is logged.",
        json_schema_extra=_find_named("HOLDFAST_LOG_LEVEL"),
    )
    format: LogFormat = Field(
        default="text",
        description="Lines for people, or JSON with the field names of the Elastic Common Schema.",
        json_schema_extra=_find_named("HOLDFAST_LOG_FORMAT"),
    )
    content: bool = Field(
        default=False,
        description="Put what models answered, and arguments and results of tools, into the "
        "lines too; without the secrets that the journal does not hold either.",
    )
    slow_store_s: Annotated[float, Field(gt=0.0, le=3600.0)] = Field(
        default=1.0, description="Warn of writes to the records that take longer, in seconds."
    )
    long_queue: Annotated[int, Field(ge=1)] = Field(
        default=100,
        description="Warn when so many runs wait for a place, and again whenever it is twice as "
        "many; servers and workers look every ten seconds.",
    )


class SecretSettings(_Section):
    """Keys; they come from variables or the secrets file, never from a TOML file."""

    file: Directory | None = Field(
        default=None,
        description="File of `NAME=value` lines with keys, readable by its owner only "
        "(mode 0600); by default `.holdfast/secrets.env` if it exists.",
        json_schema_extra=_find_named("HOLDFAST_SECRETS_FILE"),
    )
    artifact_key: Secret | None = Field(
        default=None,
        description="Key that encrypts artifacts, AES-256-GCM (extra `artifacts`): 32 random bytes "
        "in base64. Without it they are kept as they are.",
        json_schema_extra=_find_named("HOLDFAST_ARTIFACT_KEY"),
    )
    artifact_former_key: Secret | None = Field(
        default=None,
        description="Key that encrypted artifacts before, until `holdfast artifacts rekey` is "
        "through.",
        json_schema_extra=_find_named("HOLDFAST_ARTIFACT_FORMER_KEY"),
    )
    anchor_token: Secret | None = Field(
        default=None,
        description="Token that is sent to the address of `audit.anchor`.",
        json_schema_extra=_find_named("HOLDFAST_ANCHOR_TOKEN"),
    )
    link_key: Secret | None = Field(
        default=None,
        description="Key that signs links to artifacts; another one makes all links invalid.",
        json_schema_extra=_find_named("HOLDFAST_LINK_KEY"),
    )
    otlp_headers: Secret | None = Field(
        default=None,
        description="Headers for the OTLP receiver, such as `authorization=Bearer KEY`, with "
        "commas between them.",
        json_schema_extra=_find_named("OTEL_EXPORTER_OTLP_HEADERS"),
    )
    sentry_dsn: Secret | None = Field(
        default=None,
        description='Where errors are sent with `telemetry.errors = "sentry"`.',
        json_schema_extra=_find_named("SENTRY_DSN"),
    )
    openai_api_key: Secret | None = Field(
        default=None,
        description="Key for OpenAI or an OpenAI-compatible server.",
        json_schema_extra=_find_named("OPENAI_API_KEY"),
    )
    api_key: Secret | None = Field(
        default=None,
        description="Key for the Holdfast server at `remote.url`.",
        json_schema_extra=_find_named("HOLDFAST_API_KEY"),
    )
    anthropic_api_key: Secret | None = Field(
        default=None,
        description="Key for Anthropic.",
        json_schema_extra=_find_named("ANTHROPIC_API_KEY"),
    )


class Settings(_Section):
=======
class Settings(SettingsSection):
>>>>>>> main
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
    state: StateSettings = Field(default_factory=StateSettings)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    orchestration: OrchestrationSettings = Field(default_factory=OrchestrationSettings)
    network: NetworkSettings = Field(default_factory=NetworkSettings)
    policies: PolicySettings
    tools: ToolSettings
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
