"""Which hosts and addresses tools may talk to."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from holdfast.errors import PermissionDenied

Address: TypeAlias = IPv4Address | IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


@dataclass(frozen=True, kw_only=True)
class NetworkRules:
    """Closed unless opened; a blocked host stays blocked; private addresses stay private.

    Hosts are globs on names (`*.example.org` also covers `example.org`).
    `private_networks` are address ranges that may be reached although they are not
    public, such as `127.0.0.0/8` or the range of a LAN.
    """

    allow_net: bool = False
    allowed_hosts: tuple[str, ...] = ()
    blocked_hosts: tuple[str, ...] = ()
    private_networks: tuple[str, ...] = ()

    def check_host(self, host: str) -> None:
        """Do nothing if the host may be asked for.

        Raises:
            PermissionDenied: the network is closed, the host is blocked or not allowed.
        """
        name = host.rstrip(".").lower()
        if not self.allow_net:
            raise _denied(host, "the network is closed (ALLOW_NET)")
        if any(_covers(pattern, name) for pattern in self.blocked_hosts):
            raise _denied(host, "the host is blocked")
        if not any(_covers(pattern, name) for pattern in self.allowed_hosts):
            raise _denied(host, "the host is not among the allowed ones")

    def check_address(self, host: str, address: str) -> None:
        """Do nothing if the address is public, or private and granted.

        Raises:
            PermissionDenied: it is private, loopback, link-local, or hides such an address.
        """
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError as error:
            raise _denied(host, f"{address!r} is no address") from error
        for one in (parsed, *_hidden(parsed)):
            granted = any(
                one.version == network.version and one in network
                for network in map(ipaddress.ip_network, self.private_networks)
            )
            if not granted and not _is_public(one):
                raise _denied(host, f"{address} is not a public address")


def _covers(pattern: str, name: str) -> bool:
    pattern = pattern.rstrip(".").lower()
    return fnmatchcase(name, pattern) or (pattern.startswith("*.") and name == pattern[2:])


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and _hidden(address):
        return True  # what it hides is judged instead
    return address.is_global and not address.is_multicast and not address.is_reserved


def _hidden(address: Address) -> tuple[Address, ...]:
    """Addresses inside an address: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    return ()


def _denied(host: str, because: str) -> PermissionDenied:
    return PermissionDenied(permission="network", target=host, because=because)
