"""Where a server may be reached, and who may reach out through it.

An address is checked like that of a tool, against SSRF and DNS rebinding.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast.errors import NetworkFailed, PermissionDenied
from holdfast.policy import (
    WEB_PORTS,
    NetworkRules,
    PolicyBundle,
    Rights,
    RuleSet,
    covers,
    join_port,
    open_every_port,
    split_port,
)
from holdfast.settings import McpEndpoint, is_loopback
from holdfast.tools import (
    HostGrant,
    Lookup,
    SafeHttpClient,
    check_network_rights,
    look_up_host,
)

_LOOPBACK = ("127.0.0.0/8", "::1/128")


async def resolve_endpoint(
    endpoint: McpEndpoint, policies: PolicyBundle, lookup: Lookup = look_up_host
) -> str:
    """Return the address to which a connection to an endpoint may go, looked up anew.

    An address of this machine that the operator wrote down is reached though the network is
    closed, unless it is blocked; every other one as the network rules say.

    Raises:
        PermissionDenied: the host, or one of its addresses, is not allowed.
        NetworkFailed: it has no address.
    """
    rules = policies.network_rules
    if endpoint.is_local:
        if any(covers(split_port(one)[0], endpoint.host) for one in rules.blocked_hosts):
            raise _make_denied(endpoint.host, "the host is blocked")
        rules = NetworkRules(
            allow_net=True,
            allowed_hosts=(open_every_port(endpoint.host),),
            private_networks=_LOOPBACK,
        )
    checked = await SafeHttpClient(rules, lookup=lookup).check(str(endpoint.url))
    if not checked.addresses:
        raise NetworkFailed(url=str(endpoint.url), detail="it has no address")
    return checked.addresses[0]


async def resolve_login(
    endpoint: McpEndpoint, url: str, policies: PolicyBundle, lookup: Lookup = look_up_host
) -> str:
    """Return the address to which a request of a login at an endpoint may go, looked up anew.

    A server says itself who logs people in for it, so that it could name any host: the network
    rules hold for it as for a tool. Only a server of this machine may name this machine.

    Raises:
        PermissionDenied: the host is not allowed, or the request would be sent in the clear.
        NetworkFailed: it has no address.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if endpoint.is_local and is_loopback(host):
        rules = NetworkRules(
            allow_net=True, allowed_hosts=(open_every_port(host),), private_networks=_LOOPBACK
        )
    elif parts.scheme == "https" or host == endpoint.host:
        rules = policies.network_rules
    else:
        raise _make_denied(host, "a login over http:// would send its secrets in the clear")
    checked = await SafeHttpClient(rules, lookup=lookup).check(url)
    if not checked.addresses:
        raise NetworkFailed(url=url, detail="it has no address")
    return checked.addresses[0]


def check_process(name: str, endpoint: McpEndpoint, policies: PolicyBundle) -> None:
    """Return if a program with a network of its own may be started.

    Raises:
        PermissionDenied: the operator has not granted that to programs.
    """
    if not endpoint.has_network or _is_open(policies):
        return
    if policies.network_rules.allow_net and policies.network.raw_processes:
        return
    because = (
        "its program talks to the network by itself, for which no list of hosts holds; "
        "ALLOW_NET and `raw_processes: true` in network.yaml grant it"
    )
    raise _make_denied(name, because)


def check_profile(
    name: str, endpoint: McpEndpoint, policies: PolicyBundle, *, has_network: bool
) -> None:
    """Return if a run whose sandbox has a network, or has none, may use an endpoint.

    A program that reaches the network by itself would do so for a run that cannot: only who
    could start such a program may use it. Where every host is open there is nothing to hold.

    Raises:
        PermissionDenied: the run's sandbox has no network.
    """
    if not endpoint.has_network or has_network or _is_open(policies):
        return
    because = (
        f"the MCP server {name} talks to the network by itself, which the sandbox of this run "
        "cannot; `sandbox: network` of the agent, and of the caller that started it, grants it"
    )
    raise PermissionDenied(permission="sandbox", target=name, because=because)


def check_caller(
    name: str,
    endpoint: McpEndpoint,
    policies: PolicyBundle,
    rights: Rights,
    agent_path: tuple[str, ...],
    grants: Sequence[HostGrant] = (),
) -> None:
    """Return if the rules about the network let this caller reach out through an endpoint.

    For a program that is held to hosts (`grants`) each of them counts: whoever may not reach one
    of them could have the program do it.

    Raises:
        PermissionDenied: a rule of the operator, of the agent, of the session, or of an agent
            above keeps the caller away.
    """
    hosts = [join_port(endpoint.host, _find_port(endpoint))] if endpoint.host else []
    if endpoint.has_network:
        hosts = ["*"]
    elif endpoint.is_filtered:
        hosts = [host for grant in grants for host in _list_reached(grant)]
    ceiling = RuleSet()
    if endpoint.host and not endpoint.is_local:
        ceiling = policies.find_ceiling("/".join(agent_path))
    for host in dict.fromkeys(hosts):
        label = host if host != "*" else name
        check_network_rights(host, ceiling, rights, label=label)


def _find_port(endpoint: McpEndpoint) -> int:
    parts = urlsplit(str(endpoint.url))
    return parts.port or (80 if parts.scheme == "http" else 443)


def _list_reached(grant: HostGrant) -> list[str]:
    """Return what rules are asked about for a grant: any host, or a host at each of its ports."""
    if "*" in grant.pattern:
        return ["*"]
    ports = sorted(WEB_PORTS) if grant.port is None else [grant.port]
    return [join_port(grant.pattern, port) for port in ports]


def _is_open(policies: PolicyBundle) -> bool:
    """Say whether every host may be reached, so that nothing has to be held to a list."""
    rules = policies.network_rules
    return rules.allow_net and "*" in rules.allowed_hosts and not rules.blocked_hosts


def _make_denied(target: str, because: str) -> PermissionDenied:
    return PermissionDenied(permission="network", target=target, because=because)


__all__ = ["check_caller", "check_process", "check_profile", "resolve_endpoint"]
__all__ += ["resolve_login"]
