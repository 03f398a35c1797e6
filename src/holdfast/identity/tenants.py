"""Tenants: who shares a server and must not see each other."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import AlreadyExists, NotFound, UsageError
from holdfast.identity.store import ControlStore

TenantState: TypeAlias = Literal["active", "suspended", "deleted"]
# Lower case only: on some file systems `Acme` and `acme` are one directory.
_BELIEVED_S: Final = 1.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, and whether its people are let in."""

    name: str
    state: TenantState = "active"
    created_at: float
    note: str = ""


class TenantService:
    """Creates, suspends and deletes tenants in the control store.

    The operator's own tenant, that of the state directory itself, is always there and is none of
    these.
    """

    def __init__(self, store: ControlStore, *, operator: str, clock: Clock = SYSTEM) -> None:
        """Keep tenants in this store, beside the operator's own."""
        self._store = store
        self._clock = clock
        self.operator = operator
        self._active: dict[str, float] = {}

    async def create(self, name: str, *, note: str = "") -> Tenant:
        """Add a tenant; its directory is made with its first request.

        Raises:
            UsageError: this cannot be the name of a tenant.
            AlreadyExists: there is one of this name, or was: names are not used again.
        """
        if not _NAME.fullmatch(name):
            detail = f"{name!r} cannot be a tenant: take lower-case letters, digits, `-` and `_`."
            raise UsageError(detail=detail)
        tenant = Tenant(name=name, created_at=self._clock.now(), note=note[:200])
        if name == self.operator or not await self._store.add_tenant(tenant):
            raise AlreadyExists(kind="tenant", value=name)
        return tenant

    async def list_tenants(self) -> list[Tenant]:
        """Return the tenants that were not deleted, by name."""
        return [one for one in await self._store.list_tenants() if one.state != "deleted"]

    async def get(self, name: str) -> Tenant:
        """Return a tenant; raises NotFound."""
        found = await self._store.get_tenant(name)
        if found is None or found.state == "deleted":
            raise NotFound(kind="tenant", value=name)
        return found

    async def is_active(self, name: str) -> bool:
        """Say whether people of a tenant are let in; other processes are heard within a second."""
        now = self._clock.now()
        if name == self.operator or 0 <= now - self._active.get(name, -_BELIEVED_S) < _BELIEVED_S:
            return True
        found = await self._store.get_tenant(name)
        is_active = found is not None and found.state == "active"
        if is_active:
            self._active[name] = now
        return is_active

    async def set_state(self, name: str, state: TenantState) -> Tenant:
        """Suspend a tenant, let it in again, or delete it; raises NotFound.

        One that is deleted loses its keys and logins, and its name is never used again: what was
        kept of it elsewhere could otherwise be taken for another one's.
        """
        await self.get(name)
        await self._store.set_tenant_state(name, state)
        self._active.pop(name, None)
        if state == "deleted":
            await self._store.delete_keys(name)
            await self._store.delete_logins(name)
            return Tenant(name=name, state="deleted", created_at=self._clock.now())
        return await self.get(name)


__all__ = ["Tenant", "TenantService", "TenantState"]
