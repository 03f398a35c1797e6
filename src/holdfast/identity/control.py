"""The control plane of a state directory: keys, logins and tenants; all its runtimes share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from holdfast.clock import SYSTEM, Clock
from holdfast.identity.keys import KeyService
from holdfast.identity.logins import LoginService
from holdfast.identity.stores.sqlite import SqliteControlStore
from holdfast.identity.tenants import TenantService

CONTROL_FILE: Final = "control.db"
TENANTS_FOLDER: Final = "tenants"
WORKSPACES_FOLDER: Final = "workspaces"


class ControlPlane:
    """Keys, logins and tenants of one state directory; opened with the first question."""

    def __init__(self, directory: Path, *, operator: str, clock: Clock = SYSTEM) -> None:
        """Keep them in this directory, which is that of the tenant `operator`."""
        self.directory = directory
        self.store = SqliteControlStore(directory / CONTROL_FILE)
        self.keys = KeyService(self.store, clock=clock)
        self.logins = LoginService(self.store, clock=clock)
        self.tenants = TenantService(self.store, operator=operator, clock=clock)
        self.when_ended: list[Callable[[str], Awaitable[None]]] = []
        """Told of a tenant that is suspended or deleted, before its files go."""

    @property
    def operator(self) -> str:
        """The tenant of the state directory itself, whose admins manage the others."""
        return self.tenants.operator

    def find_directory(self, tenant: str) -> Path:
        """Return where the records of a tenant are."""
        return (
            self.directory
            if tenant == self.operator
            else (self.directory / TENANTS_FOLDER / tenant)
        )

    @property
    def workspaces(self) -> tuple[Path, ...]:
        """Where the agents of tenants work, in a directory each, which no other tenant sees.

        The first is inside of the state directory, which is hidden from all processes before a
        tenant is there; the second is where tenants of earlier versions have theirs.
        """
        beside = self.directory.parent / f"{self.directory.name}-workspaces"
        return self.directory / WORKSPACES_FOLDER, beside

    def find_workspace(self, tenant: str) -> Path:
        """Return where the agents of a tenant work."""
        inside, beside = (place / tenant for place in self.workspaces)
        return beside if beside.is_dir() else inside

    async def end(self, tenant: str) -> None:
        """Let whatever works for a tenant in this process come to its end."""
        for tell in self.when_ended:
            await tell(tenant)

    async def close(self) -> None:
        """Close the file; safe to repeat."""
        await self.store.close()


__all__ = ["CONTROL_FILE", "TENANTS_FOLDER", "WORKSPACES_FOLDER", "ControlPlane"]
