"""What confines a run: the operator's policies, the network rules, the sandbox.

Made once per application, used by every run; each run takes the policies that are in force
when it begins a step, so that a reload holds from then on.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agents import is_named
from holdfast.errors import PermissionDenied, UsageError
from holdfast.policy import Budget, PolicyBundle, PolicyStore, Rights, RuleSet
from holdfast.settings import UnvouchedSettings
from holdfast.tools import (
    Gate,
    HttpClient,
    PathRules,
    SafeHttpClient,
    Tool,
    ToolPermissionFilter,
    ToolRegistry,
    Workspace,
)

_EMPTY = PolicyBundle()
_ALWAYS_READ_ONLY = PathRules().read_only
_MOST_LIMITS = 256
_ODD = re.compile(r"[*?\[\]{},]")


@functools.cache
def _stat_root() -> os.stat_result:
    return os.stat("/")


def _make_no_policies() -> PolicyStore:
    """A store that has read nothing: there are no files."""
    return PolicyStore(Path())


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """Without policies: no ceiling, a closed network, commands in the sandbox only.

    `hidden` are absolute paths that neither file tools nor commands may see, such as the state
    directory; `read_only` are those that they must never write, such as the policies themselves,
    and `unvouched` watches over those of them that are missing.

    `home`, if there is one, is the only directory in which sessions may work, and besides it only
    what is `lent` can be granted. That holds for tenants, who are strangers to this machine. None
    below it will do: a command could put a link to elsewhere in its place at the last moment.
    """

    policies: PolicyStore = field(default_factory=_make_no_policies)
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    home: str = ""
    lent: tuple[str, ...] = ()
    unvouched: UnvouchedSettings | None = None
    http: HttpClient = field(default_factory=lambda: SafeHttpClient(_EMPTY.network_rules))
    _limits: dict[str, tuple[PolicyBundle, tuple[Budget, Budget]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    _rules: dict[str, tuple[PolicyBundle, PathRules]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def limits(self, agent: str) -> tuple[Budget, Budget]:
        """Return what the operator lets a run, and the agent in it, spend right now."""
        bundle = self.policies.bundle
        known = self._limits.get(agent)
        if known is None or known[0] is not bundle:
            if len(self._limits) >= _MOST_LIMITS:
                self._limits.clear()
            limits = bundle.run_budget(), bundle.find_agent_budget(agent)
            known = self._limits[agent] = (bundle, limits)
        return known[1]

    def check_directory(self, directory: str) -> None:
        """Return if a directory can be a workspace with commands; one look, nothing is opened.

        Raises:
            UsageError: it is missing, no directory, or the root of the file system.
            PermissionDenied: sessions may work in another one only.
        """
        if self.home:
            self.check_home(directory)
        try:
            seen = os.stat(directory)
        except (OSError, ValueError):
            seen = None
        if seen is None or not stat.S_ISDIR(seen.st_mode) or os.path.samestat(seen, _stat_root()):
            # Opening it tells what is wrong with it, if it is not the root.
            self.workspace(directory)
            raise UsageError(detail="The root of the file system cannot be a workspace.")

    def check_home(self, directory: str | os.PathLike[str]) -> None:
        """Return if sessions may work in a directory.

        Raises:
            PermissionDenied: they may work in another one only.
        """
        if self.home and os.path.realpath(directory) != os.path.realpath(self.home):
            raise PermissionDenied(
                permission="read",
                target=os.fspath(directory),
                because="sessions of a tenant work in its own workspace",
            )

    def workspace(self, directory: str) -> Workspace:
        """Open a directory under the policies' path rules; raises as `check_directory`."""
        if self.home:
            self.check_home(directory)
        bundle = self.policies.bundle
        known = self._rules.get(directory)
        if known is None or known[0] is not bundle:
            if len(self._rules) >= _MOST_LIMITS:
                self._rules.clear()
            known = self._rules[directory] = (bundle, self._make_rules_for(bundle, directory))
        hidden, read_only, lent = self._real_paths
        return Workspace(
            directory,
            rules=known[1],
            hidden=hidden,
            read_only=read_only,
            within=lent if self.home else None,
            writes=self.unvouched.writes if self.unvouched is not None else None,
        )

    @functools.cached_property
    def _real_paths(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        hidden, read_only = tuple(map(os.path.realpath, self.hidden)), self.read_only
        lent = tuple(map(os.path.realpath, self.lent))
        return hidden, tuple(map(os.path.realpath, read_only)), lent

    def _make_rules_for(self, bundle: PolicyBundle, directory: str) -> PathRules:
        paths = bundle.paths
        return PathRules(
            allowed=tuple(paths.allowed_globs),
            blocked=(*paths.blocked_globs, *_list_below(self.hidden, directory)),
            read_only=(*_ALWAYS_READ_ONLY, *_list_below(self.read_only, directory)),
        )

    def is_net_open(self) -> bool:
        """Say whether every host may be reached, so that nothing has to be held to a list."""
        rules = self.policies.bundle.network_rules
        return rules.allow_net and "*" in rules.allowed_hosts and not rules.blocked_hosts


def _list_below(paths: Sequence[str], directory: str) -> tuple[str, ...]:
    """Return globs for those paths that lie in a directory; what is odd in a name matches any."""
    top = os.path.realpath(directory)
    inside = [real for real in map(os.path.realpath, paths) if real.startswith(f"{top}/")]
    return tuple(_ODD.sub("?", real[len(top) + 1 :]) for real in inside)


def select_visible_tools(
    registry: ToolRegistry, ceiling: RuleSet, rights: Rights
) -> dict[str, Tool]:
    """Return the tools that a model sees for an agent with these rights, by name.

    What could never be allowed is hidden; optional tools are shown to agents that name them,
    and what a run would have no use for is offered to no caller.
    """
    return dict(_select_visible(tuple(registry.tools.values()), ceiling, rights))


@functools.lru_cache(maxsize=256)
def _select_visible(
    tools: tuple[Tool, ...], ceiling: RuleSet, rights: Rights
) -> tuple[tuple[str, Tool], ...]:
    """Runs with the same tools under the same rules ask once."""
    permitted = ToolPermissionFilter(Gate(ceiling=ceiling, rights=rights)).filter_tools(tools)
    return tuple(
        [
            (found.name, found)
            for found in permitted
            if "unoffered" not in found.tags
            and ("optional" not in found.tags or is_named(found.name, rights.agent.every_rule))
        ]
    )
