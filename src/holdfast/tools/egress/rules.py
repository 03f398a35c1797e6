"""Which hosts and ports a sandboxed program may reach, by name and by address."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from holdfast.errors import PermissionDenied, UsageError
from holdfast.policy import WEB_PORTS, BadHost, NetworkRules, covers, split_port

_GRANT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]\\]+)(?::([1-9][0-9]{0,4}))?")
_MAX_PORT: Final = 65_535


class HostGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A host, or a pattern of hosts, and the port; without one it is those of the web."""

    pattern: str
    port: int | None = None

    def allows(self, name: str, port: int) -> bool:
        """Say whether it speaks of this host and port."""
        is_port = port in WEB_PORTS if self.port is None else port == self.port
        return is_port and covers(self.pattern, name)


def read_grant(text: str) -> HostGrant:
    """Read `host`, `*.host` or `host:port`.

    Raises:
        UsageError: it is none of these.
    """
    found = _GRANT.fullmatch(text)
    try:
        if found is None or int(found[2] or 1) > _MAX_PORT:
            raise BadHost("it is no host with or without a port")
        pattern = found[1].removeprefix("[").removesuffix("]")
        covers(pattern, "")  # refuses a pattern that no host meets
    except BadHost as error:
        raise UsageError(detail=f"{text[:200]!r} cannot be granted: {error}.") from error
    return HostGrant(pattern=pattern, port=int(found[2]) if found[2] else None)


def _allow_any_host(_name: str, _port: int) -> None:
    return


class EgressRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's network rules, below them what was granted, below them the agent's rules.

    All are asked anew for each request, so that a revoked grant and a reloaded policy hold from
    the next request on. `grants` of None means: every host that the network rules allow, on the
    ports of the web. `judge` raises PermissionDenied for what the rules of an agent deny.
    """

    network: Callable[[], NetworkRules]
    grants: Callable[[], Iterable[HostGrant]] | None = None
    judge: Callable[[str, int], None] = _allow_any_host

    def check(self, host: str, port: int) -> str:
        """Return the one spelling of a host that may be asked for, before it is resolved.

        Raises:
            PermissionDenied: the host, the port, or the spelling is not allowed.
        """
        rules = self.network()
        name = rules.check_host(host)
        if name != host.lower():
            raise _make_denial(host, "the host can be read in two ways")
        if is_literal(name) and not self._has_name(name, port, rules):
            raise _make_denial(host, "an address has to be allowed as it is, not by a pattern")
        granted = None if self.grants is None else tuple(self.grants())
        if granted is None:
            rules.check_port(name, port)
        elif not any(grant.allows(name, port) for grant in granted):
            raise _make_denial(f"{host}:{port}", "it is not among the hosts that were granted")
        self.judge(name, port)
        return name

    def check_address(self, name: str, address: str) -> None:
        """Do nothing if the address may be connected to (SSRF); raises as NetworkRules does."""
        self.network().check_address(name, address)

    def _has_name(self, name: str, port: int, rules: NetworkRules) -> bool:
        """Say whether a literal address was written down, in every list that counts."""
        if name not in [split_port(one)[0].strip("[]") for one in rules.allowed_hosts]:
            return False
        if self.grants is None:
            return True
        return any(one.pattern == name and one.allows(name, port) for one in self.grants())


def is_literal(host: str) -> bool:
    """Say whether a host is an address rather than a name."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return False
    return True


def _make_denial(target: str, because: str) -> PermissionDenied:
    return PermissionDenied(permission="network", target=target[:200], because=because)


__all__ = ["EgressRules", "HostGrant", "is_literal", "read_grant"]
