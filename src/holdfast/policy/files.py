"""What stands in `policies/tools.yaml`, `network.yaml` and `paths.yaml`.

The classes are the schema: unknown keys, wrong types and patterns that cannot be read are
mistakes. Every file may be absent, and every key may be left out.
"""

from __future__ import annotations

import ipaddress
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from holdfast.errors import UsageError
from holdfast.globs import compile_glob
from holdfast.policy.hosts import BadHost, render_host_source, split_port
from holdfast.policy.patterns import LONGEST_PATTERN


def _check_glob(glob: str) -> str:
    if glob.startswith("/") or ".." in glob.split("/"):
        raise ValueError("globs are relative to the workspace: no leading / and no ..")
    try:
        compile_glob(glob)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return glob


def _check_host(pattern: str) -> str:
    if "/" in pattern or "@" in pattern:
        raise ValueError("must be a host such as example.org, *.example.org or example.org:8080")
    try:
        render_host_source(split_port(pattern)[0])
    except BadHost as error:
        raise ValueError(f"is no host: {error}") from error
    return pattern


def _check_command(prefix: str) -> str:
    if prefix == "*":
        return prefix
    try:
        words = shlex.split(prefix)
    except ValueError as error:
        raise ValueError(f"cannot be read as words: {error}") from error
    if not words or shlex.join(words) != " ".join(words) or {"*", "?"} & set(prefix):
        raise ValueError("must be the first words of a command, such as `git status`, or *")
    return prefix


def _check_name(name: str) -> str:
    if not name or len(name) > LONGEST_PATTERN or any(char.isspace() for char in name):
        raise ValueError("must be a name without spaces")
    return name


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no address range: {error}") from error
    return text


def _check_cases(agents: dict[str, AgentPolicy]) -> dict[str, AgentPolicy]:
    known: dict[str, str] = {}
    for name in agents:
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(f"{other!r} and {name!r} are one agent")
    return agents


Glob = Annotated[str, AfterValidator(_check_glob)]
HostPattern = Annotated[str, AfterValidator(_check_host)]
CommandPrefix = Annotated[str, AfterValidator(_check_command)]
Name = Annotated[str, AfterValidator(_check_name)]
AddressRange = Annotated[str, AfterValidator(_check_network)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Verdict = Literal["allow", "ask", "deny"]


class _Strict(BaseModel):
    # Built when a file is read, or when the first bundle is made.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True
    )


class Expectation(_Strict):
    """One entry of `tests:`: a request, and what the policy must say about it.

    `tool` and at most one of `path`, `command`, `host` and `target`.
    """

    tool: Name
    agent: Name = "build"
    path: str | None = None
    command: str | None = None
    host: str | None = None
    target: str | None = None
    expect: Verdict

    @model_validator(mode="after")
    def _make_one_target(self) -> Expectation:
        given = [self.path, self.command, self.host, self.target]
        if sum(value is not None for value in given) > 1:
            raise ValueError("give one of path, command, host and target")
        return self


class CeilingRule(_Strict):
    """A rule of the ceiling, for what the lists cannot say."""

    permission: Name
    pattern: Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN)] = "*"
    action: Verdict


class UsageLimits(_Strict):
    """How much one agent may use; what is left out is without limit."""

    max_tool_calls: Count | None = None
    max_tokens: Count | None = None


class RunLimits(UsageLimits):
    """How much a run may use in all."""

    max_cost_usd: Amount | None = None
    max_wall_s: Amount | None = None


class ToolDefaults(UsageLimits):
    """What holds for agents that say nothing of their own."""

    allowed_tools: list[Name] | None = None
    allowed_commands: list[CommandPrefix] | None = None


class AgentPolicy(RunLimits):
    """What holds for one agent; what it leaves out comes from the defaults."""

    allowed_tools: list[Name] | None = None
    denied_tools: list[Name] = []
    allowed_commands: list[CommandPrefix] | None = None
    rules: list[CeilingRule] = []


class ToolsFile(_Strict):
    """`tools.yaml`: which agent may use which tools and commands, and how much."""

    defaults: ToolDefaults = ToolDefaults()
    agents: Annotated[dict[Name, AgentPolicy], AfterValidator(_check_cases)] = {}
    budgets: RunLimits = RunLimits()
    rules: list[CeilingRule] = []
    tests: list[Expectation] = []


class RateLimits(_Strict):
    """Requests per minute, for every host and for certain ones."""

    default_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    hosts: dict[HostPattern, Annotated[int, Field(ge=1, le=1_000_000)]] = {}


class NetworkFile(_Strict):
    """`network.yaml`: which hosts tools may reach, and how often.

    `raw_processes` lets commands of agents whose sandbox is `network` use the machine's own
    network, for which no list of hosts holds.
    """

    allow_net: bool = False
    raw_processes: bool = False
    allowed_hosts: list[HostPattern] = []
    blocked_hosts: list[HostPattern] = []
    private_networks: list[AddressRange] = []
    rate_limits: RateLimits = RateLimits()
    tests: list[Expectation] = []


class PathsFile(_Strict):
    """`paths.yaml`: which files of the workspace are in reach; a block wins."""

    allowed_globs: list[Glob] = ["**"]
    blocked_globs: list[Glob] = []
    tests: list[Expectation] = []
