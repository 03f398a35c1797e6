"""Logins of browsers: a cookie or a link for one use stands for a key or a token.

The store holds the SHA-256 of a cookie, and the key or token that it stands for, sealed with the
cookie itself: who reads the store can neither log in nor learn a key. A login outlives the
process that made it, and is ended by its owner, by an admin, by its time, or with its key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, Literal

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import MissingExtra, NotFound
from holdfast.identity.store import ControlStore
from holdfast.ids import make_id, make_random_token

LINK_TTL_S: Final = 120.0
LOGIN_TTL_S: Final = 12 * 3600.0
MOST_LINKS: Final = 20
MOST_LOGINS: Final = 100
"""Of one subject; the oldest gives way to a new one."""
_BELIEVED_S: Final = 1.0
"""So long a login is believed without asking the store, as keys are."""
_MOST_BELIEVED: Final = 1_000

LoginKind = Literal["browser", "link"]


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is logged in, or a link that was not used yet; no secrets."""

    id: str
    kind: LoginKind = "browser"
    tenant: str
    subject: str
    created_at: float
    expires_at: float


class LoginService:
    """Begins, finds and ends logins of one control store."""

    def __init__(self, store: ControlStore, *, clock: Clock = SYSTEM) -> None:
        """Keep logins in this store."""
        self._store = store
        self._clock = clock
        self._believed: dict[str, tuple[Login, str, float]] = {}

    async def begin(
        self, credential: str, *, tenant: str, subject: str, kind: LoginKind = "browser"
    ) -> tuple[Login, str]:
        """Return a new login for whom a credential was found to belong to, and its token.

        Raises:
            MissingExtra: `cryptography` is not installed.
        """
        token, now = make_random_token(32), self._clock.now()
        login = Login(
            id=make_id("login"),
            kind=kind,
            tenant=tenant,
            subject=subject,
            created_at=now,
            expires_at=now + (LINK_TTL_S if kind == "link" else LOGIN_TTL_S),
        )
        most = MOST_LINKS if kind == "link" else MOST_LOGINS
        await self._store.add_login(login, _digest(token), _seal(token, credential), most=most)
        return login, token

    async def find(self, token: str) -> tuple[Login, str] | None:
        """Return the login of a browser's token, and the credential; `None` if there is none now.

        Whether the credential still opens anything is not asked here.
        """
        if not _is_token(token):
            return None
        digest, now = _digest(token), self._clock.now()
        known = self._believed.get(digest)
        if known is None or not 0 <= now - known[2] < _BELIEVED_S:
            self._believed.pop(digest, None)
            found = await self._store.find_login(digest)
            if found is None or found[0].kind != "browser":
                return None
            if len(self._believed) >= _MOST_BELIEVED:
                self._believed.clear()
            known = (found[0], _open(token, found[1]), now)
            self._believed[digest] = known
        login, credential, _ = known
        return (login, credential) if credential and now < login.expires_at else None

    async def use_link(self, token: str) -> str:
        """Return the credential of a link, which then means nothing; empty if it does already."""
        found = await self._store.take_login(_digest(token)) if _is_token(token) else None
        if found is None or found[0].kind != "link" or self._clock.now() >= found[0].expires_at:
            return ""
        return _open(token, found[1])

    async def end(self, token: str) -> Login | None:
        """End the login of a token; `None` if there is none. Safe to repeat."""
        self._believed.pop(_digest(token), None)
        found = await self._store.take_login(_digest(token))
        return found[0] if found is not None else None

    async def list_logins(self, tenant: str) -> list[Login]:
        """Return the browsers that are logged in to a tenant, oldest first."""
        now = self._clock.now()
        found = await self._store.list_logins(tenant)
        return [one for one in found if one.kind == "browser" and now < one.expires_at]

    async def revoke(self, login_id: str, *, tenant: str) -> Login:
        """End a login of a tenant; raises NotFound, also for one of another tenant."""
        for login in await self._store.list_logins(tenant):
            if login.id == login_id and login.kind == "browser":
                await self._store.delete_logins(tenant, login_id=login_id)
                self._believed.clear()
                return login
        raise NotFound(kind="login", value=login_id)

    async def delete_subject(self, tenant: str, subject: str) -> int:
        """Remove the logins and links of a subject; returns how many there were."""
        self._believed.clear()
        return await self._store.delete_logins(tenant, subject=subject)


def make_form_token(token: str) -> str:
    """Return what a form of this login brings along: other pages cannot know it (CSRF)."""
    return hmac.new(token.encode(), b"holdfast form", "sha256").hexdigest()


def _is_token(token: str) -> bool:
    return token.isascii() and 32 <= len(token) <= 128


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _make_cipher(token: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - of an optional package
    try:
        from cryptography.fernet import Fernet  # noqa: PLC0415 - optional extra
    except ImportError as error:
        raise MissingExtra(what="logins", package="cryptography", extra="server") from error
    # The token is 256 random bits: a digest of it is a key.
    return Fernet(base64.urlsafe_b64encode(hmac.digest(token.encode(), b"holdfast seal", "sha256")))


def _seal(token: str, credential: str) -> bytes:
    sealed: bytes = _make_cipher(token).encrypt(credential.encode())
    return sealed


def _open(token: str, sealed: bytes) -> str:
    """Return what was sealed; empty if it was changed in the store."""
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - optional extra

    try:
        return str(_make_cipher(token).decrypt(sealed).decode())
    except (InvalidToken, ValueError):
        return ""


__all__ = ["LINK_TTL_S", "LOGIN_TTL_S", "Login", "LoginKind", "LoginService", "make_form_token"]
