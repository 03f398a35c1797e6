"""One spelling of an endpoint's address, without anything that could be a credential."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit

_PORTS = {"http": 80, "https": 443}


def strip_address(url: str) -> str:
    """Return scheme, host, port and path of an address; no user, no password, no query.

    Two addresses that mean the same place have the same spelling. Empty if it is none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or not host:
        return ""
    place = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        place = f"{place}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))


def is_loopback(host: str) -> bool:
    """Say whether a host name can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


__all__ = ["is_loopback", "strip_address"]
