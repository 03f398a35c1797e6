"""What is said about an MCP server: where it is, and how far it is trusted."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from holdfast.settings.values import Duration, OptionalCount, Switch, Url

Transport = Literal["http", "stdio"]
McpSandbox = Literal[
    "read-only",
    "read-only-filtered",
    "read-only-network",
    "workspace-write",
    "filtered",
    "network",
    "full",
]

_LOOPBACK: Final = "localhost"
_MOST_ENDPOINTS: Final = 64


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine itself, by its name or its address."""
    if host == _LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_word(value: str) -> str:
    if "\0" in value or "\n" in value:
        raise ValueError("must be one line without a zero byte")
    return value


def _check_folder(value: str) -> str:
    if not value.startswith("/") or value != os.path.normpath(value) or value.strip("/") == "":
        raise ValueError("must be a plain absolute path of a directory")
    return _check_word(value)


def _check_host(value: str) -> str:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]\\]+)(:[1-9][0-9]{0,4})?", value):
        raise ValueError("must be a host, such as example.org, *.example.org or example.org:8443")
    return value


def references(text: str) -> list[str]:
    """The variables that a text takes its parts from, as in `Bearer ${TOKEN}`."""
    return re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,127})\}", text)


Word = Annotated[str, Field(max_length=4096), AfterValidator(_check_word)]
Folder = Annotated[str, Field(max_length=4096), AfterValidator(_check_folder)]
HostAndPort = Annotated[str, Field(max_length=260), AfterValidator(_check_host)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
_OUR_HEADERS: Final = frozenset(
    "host content-length content-type transfer-encoding connection accept accept-encoding "
    "mcp-session-id mcp-protocol-version upgrade te trailer".split()
)


class McpOAuth(BaseModel):
    """How we log in at an MCP server that wants OAuth, where it differs from what servers tell."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code",
        description="`authorization_code`: a person logs in (`holdfast mcp login`); "
        "`client_credentials`: the client itself, with `client_id` and its secret or key.",
    )
    client_id: Word = Field(
        default="", description="Our client id, where we were registered by hand."
    )
    client_secret_env: VariableName | Literal[""] = Field(
        default="", description="Variable that holds the secret of `client_id`."
    )
    private_key_env: VariableName | Literal[""] = Field(
        default="",
        description="Variable that holds a private key (PEM), to sign with rather than a secret.",
    )
    algorithm: Literal["ES256", "ES384", "RS256", "EdDSA"] = Field(
        default="ES256", description="How `private_key_env` signs."
    )
    client_metadata_url: Url | None = Field(
        default=None,
        description="Address of our client metadata document, which is then the client id.",
    )
    issuer: Url | None = Field(
        default=None,
        description="The only authorization server that may see `client_id` and its secret.",
    )
    scope: Word = Field(default="", description="Scopes to ask for, if not those that it names.")

    @model_validator(mode="after")
    def _is_whole(self) -> McpOAuth:
        has_proof = bool(self.client_secret_env or self.private_key_env)
        if has_proof and not self.client_id:
            raise ValueError("a secret or a key belongs to a client_id")
        if has_proof and self.issuer is None:
            raise ValueError("a secret or a key is shown to one issuer only; name it")
        if self.grant == "client_credentials" and not has_proof:
            raise ValueError("client_credentials needs client_secret_env or private_key_env")
        if self.private_key_env and self.grant != "client_credentials":
            raise ValueError("private_key_env is for the grant client_credentials")
        return self


class McpEndpoint(BaseModel):
    """One MCP server: a program that is started, or an address that is asked."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    transport: Transport = Field(
        description="`stdio`: a program that is started; `http`: an address, streamable HTTP."
    )
    url: Url | None = Field(
        default=None, description="Address of an `http` server: https, or on this machine."
    )
    command: Annotated[Word, Field(min_length=1)] | None = Field(
        default=None, description="Program of a `stdio` server, by its path or a plain name."
    )
    args: tuple[Word, ...] = Field(default=(), max_length=256, description="Its arguments.")
    auth_token_env: str = Field(
        default="",
        pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$",
        description="Variable that holds the token, in the environment or the secrets file. It "
        "is sent as a bearer token, or put into the program's environment under this name.",
    )
    env: dict[VariableName, Word] = Field(
        default={},
        max_length=64,
        description="Further variables of a program. `${NAME}` in a value is taken from your "
        "environment or the secrets file, so that no secret stands here.",
    )
    headers: dict[HeaderName, Word] = Field(
        default={},
        max_length=32,
        description="Further headers for an `http` server; `${NAME}` as in `env`.",
    )
    oauth: McpOAuth = Field(
        default=McpOAuth(),
        description="How we log in at an `http` server; `holdfast mcp login NAME` needs none of it "
        "where the server registers clients itself.",
    )
    sampling: Switch = Field(
        default=False,
        description="Let the server ask our model during a call: in a run of its own without "
        "tools, within the budget of the run that called.",
    )
    rate_limit_per_minute: OptionalCount = Field(
        default=None, description="Calls in any 60 seconds; more wait, at most 30 s."
    )
    enabled: Switch = Field(default=True, description="Whether it is used at all.")
    tools: tuple[Word, ...] = Field(
        default=("*",), max_length=256, description="Which of its tools are wanted, as globs."
    )
    trust_annotations: Switch = Field(
        default=False,
        description="Believe the server when it says that a tool only reads or can be repeated.",
    )
    allow_plain_http: Switch = Field(
        default=False, description="Let everything, and the token, be sent in the clear."
    )
    sandbox: McpSandbox = Field(
        default="read-only",
        description="What the program may do with the workspace and the network; `full` is no "
        "sandbox, and cannot be said by a project.",
    )
    readable: tuple[Folder, ...] = Field(
        default=(), max_length=64, description="Further directories that the program may read."
    )
    writable: tuple[Folder, ...] = Field(
        default=(), max_length=64, description="Further directories that the program may write."
    )
    hosts: tuple[HostAndPort, ...] = Field(
        default=(),
        max_length=64,
        description="Hosts that the program may reach through the proxy, where its sandbox is "
        "`filtered` or `read-only-filtered`: `host`, `*.host`, or `host:port`; without a port "
        "80 and 443. The network rules of the policies hold for them as well.",
    )
    connect_timeout_s: Duration = Field(
        default=30.0, description="How long it may take until it answers for the first time."
    )
    timeout_s: Duration = Field(default=60.0, description="How long one call may take.")

    # Not fields: no file can say of itself who wrote it.
    _is_of_project: bool = PrivateAttr(default=False)
    _source: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _is_whole(self) -> McpEndpoint:
        if self.transport == "http":
            self._check_http()
        elif self.command is None or self.url is not None:
            raise ValueError("a stdio endpoint has a command, and no url")
        if self.hosts and not self.is_filtered:
            raise ValueError("hosts are for the sandboxes filtered and read-only-filtered")
        if self.transport == "stdio" and self.oauth != McpOAuth():
            raise ValueError("oauth is for http endpoints; a program has env")
        if self.headers and self.transport == "stdio":
            raise ValueError("headers are for http endpoints; a program has env")
        return self

    def _check_http(self) -> None:
        if self.url is None or self.command is not None or self.args:
            raise ValueError("an http endpoint has a url, and neither command nor args")
        if self.sandbox != "read-only" or self.readable or self.writable:
            raise ValueError("sandbox, readable and writable are for stdio endpoints")
        if self.env:
            raise ValueError("env is for stdio endpoints; an address has headers")
        for name in self.headers:
            if name.lower() in _OUR_HEADERS or name.lower().startswith("proxy-"):
                raise ValueError(f"the header {name} is set by the client itself")
            if name.lower() == "authorization" and self.auth_token_env:
                raise ValueError("auth_token_env is the header Authorization already")
        parts = urlsplit(self.url)
        is_private = parts.scheme == "https" or is_loopback(parts.hostname or "")
        if not is_private and not self.allow_plain_http:
            raise ValueError(
                "http:// would send everything, and the token, in the clear; write https://, or "
                "allow_plain_http = true if you mean it"
            )
        if parts.query or parts.fragment:
            raise ValueError("the url must have no query and no fragment; tokens have a variable")

    @property
    def is_of_project(self) -> bool:
        """Whether a file of the project says it, which a person has to trust first."""
        return self._is_of_project

    @property
    def source(self) -> str:
        """Where it is said."""
        return self._source

    @property
    def host(self) -> str:
        """The host of an http endpoint; empty for a program."""
        return (urlsplit(self.url).hostname or "") if self.url else ""

    @property
    def is_local(self) -> bool:
        """Whether it is an address of this machine."""
        return is_loopback(self.host)

    @property
    def takes_login(self) -> bool:
        """Whether a person, or the client itself, may log in there by OAuth."""
        has_header = any(name.lower() == "authorization" for name in self.headers)
        return self.transport == "http" and not self.auth_token_env and not has_header

    @property
    def has_network(self) -> bool:
        """Whether its program reaches the network by itself."""
        return self.transport == "stdio" and self.sandbox.endswith(("network", "full"))

    @property
    def is_filtered(self) -> bool:
        """Whether its program reaches the hosts that were granted to it, through our proxy."""
        return self.transport == "stdio" and self.sandbox.endswith("filtered")

    @property
    def can_write(self) -> bool:
        """Whether its program may change the workspace, or other directories."""
        is_writer = not self.sandbox.startswith("read-only")
        return self.transport == "stdio" and (is_writer or bool(self.writable))

    def said(self) -> dict[str, Any]:
        """What was said about it, without what holds anyway."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def find_in(self, source: str, *, is_of_project: bool) -> McpEndpoint:
        """Return the same, as said by a source."""
        found = self.model_copy()
        found._is_of_project = is_of_project
        found._source = source
        return found


def _parse_endpoints(value: object) -> object:
    """A variable holds them as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("must be a JSON object of endpoints by name") from None


def check_names(endpoints: dict[str, McpEndpoint]) -> dict[str, McpEndpoint]:
    """Return the endpoints if their tools can be told apart by name.

    Names of tools are compared without underscores, hyphens and capitals: `my-git` and `mygit`
    would be the same to a rule.
    """
    if len(endpoints) > _MOST_ENDPOINTS:
        raise ValueError(f"more than {_MOST_ENDPOINTS} endpoints")
    plain = sorted((name.replace("-", ""), name) for name in endpoints)
    for (one, first), (other, second) in zip(plain, plain[1:], strict=False):
        if other == one:
            raise ValueError(
                f"a rule for {first!r} would also mean {second!r}; give one of them another name"
            )
    return endpoints


EndpointName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
McpEndpoints = Annotated[
    dict[EndpointName, McpEndpoint],
    BeforeValidator(_parse_endpoints),
    AfterValidator(check_names),
]
"""MCP servers by name: lower-case letters, digits and hyphens, at most 24."""

__all__ = ["McpEndpoint", "McpEndpoints", "McpOAuth", "McpSandbox", "check_names", "is_loopback"]
__all__ += ["references"]
