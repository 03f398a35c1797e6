"""The server, and what it tells of itself: keys, links, audit, telemetry, logs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.settings.section import SettingsSection, name_variable
from holdfast.settings.values import (
    AnyCase,
    Directory,
    Duration,
    Line,
    Lines,
    OptionalCount,
    OptionalDuration,
    Redacted,
    StoreUrl,
    Switch,
    Url,
)

LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], AnyCase]
LogFormat = Annotated[Literal["text", "json"], AnyCase]


class JwtSettings(SettingsSection):
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
    client_id: Line | None = Field(
        default=None,
        description="Name under which the issuer knows this server; with it, browsers log in "
        "there (OpenID Connect). The address to register is `/login/callback` of this server.",
    )
    login_scope: Line = Field(
        default="openid", description="What a browser's login asks the issuer for."
    )
    login_token: Literal["id", "access"] = Field(
        default="id",
        description="Which token stands for a browser: the ID token, whose audience is "
        "`client_id`, or the access token. `audience` must be its audience.",
    )


class ServerSettings(SettingsSection):
    """How `holdfast serve` listens, and what it takes.

    A project's file cannot say who may reach it, nor how far: it can set `port`, `grace_s` and
    `heartbeat_s`, and nothing else of this.
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
        default=30.0,
        description="How long a client may take to send a body, and a second more for each "
        "kilobyte that came.",
    )
    write_timeout_s: Duration = Field(
        default=30.0,
        description="How long a client may take less than a kilobyte a second of what it is sent.",
    )
    request_timeout_s: Duration = Field(
        default=600.0, description="How long one request may take, unless it is a stream."
    )
    stream_timeout_s: OptionalDuration = Field(
        default=3600.0,
        description="How long a stream may stay open before it says goodbye; its client comes "
        "back and misses nothing. `none` is no limit.",
    )
    recheck_s: Duration = Field(
        default=5.0,
        description="How long a stream that is open may outlive its key, token, login or tenant.",
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
    redact_requests: Redacted = Field(
        default=(),
        description="What is taken out of bodies and queries before they are read: `secrets` "
        "(formats of keys, and the secrets of this process), `personal` (addresses, phone and "
        "card numbers, IBANs), both, or neither. Uploaded files stay as they are.",
    )
    redact_answers: Redacted = Field(
        default=(),
        description="What is taken out of answers and streams, likewise; text then comes line by "
        "line. The journal holds no secrets in any case. Contents of artifacts stay as they are.",
    )
    max_tenants: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="Tenants whose records are open at the same time."
    )
    debug: Switch = Field(
        default=False,
        description="Offer `/v1/debug` to callers with the scope `debug:read`: tasks, slow "
        "requests, memory, profiles.",
    )


class RemoteSettings(SettingsSection):
    """The server that the command line asks; a project's file cannot name one."""

    url: Url | None = Field(
        default=None,
        description="Address of a Holdfast server; without it, everything happens here.",
        json_schema_extra=name_variable("HOLDFAST_SERVER"),
    )


class AuditSettings(SettingsSection):
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


class TelemetrySettings(SettingsSection):
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


class PluginSettings(SettingsSection):
    """Installed packages that may add to Holdfast; a project's file cannot name any."""

    enabled: Lines = Field(
        default=(),
        description="Packages whose tools, agents, providers, hooks and webhook sinks are loaded "
        "at the start, by their names, or `*` for all that offer some. `holdfast plugins list` "
        "shows what is installed.",
    )


class LogSettings(SettingsSection):
    """What the log says, and how."""

    level: LogLevel = Field(
        default="warning",
        description="Least important message that is logged.",
        json_schema_extra=name_variable("HOLDFAST_LOG_LEVEL"),
    )
    format: LogFormat = Field(
        default="text",
        description="Lines for people, or JSON with the field names of the Elastic Common Schema.",
        json_schema_extra=name_variable("HOLDFAST_LOG_FORMAT"),
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
