"""What is journalled of keys and tenants: who did what to which, never a secret."""

from __future__ import annotations

from typing import Literal

from holdfast.journal import Payload, payload


@payload("identity.key_changed", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class KeyChanged(Payload, frozen=True, kw_only=True):
    """A key was made, rotated or revoked."""

    key_id: str
    action: Literal["created", "rotated", "revoked"]
    name: str
    subject: str
    by: str = ""
    replaces: str = ""


@payload("identity.key_used", is_open=True, is_inherited=False, is_of_store=True)
class KeyUsed(Payload, frozen=True, kw_only=True):
    """A key opened something; a process notes it once a minute at most, however often."""

    key_id: str
    name: str
    subject: str
    tenant: str


@payload("identity.login_ended", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class LoginEnded(Payload, frozen=True, kw_only=True):
    """An admin logged a browser out."""

    login_id: str
    subject: str
    by: str = ""


@payload(
    "identity.tenant_changed", is_open=True, is_inherited=False, is_synced=True, is_of_store=True
)
class TenantChanged(Payload, frozen=True, kw_only=True):
    """A tenant was made, suspended, let in again, exported or deleted."""

    tenant: str
    action: Literal["created", "suspended", "resumed", "exported", "deleted"]
    by: str = ""


@payload("identity.user_erased", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class UserErased(Payload, frozen=True, kw_only=True):
    """The data of a user were removed; only the digest of its name remains."""

    subject_digest: str
    sessions: int = 0
    memories: int = 0
    artifacts: int = 0
    keys: int = 0
    by: str = ""


__all__ = ["KeyChanged", "KeyUsed", "LoginEnded", "TenantChanged", "UserErased"]
