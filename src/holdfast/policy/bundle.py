"""The policies of one moment, frozen: ceilings, lists, limits, and their version."""

from __future__ import annotations

import functools
import shlex
from typing import Any

import msgspec

from holdfast.canonical import digest
from holdfast.policy.budgets import Budget
from holdfast.policy.decision import QUESTIONS, Action, CallRequest, RuleSet, decide
from holdfast.policy.files import (
    AgentPolicy,
    CeilingRule,
    Expectation,
    NetworkFile,
    PathsFile,
    RunLimits,
    ToolsFile,
)
from holdfast.policy.hosts import split_port
from holdfast.policy.network import NetworkRules
from holdfast.sessions import PermissionRule

_LOOKERS = ("list", "glob", "grep")


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one agent may use; `None` is without limit."""

    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_wall_s: float | None = None


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one entry of `tests:`."""

    # pytest would otherwise take it for a class of tests.
    __test__ = False

    file: str
    number: int
    line: int
    agent: str
    tool: str
    target: str
    expected: Action
    found: Action
    because: str

    @property
    def is_met(self) -> bool:
        """Whether the policy says what was expected."""
        return self.expected == self.found


class PolicyBundle(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What the three files say, ready to decide with.

    `is_net_allowed` is what ALLOW_NET says: it can close what network.yaml opens, never
    open what it closes. `version` is a digest of what the policies mean: comments, the
    order of keys and `tests:` do not change it.
    """

    tools: ToolsFile = msgspec.field(default_factory=ToolsFile)
    network: NetworkFile = msgspec.field(default_factory=NetworkFile)
    paths: PathsFile = msgspec.field(default_factory=PathsFile)
    is_net_allowed: bool = False
    files: tuple[str, ...] = ()
    lines: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)

    @functools.cached_property
    def version(self) -> str:
        """The digest of everything that counts."""
        meaning: dict[str, Any] = {
            name: file.model_dump(mode="json", exclude={"tests"})
            for name, file in (
                ("tools", self.tools),
                ("network", self.network),
                ("paths", self.paths),
            )
        }
        return digest({**meaning, "allow_net": self.is_net_allowed})

    # --- what the gate needs ---------------------------------------------------------

    def find_ceiling(self, agent: str) -> RuleSet:
        """Return the ceiling of an agent: several sets beside each other, the strictest wins.

        `a/b` is the agent `b` that `a` started: the ceilings of both hold.
        """
        found = self._ceilings.get(agent)
        if found is None:
            if len(self._ceilings) >= 256:
                self._ceilings.clear()
            first, *others = [self._build_ceiling(one) for one in agent.split("/")]
            found = RuleSet(also=(first, *others)) if others else first
            self._ceilings[agent] = found
        return found

    @functools.cached_property
    def _ceilings(self) -> dict[str, RuleSet]:
        return {}

    @functools.cached_property
    def _agents(self) -> dict[str, AgentPolicy]:
        # Agents are found whatever the case of their names: so must be what holds for them.
        return {name.casefold(): policy for name, policy in self.tools.agents.items()}

    def _build_ceiling(self, agent: str) -> RuleSet:
        own = self._agents.get(agent.casefold())
        sets = [
            self._list_tool_rules(agent),
            _set(*map(_make_rule_for, self.tools.rules)),
            _set(*map(_make_rule_for, own.rules if own else [])),
            self._list_command_rules(agent),
            self._host_rules,
            self._path_rules,
        ]
        return RuleSet(also=tuple(rules for rules in sets if rules.rules))

    def _list_tool_rules(self, agent: str) -> RuleSet:
        own = self._agents.get(agent.casefold())
        allowed = own.allowed_tools if own else None
        if allowed is None:
            allowed = self.tools.defaults.allowed_tools
        rules: list[PermissionRule] = []
        if allowed is not None:
            rules += [_make_rule("*", "*", "deny")]
            rules += [_make_rule(name, "*", "allow") for name in (*QUESTIONS, *allowed)]
        rules += [_make_rule(name, "*", "deny") for name in (own.denied_tools if own else [])]
        return _set(*rules)

    def _list_command_rules(self, agent: str) -> RuleSet:
        prefixes = self.list_command_prefixes(agent)
        if prefixes is None:
            return _set()
        return _set(
            _make_rule("command", "*", "deny"),
            *(
                _make_rule("command", shlex.join(words) + " *", "allow")
                for words in prefixes
                if words
            ),
            *(_make_rule("command", "*", "allow") for words in prefixes if not words),
        )

    @functools.cached_property
    def _host_rules(self) -> RuleSet:
        rules = self.network_rules
        if not rules.allow_net:
            return _set(_make_rule("network", "*", "deny"))
        return _set(
            _make_rule("network", "*", "deny"),
            # The gate knows hosts; ports are held by what connects.
            *(_make_rule("network", split_port(one)[0], "allow") for one in rules.allowed_hosts),
            *(
                _make_rule("network", split_port(one)[0], "deny")
                for one in rules.blocked_hosts
                if split_port(one)[1] in ("", "*")
            ),
        )

    @functools.cached_property
    def _path_rules(self) -> RuleSet:
        rules: list[PermissionRule] = []
        if self.paths.allowed_globs != ["**"]:
            # Directories may be looked into; the workspace leaves out what is not allowed.
            # What lies outside the workspace has a permission of its own.
            rules += [_make_rule("path", "*", "deny"), _make_rule("path", "/**", "allow")]
            rules += [_make_rule(name, "*", "allow") for name in _LOOKERS]
            rules += [_make_rule("path", glob, "allow") for glob in self.paths.allowed_globs]
        # A blocked directory covers everything below it.
        rules += [_make_rule("path", f"{glob}/**", "deny") for glob in self.paths.blocked_globs]
        return _set(*rules)

    # --- what the tools need ---------------------------------------------------------

    def list_command_prefixes(self, agent: str) -> tuple[tuple[str, ...], ...] | None:
        """Return the allowed beginnings of commands as words; `None` where no list was given.

        An empty beginning allows every command.
        """
        own = self._agents.get(agent.casefold())
        given = own.allowed_commands if own else None
        if given is None:
            given = self.tools.defaults.allowed_commands
        if given is None:
            return None
        return tuple(() if one == "*" else tuple(shlex.split(one)) for one in given)

    @functools.cached_property
    def network_rules(self) -> NetworkRules:
        """What the HTTP client goes by."""
        rates = self.network.rate_limits
        return NetworkRules(
            allow_net=self.is_net_allowed and self.network.allow_net,
            allowed_hosts=tuple(self.network.allowed_hosts),
            blocked_hosts=tuple(self.network.blocked_hosts),
            private_networks=tuple(self.network.private_networks),
            per_minute=rates.default_per_minute,
            host_rates=tuple(rates.hosts.items()),
        )

    @property
    def budgets(self) -> RunLimits:
        """How much a run may use in all."""
        return self.tools.budgets

    def compute_limits(self, agent: str) -> AgentLimits:
        """Return how much an agent may use: its own limits, else the defaults."""
        own = self._agents.get(agent.casefold())
        defaults = self.tools.defaults
        if own is None:
            return AgentLimits(
                max_tool_calls=defaults.max_tool_calls, max_tokens=defaults.max_tokens
            )
        calls = defaults.max_tool_calls if own.max_tool_calls is None else own.max_tool_calls
        tokens = defaults.max_tokens if own.max_tokens is None else own.max_tokens
        return AgentLimits(
            max_tool_calls=calls,
            max_tokens=tokens,
            max_cost_usd=own.max_cost_usd,
            max_wall_s=own.max_wall_s,
        )

    def run_budget(self) -> Budget:
        """Return what one run may spend in all, whichever agent works in it."""
        return Budget(**self.tools.budgets.model_dump())

    def find_agent_budget(self, agent: str) -> Budget:
        """Return what an agent may spend in one run."""
        return Budget(**msgspec.structs.asdict(self.compute_limits(agent)))

    # --- tests -----------------------------------------------------------------------

    def list_expectations(self) -> list[tuple[str, int, Expectation]]:
        """Every entry of `tests:` with its file and number, from 1."""
        return [
            (name, number, one)
            for name, file in (
                ("tools.yaml", self.tools),
                ("network.yaml", self.network),
                ("paths.yaml", self.paths),
            )
            for number, one in enumerate(file.tests, 1)
        ]

    def run_tests(self) -> list[TestResult]:
        """Judge every entry of `tests:` by the ceiling alone."""
        results = []
        for file, number, one in self.list_expectations():
            request = request_of(one)
            decision = decide(request, self.find_ceiling(one.agent))
            results.append(
                TestResult(
                    file=file,
                    number=number,
                    line=self.lines.get((file, number), 0),
                    agent=one.agent,
                    tool=one.tool,
                    target=_render(one),
                    expected=one.expect,
                    found=decision.action,
                    because=decision.explain(),
                )
            )
        return results


def request_of(one: Expectation) -> CallRequest:
    """Return the request of an entry of `tests:`; where the ceiling is silent it is allowed."""
    for kind, target in (
        ("path", one.path),
        ("command", one.command),
        ("host", one.host),
        ("text", one.target),
    ):
        if target is not None:
            return make_request(one.tool, kind, target)
    return CallRequest(permission=one.tool, default="allow")


def make_request(tool: str, kind: str, target: str) -> CallRequest:
    """Return the request of a call that touches one thing; a command is read as at a call."""
    targets: tuple[str, ...] = (target,)
    if kind == "command":
        from holdfast.policy.commands import parse_command  # noqa: PLC0415 - first use

        targets = parse_command(target).targets()
    return CallRequest(permission=tool, targets=targets, target_kind=kind, default="allow")


def _render(one: Expectation) -> str:
    given = (one.path, one.command, one.host, one.target)
    return next((target for target in given if target is not None), "*")


def _set(*rules: PermissionRule) -> RuleSet:
    return RuleSet(rules=tuple(rules))


def _make_rule(permission: str, pattern: str, action: Action) -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action=action)


def _make_rule_for(rule: CeilingRule) -> PermissionRule:
    return _make_rule(rule.permission, rule.pattern, rule.action)
