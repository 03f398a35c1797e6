"""API keys: made once, shown once, known afterwards by a digest only."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import NotFound, UsageError
from holdfast.identity.roles import expand_roles
from holdfast.identity.store import ControlStore
from holdfast.ids import make_id, make_random_token

_SECRET: Final = re.compile(r"hf_[0-9a-f]{56}")
_PREFIX_LENGTH: Final = len("hf_") + 8
_SUBJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@|/+=-]{0,126}")
_RESERVED: Final = frozenset({"local", "owner", "system"})
"""Names of the owner of the state directory, whose records no subject may have."""
KEY_SUBJECTS: Final = "key:"
"""How subjects of keys begin that act in no name but their own."""
_SCOPE: Final = re.compile(r"\*|[a-z_]+:(\*|[a-z_]+)(:[^\s:][^\s]{0,99})?")
_NOTED_EVERY_S: Final = 60.0
_BELIEVED_S: Final = 1.0
"""So long a key is believed without asking the store: a revocation by another process is heard
of no later."""
_MOST_BELIEVED: Final = 10_000
_NO_DIGEST: Final = "0" * 64


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is known after it was made; times are seconds since the epoch, 0 means never."""

    id: str
    prefix: str
    """Its first characters, to tell keys apart."""
    name: str
    tenant: str
    subject: str
    """In whose name its requests are made."""
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    created_at: float
    created_by: str = ""
    expires_at: float = 0.0
    last_used_at: float = 0.0
    revoked_at: float = 0.0
    rotated_from: str = ""
    """The id of the key in whose place it was made."""

    @property
    def all_scopes(self) -> frozenset[str]:
        """What its roles and scopes give together; a role that there is no more gives nothing."""
        found = frozenset(self.scopes)
        for role in self.roles:
            try:
                found |= expand_roles([role])
            except UsageError:
                continue
        return found

    def is_valid(self, now: float) -> bool:
        """Say whether it opens anything now."""
        return not self.revoked_at and (not self.expires_at or now < self.expires_at)


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key with its secret, which is shown this once and kept nowhere."""

    key: ApiKey
    secret: str


class KeyService:
    """Makes, checks, rotates and revokes keys of one control store."""

    def __init__(self, store: ControlStore, *, clock: Clock = SYSTEM) -> None:
        """Keep keys in this store."""
        self._store = store
        self._clock = clock
        self._believed: dict[str, tuple[ApiKey, float]] = {}
        self._noted: dict[str, float] = {}
        self.on_use: Callable[[ApiKey], Awaitable[None]] | None = None
        """Told of each use that is noted: of one key once a minute at most."""

    async def create(
        self,
        name: str,
        *,
        tenant: str,
        subject: str = "",
        roles: Iterable[str] = (),
        scopes: Iterable[str] = (),
        ttl_s: float | None = None,
        created_by: str = "",
    ) -> CreatedKey:
        """Make a key; without a `subject` it acts in its own name.

        Raises:
            UsageError: it would give nothing, or something of it cannot be meant.
        """
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise UsageError(detail="A key needs a name of 1 to 100 characters.")
        key_id = make_id("key")
        now = self._clock.now()
        wanted, given = tuple(dict.fromkeys(roles)), tuple(dict.fromkeys(scopes))
        if not expand_roles(wanted, check_scopes(given)):
            raise UsageError(detail="A key needs a role or a scope, or it opens nothing.")
        if ttl_s is not None and not 1 <= ttl_s <= 100 * 366 * 86_400:
            raise UsageError(detail="A key lives between a second and a hundred years.")
        secret = _make_secret()
        key = ApiKey(
            id=key_id,
            prefix=secret[:_PREFIX_LENGTH],
            name=name,
            tenant=tenant,
            subject=check_subject(subject) if subject else f"{KEY_SUBJECTS}{key_id}",
            roles=wanted,
            scopes=given,
            created_at=now,
            created_by=created_by,
            expires_at=now + ttl_s if ttl_s is not None else 0.0,
        )
        await self._store.add_key(key, digest_of(secret))
        return CreatedKey(key=key, secret=secret)

    async def verify(self, secret: str) -> ApiKey | None:
        """Return the key of this secret if it is valid now; `None` for every other reason."""
        if not _SECRET.fullmatch(secret):
            return None
        digest, now = digest_of(secret), self._clock.now()
        known = self._believed.get(digest)
        if known is not None and 0 <= now - known[1] < _BELIEVED_S:
            key = known[0]
        else:
            found = await self._find(secret[:_PREFIX_LENGTH], digest)
            if found is None:
                return None
            if len(self._believed) >= _MOST_BELIEVED:
                self._believed.clear()
            key = found
            self._believed[digest] = (key, now)
        if not key.is_valid(now):
            return None
        if now - self._noted.get(key.id, 0.0) >= _NOTED_EVERY_S:
            self._noted[key.id] = now
            await self._store.note_use(key.id, at=now)
            if self.on_use is not None:
                await self.on_use(key)
        return key

    async def list_keys(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first, revoked and expired ones too."""
        return await self._store.list_keys(tenant)

    async def get(self, key_id: str, *, tenant: str) -> ApiKey:
        """Return a key of a tenant; raises NotFound, also for a key of another tenant."""
        key = await self._store.get_key(key_id)
        if key is None or key.tenant != tenant:
            raise NotFound(kind="key", value=key_id)
        return key

    async def rotate(self, key_id: str, *, tenant: str, grace_s: float = 0.0) -> CreatedKey:
        """Make a key in the place of another one, which goes on for `grace_s`.

        Raises:
            NotFound: there is no such key.
            UsageError: it is no longer valid, or the time cannot be meant.
        """
        old = await self.get(key_id, tenant=tenant)
        now = self._clock.now()
        if not 0 <= grace_s <= 366 * 86_400:
            raise UsageError(detail="The old key may go on for at most a year.")
        if not old.is_valid(now):
            raise UsageError(detail=f"The key {old.id} is revoked or expired; make a new one.")
        secret = _make_secret()
        ends = now + grace_s
        ended = msgspec.structs.replace(
            old,
            expires_at=min(ends, old.expires_at) if old.expires_at else ends,
            revoked_at=0.0 if grace_s else now,
        )
        new = msgspec.structs.replace(
            old,
            id=make_id("key"),
            prefix=secret[:_PREFIX_LENGTH],
            created_at=now,
            last_used_at=0.0,
            rotated_from=old.id,
            expires_at=now + (old.expires_at - old.created_at) if old.expires_at else 0.0,
        )
        if not await self._store.replace_key(ended, new, digest_of(secret)):
            raise UsageError(detail=f"The key {old.id} was revoked meanwhile; make a new one.")
        self._believed.clear()
        return CreatedKey(key=new, secret=secret)

    async def revoke(self, key_id: str, *, tenant: str) -> ApiKey:
        """End a key at once and for good; safe to repeat. Raises NotFound."""
        await self.get(key_id, tenant=tenant)
        await self._store.end_key(key_id, at=self._clock.now())
        self._believed.clear()
        return await self.get(key_id, tenant=tenant)

    async def delete_subject(self, tenant: str, subject: str) -> int:
        """Remove the keys of a subject; returns how many there were."""
        self._believed.clear()
        return await self._store.delete_keys(tenant, subject=subject)

    async def _find(self, prefix: str, digest: str) -> ApiKey | None:
        found: ApiKey | None = None
        # Compared in constant time, and once more where there is nothing to compare with.
        hmac.compare_digest(_NO_DIGEST, digest)
        for key, kept in await self._store.find_keys(prefix):
            if hmac.compare_digest(kept, digest):
                found = key
        return found


def digest_of(secret: str) -> str:
    """Return what is kept of a secret; it is random and long, so one round is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_subject(text: object) -> bool:
    """Say whether a text may be the name of a subject."""
    return (
        isinstance(text, str)
        and _SUBJECT.fullmatch(text) is not None
        and text.lower() not in _RESERVED
    )


def check_subject(text: str) -> str:
    """Return a text that may be the name of a subject; raises UsageError."""
    if not is_subject(text):
        raise UsageError(
            detail=f"{text[:100]!r} cannot be a subject: take letters, digits and . _ : @ | / + = "
            f"-, and none of {', '.join(sorted(_RESERVED))}."
        )
    return text


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return scopes that are written well, such as `runs:write:helper`; raises UsageError."""
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            detail = f"{scope[:100]!r} is no scope; write kind:verb or kind:verb:agent."
            raise UsageError(detail=detail)
    return tuple(scopes)


def _make_secret() -> str:
    return f"hf_{make_random_token(28)}"


__all__ = [
    "KEY_SUBJECTS",
    "ApiKey",
    "CreatedKey",
    "KeyService",
    "check_scopes",
    "check_subject",
    "digest_of",
    "is_subject",
]
