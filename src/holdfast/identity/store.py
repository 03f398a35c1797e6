"""The control store: what all tenants of a state directory share: keys, logins and tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.identity.keys import ApiKey
    from holdfast.identity.logins import Login
    from holdfast.identity.tenants import Tenant, TenantState


class ControlStore(Protocol):
    """Keeps keys, logins and tenants; every method is one transaction."""

    async def add_key(self, key: ApiKey, digest: str) -> None:
        """Keep a key with the SHA-256 of its secret."""
        ...

    async def find_keys(self, prefix: str) -> list[tuple[ApiKey, str]]:
        """Return the keys that begin so, each with its digest."""
        ...

    async def get_key(self, key_id: str) -> ApiKey | None:
        """Return a key by its id."""
        ...

    async def list_keys(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first."""
        ...

    async def replace_key(self, old: ApiKey, new: ApiKey, digest: str) -> bool:
        """Keep a key in the place of another one, both or neither; `False` if it is revoked."""
        ...

    async def end_key(self, key_id: str, *, at: float) -> None:
        """Revoke a key; one that is revoked stays so since then."""
        ...

    async def note_use(self, key_id: str, *, at: float) -> None:
        """Note when a key was used last."""
        ...

    async def delete_keys(self, tenant: str, *, subject: str = "") -> int:
        """Remove the keys of a tenant, or of one subject of it; returns how many."""
        ...

    async def add_login(self, login: Login, digest: str, sealed: bytes, *, most: int) -> None:
        """Keep a login; those that have expired go, and the oldest of its subject beyond `most`."""
        ...

    async def find_login(self, digest: str) -> tuple[Login, bytes] | None:
        """Return a login by the SHA-256 of its token, and what is sealed with it."""
        ...

    async def take_login(self, digest: str) -> tuple[Login, bytes] | None:
        """Remove a login and return it: of several that ask, one gets it."""
        ...

    async def list_logins(self, tenant: str) -> list[Login]:
        """Return the logins of a tenant, oldest first."""
        ...

    async def delete_logins(self, tenant: str, *, subject: str = "", login_id: str = "") -> int:
        """Remove the logins of a tenant, or of one subject, or one; returns how many."""
        ...

    async def add_tenant(self, tenant: Tenant) -> bool:
        """Keep a tenant; `False` if there is one of this name."""
        ...

    async def get_tenant(self, name: str) -> Tenant | None:
        """Return a tenant by name."""
        ...

    async def list_tenants(self) -> list[Tenant]:
        """Return all tenants by name, deleted ones too."""
        ...

    async def set_tenant_state(self, name: str, state: TenantState) -> None:
        """Change the state of a tenant."""
        ...

    async def close(self) -> None:
        """Close the store; safe to repeat."""
        ...


__all__ = ["ControlStore"]
