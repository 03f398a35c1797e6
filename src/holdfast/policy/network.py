"""Which hosts and addresses tools may talk to: the rules against SSRF."""

from __future__ import annotations

import functools
import ipaddress
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

import msgspec

from holdfast.errors import PermissionDenied
from holdfast.policy.hosts import BadHost, normalize_host, render_host_source, split_port

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Named here one by one, because what Python calls global differs between its releases.
_CLOSED_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; metadata of some clouds
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # metadata of a cloud, on a public address
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; metadata of a cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_OPEN_6 = IPv6Network("2000::/3")
_CLOSED_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "2620:4f:8000::/48",  # AS112
    )
)
WEB_PORTS = frozenset({80, 443})
"""What is open where a rule names a host and no port."""
_FIRST_FREE_PORT = 1024
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_WRAPPERS = (_MAPPED, _TRANSLATED, _COMPATIBLE, _NAT64, _SIX_TO_FOUR, _TEREDO)
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True):
    """Closed unless opened; a blocked host stays blocked; private addresses stay private.

    Hosts are patterns on names (`*.example.org` also covers `example.org`), which open the ports
    80 and 443; `host:8080` opens that port alone, `host:*` every one that is not another
    service's. A blocked `host:port` closes that port, a blocked host all of them.
    `private_networks` are address ranges that may be reached although they are not
    public, such as `127.0.0.0/8` or the range of a LAN. `per_minute` is how often a host
    may be asked, `host_rates` the same for hosts that meet a pattern; the first one holds.
    """

    allow_net: bool = False
    allowed_hosts: tuple[str, ...] = ()
    blocked_hosts: tuple[str, ...] = ()
    private_networks: tuple[str, ...] = ()
    per_minute: int | None = None
    host_rates: tuple[tuple[str, int], ...] = ()

    def check_host(self, host: str) -> str:
        """Return the one spelling of a host that may be asked for.

        Raises:
            PermissionDenied: the network is closed, the host is blocked or not allowed, or
                its spelling is ambiguous.
        """
        if not self.allow_net:
            raise _make_denied(host, "the network is closed (ALLOW_NET, network.yaml)")
        try:
            name = normalize_host(host)
        except BadHost as error:
            raise _make_denied(host, str(error)) from error
        for pattern in self.blocked_hosts:
            host_pattern, port = split_port(pattern)
            if port in ("", "*") and covers(host_pattern, name):
                raise _make_denied(host, "the host is blocked")
        if not any(covers(split_port(pattern)[0], name) for pattern in self.allowed_hosts):
            raise _make_denied(host, "the host is not among the allowed ones")
        return name

    def check_port(self, host: str, port: int) -> None:
        """Do nothing if a host that `check_host` let pass may be asked at a port.

        Raises:
            PermissionDenied: no rule opens the port, or one blocks it.
        """
        name = normalize_host(host)
        for pattern in self.blocked_hosts:
            host_pattern, blocked = split_port(pattern)
            if blocked == str(port) and covers(host_pattern, name):
                raise _make_denied(f"{host}:{port}", "the port is blocked")
        if not self.is_port_open(name, port):
            because = "only the ports 80 and 443 are open; `host:port` among the allowed opens one"
            raise _make_denied(f"{host}:{port}", because)

    def is_port_open(self, name: str, port: int) -> bool:
        """Say whether some allowed host opens a port, for a name in its one spelling."""
        for pattern in self.allowed_hosts:
            host_pattern, opened = split_port(pattern)
            is_open = port in WEB_PORTS if opened == "" else opened in ("*", str(port))
            if opened == "*" and port < _FIRST_FREE_PORT and port not in WEB_PORTS:
                is_open = False
            if is_open and covers(host_pattern, name):
                return True
        return False

    def check_address(self, host: str, address: str) -> None:
        """Do nothing if the address is not blocked, and public, or private and granted.

        Raises:
            PermissionDenied: it is blocked, private, loopback, link-local, or hides such an
                address.
        """
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError as error:
            raise _make_denied(host, f"{address!r} is no address") from error
        for one in (parsed, *list_hidden_addresses(parsed)):
            # A name that leads to a blocked address is another spelling of it.
            if any(_means_address(p, one) for p in self.blocked_hosts if split_port(p)[1] == ""):
                raise _make_denied(host, f"{address} is a blocked address")
            if not is_public(one) and not self._is_granted(one):
                raise _make_denied(host, f"{address} is not a public address")

    def find_rate(self, host: str) -> int | None:
        """Return how many requests a minute a host may get; `None` is without limit."""
        name = normalize_host(host)
        for pattern, per_minute in self.host_rates:
            if covers(split_port(pattern)[0], name):
                return per_minute
        return self.per_minute

    def _is_granted(self, address: Address) -> bool:
        return any(
            address.version == network.version and address in network
            for network in map(_parse_network, self.private_networks)
        )


@functools.lru_cache(maxsize=256)
def _parse_network(text: str) -> Network:
    return ipaddress.ip_network(text)


def covers(pattern: str, name: str) -> bool:
    """Say whether a pattern covers a host in its one spelling."""
    return re.fullmatch(render_host_source(pattern), name, re.DOTALL) is not None


@functools.lru_cache(maxsize=4_096)
def _means_address(pattern: str, address: Address) -> bool:
    """Say whether a pattern of hosts means an address, in whatever spelling it names one."""
    try:
        named = ipaddress.ip_address(pattern.strip("[]").partition("%")[0])
    except ValueError:
        return covers(pattern, str(address))
    return address in (named, *list_hidden_addresses(named))


def is_public(address: Address) -> bool:
    """Say whether an address belongs to the public internet.

    One that hides another is judged by what it hides.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if any(address in network for network in _WRAPPERS) and list_hidden_addresses(address):
        return True
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


def list_hidden_addresses(address: Address) -> tuple[IPv4Address, ...]:
    """Addresses inside an address: mapped, translated, compatible, 6to4, Teredo, NAT64, ISATAP."""
    if isinstance(address, IPv4Address):
        return ()
    number = int(address)
    low = IPv4Address(number & 0xFFFFFFFF)
    if any(address in network for network in (_MAPPED, _TRANSLATED, _NAT64)):
        return (low,)
    if address in _COMPATIBLE and number > 1:
        return (low,)
    if address in _SIX_TO_FOUR:
        return (IPv4Address((number >> 80) & 0xFFFFFFFF),)
    if address in _TEREDO:
        return (IPv4Address((number >> 64) & 0xFFFFFFFF), IPv4Address(~number & 0xFFFFFFFF))
    if (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return (low,)
    return ()


def _make_denied(host: str, because: str) -> PermissionDenied:
    return PermissionDenied(permission="network", target=host[:200], because=because)
