"""JSON web tokens of an issuer that the operator names: verified by its public keys.

Only signatures with a public key are believed, and only those on the list: a token that says
`none`, or that was signed with a public key as if it were a shared secret, is nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import ConfigError, HoldfastError, MissingExtra, Unauthenticated
from holdfast.identity import KEY_SUBJECTS, ROLES, check_scopes, expand_roles, is_subject
from holdfast.observability import Logger
from holdfast.operations import Caller
from holdfast.policy import NetworkRules, open_every_port
from holdfast.server.guard import is_loopback
from holdfast.server.identity import RequestHead, read_bearer
from holdfast.settings import Settings
from holdfast.tools import HttpRequest, SafeHttpClient

try:
    import jwt
except ImportError as _error:
    raise MissingExtra(what="JWT", package="pyjwt", extra="server") from _error

_log = Logger("holdfast.server")
_ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_LONGEST_TOKEN: Final = 16 * 1024
_MOST_KEYS: Final = 100
_LARGEST_SET: Final = 512 * 1024
_KEPT_S: Final = 600.0
"""So long fetched keys are used before they are fetched again."""
_KEPT_LONGEST_S: Final = 24 * 3600.0
"""So long they are used where they cannot be fetched again."""
_PAUSE_S: Final = 10.0
"""Between two attempts to fetch keys, also for a token with a key that is not known."""


class KeySet:
    """The public keys of an issuer, from a file or an address, fetched again when they change."""

    def __init__(
        self,
        *,
        file: Path | None = None,
        url: str = "",
        networks: tuple[str, ...] = (),
        clock: Clock = SYSTEM,
    ) -> None:
        """Take keys from a file, or else from an address.

        Raises:
            ConfigError: neither is given, or the address is not safe.
        """
        if (file is None) == (not url):
            raise ConfigError(detail="server.jwt: give `jwks_file` or `jwks_url`, one of them")
        parts = urlsplit(url)
        host = parts.hostname or ""
        if url and parts.scheme != "https" and not is_loopback(host):
            raise ConfigError(
                detail="server.jwt.jwks_url: keys that came over plain http could be anybody's"
            )
        self._file = file
        self._url = url
        self._clock = clock
        rules = NetworkRules(
            allow_net=True, allowed_hosts=(open_every_port(host),), private_networks=networks
        )
        self._http = SafeHttpClient(rules)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def find(self, kid: str) -> jwt.PyJWK | None:
        """Return the key of this id; without an id, the only one there is."""
        now = self._clock.monotonic()
        if now - self._fetched > _KEPT_S or self._pick(kid) is None:
            await self._refresh()
        if self._clock.monotonic() - self._fetched > _KEPT_LONGEST_S:
            return None
        return self._pick(kid)

    def _pick(self, kid: str) -> jwt.PyJWK | None:
        if kid:
            return self._keys.get(kid)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    async def _refresh(self) -> None:
        async with self._one_at_a_time:
            now = self._clock.monotonic()
            if now - self._tried < _PAUSE_S:
                return
            self._tried = now
            try:
                self._keys = read_keys(await self._load())
                self._fetched = now
            except (HoldfastError, OSError, ValueError) as error:
                _log.warning("the keys of the issuer cannot be fetched", error=str(error))

    async def _load(self) -> bytes:
        if self._file is not None:
            return await asyncio.to_thread(self._file.read_bytes)
        answer = await self._http.fetch(
            HttpRequest(url=self._url, max_bytes=_LARGEST_SET, timeout_s=10.0)
        )
        if answer.status != 200:
            raise ValueError(f"the address answered with {answer.status}")
        return answer.body


def read_keys(data: bytes) -> dict[str, jwt.PyJWK]:
    """Return the public keys of a JWKS by id; shared secrets and what is not for signatures go.

    Raises:
        ValueError: it is no JWKS, or holds no key that can be used.
    """
    found = msgspec.json.decode(data)
    keys: dict[str, jwt.PyJWK] = {}
    listed = found.get("keys") if isinstance(found, dict) else None
    for one in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(one)
        except jwt.PyJWTError:
            continue
        if key.algorithm_name in _ASYMMETRIC:
            keys[str(one.get("kid", ""))] = key
    if not keys:
        raise ValueError("there is no public key in it")
    return keys


class JwtAuthenticator:
    """Knows callers by tokens of one issuer, meant for this server."""

    def __init__(self, settings: Settings, *, operator: str, keys: KeySet | None = None) -> None:
        """Believe what the settings say; without a tenant claim all are of the operator's tenant.

        Raises:
            ConfigError: issuer, audience or keys are missing, or an algorithm is not safe.
        """
        options = settings.server.jwt
        if not options.issuer or not options.audience:
            raise ConfigError(detail="server.jwt: `issuer` and `audience` are needed")
        unsafe = sorted(set(options.algorithms) - _ASYMMETRIC)
        if unsafe or not options.algorithms:
            told = ", ".join(sorted(_ASYMMETRIC))
            raise ConfigError(detail=f"server.jwt.algorithms: {unsafe} not among {told}")
        self._options = options
        self._operator = operator
        self._keys = keys or KeySet(
            file=options.jwks_file, url=options.jwks_url or "", networks=options.jwks_networks
        )

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the subject of the token; raises Unauthenticated for every reason."""
        token = read_bearer(request.headers)
        if token.count(".") != 2 or len(token) > _LONGEST_TOKEN:
            raise Unauthenticated
        try:
            header = jwt.get_unverified_header(token)
            kid, algorithm = header.get("kid", ""), header.get("alg")
            if algorithm not in self._options.algorithms or not isinstance(kid, str):
                raise Unauthenticated
            key = await self._keys.find(kid)
            if key is None or key.algorithm_name[:2] != str(algorithm)[:2]:
                raise Unauthenticated
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=self._options.issuer,
                audience=self._options.audience,
                leeway=self._options.leeway_s,
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "enforce_minimum_key_length": True,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthenticated from error
        return self._caller_of(claims)

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        subject = claims.get("sub")
        tenant: object = self._operator
        if self._options.tenant_claim is not None:
            tenant = claims.get(self._options.tenant_claim)
        if not isinstance(subject, str) or not is_subject(subject) or not isinstance(tenant, str):
            raise Unauthenticated
        if subject.lower().startswith(KEY_SUBJECTS):
            # The subject of an API key without one: an issuer must not speak for it.
            raise Unauthenticated
        roles = _words(claims.get(self._options.roles_claim))
        # What is not a role or a scope of ours is meant for somebody else.
        scopes = [one for one in _words(claims.get("scope")) if _is_scope(one)]
        given = expand_roles([one for one in roles if one in ROLES], scopes)
        return Caller(tenant=tenant, subject=subject, scopes=given)


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_scope(text: str) -> bool:
    try:
        return bool(check_scopes([text]))
    except HoldfastError:
        return False


__all__ = ["JwtAuthenticator", "KeySet", "read_keys"]
