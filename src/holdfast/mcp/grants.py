"""Which hosts the program of each server may reach: what was granted, less what was revoked.

What an endpoint names (`hosts`) is granted by whoever wrote it there: the user in their own
file, or, for a project's file, the person who trusts it. The book in the state directory holds
what a person granted or revoked afterwards. It is read for each request of a program, so that
a revoked host is closed at once, in every process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast.private_files import PrivateJsonFile
from holdfast.settings import McpEndpoint
from holdfast.tools import HostGrant, read_grant

FILE = "mcp_grants.json"

Grants: TypeAlias = Callable[[], Sequence[HostGrant]]


def list_no_grants() -> Sequence[HostGrant]:
    """Nothing is granted."""
    return ()


class ServerGrants(msgspec.Struct, frozen=True, kw_only=True):
    """What a person granted to a server, and revoked, beyond what its endpoint says."""

    granted: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()


_Book: TypeAlias = dict[str, ServerGrants]


class GrantBook:
    """The grants of all servers of one state directory; every call blocks a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep them in this directory; nothing is created before the first one."""
        self._file = PrivateJsonFile(Path(state_dir) / FILE, _Book, empty=dict)

    def list_granted_hosts(self, name: str, endpoint: McpEndpoint) -> tuple[str, ...]:
        """Return the hosts that a server's program may reach now, as they were written.

        Raises:
            StorageError, StorageDamaged: the book cannot be read; nothing is granted then.
        """
        kept = self._file.read().get(_make_key(name, endpoint), ServerGrants())
        every = dict.fromkeys((*endpoint.hosts, *kept.granted))
        return tuple(host for host in every if host not in kept.revoked)

    def grant(self, name: str, endpoint: McpEndpoint, hosts: Sequence[str]) -> None:
        """Let a server's program reach these hosts too.

        Raises:
            UsageError: one is no host; nothing was granted.
            StorageError: it could not be written; nothing was granted.
        """
        key = _make_key(name, endpoint)
        for host in hosts:
            read_grant(host)

        def change(book: _Book) -> None:
            kept = book.get(key, ServerGrants())
            book[key] = ServerGrants(
                granted=tuple(dict.fromkeys((*kept.granted, *hosts))),
                revoked=tuple(host for host in kept.revoked if host not in hosts),
            )

        self._file.change(change)

    def revoke(self, name: str, endpoint: McpEndpoint, hosts: Sequence[str]) -> None:
        """Close these hosts to a server's program, whoever granted them; raises StorageError."""
        key = _make_key(name, endpoint)

        def change(book: _Book) -> None:
            kept = book.get(key, ServerGrants())
            book[key] = ServerGrants(
                granted=tuple(host for host in kept.granted if host not in hosts),
                revoked=tuple(dict.fromkeys((*kept.revoked, *hosts))),
            )

        self._file.change(change)

    def forget(self, name: str) -> None:
        """Forget a server; raises StorageError."""

        def change(book: _Book) -> None:
            for key in [key for key in book if key.partition(" ")[0] == name]:
                del book[key]

        if self._file.read():
            self._file.change(change)


def _make_key(name: str, endpoint: McpEndpoint) -> str:
    """A project's server has no share in what the user's of the same name was granted."""
    return f"{name} {endpoint.source}" if endpoint.is_of_project else name


__all__ = ["FILE", "GrantBook", "Grants", "list_no_grants"]
