"""How often may be asked: per key, user and tenant, and per address without a valid key.

The rules are those that models are limited by (`RateLimitRule`), with their histories in this
process or in a Redis that several servers share.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import Unauthenticated
from holdfast.identity import TenantService
from holdfast.operations import OWNER, Caller
from holdfast.providers import RateLimiter, RateLimitRule, RateSubject, open_rate_store
from holdfast.server.identity import Authenticator, RequestHead
from holdfast.settings import Settings

_Scope: TypeAlias = Literal["key", "user", "tenant", "address"]
_MINUTE_S: Final = 60


class RequestLimits:
    """Counts requests against the limits of the settings."""

    def __init__(self, settings: Settings, *, clock: Clock = SYSTEM) -> None:
        """Count from now on.

        Raises:
            ConfigError: the store of the counts is not understood.
            MissingExtra: it is a Redis, and the extra `redis` is not installed.
        """
        options = settings.server
        self._store = open_rate_store(options.rate_store, clock=clock)
        self._clock = clock
        self._by: dict[str, RateLimiter | None] = {
            "key": self._limiter("key", options.requests_per_key),
            "user": self._limiter("user", options.requests_per_user),
            "tenant": self._limiter("tenant", options.requests_per_tenant),
            "address": self._limiter("address", options.failed_logins),
        }

    async def count_key(self, key_id: str) -> None:
        """Count a request with a key; raises RateLimitError."""
        await self._count("key", RateSubject(key=key_id))

    async def count_caller(self, caller: Caller) -> None:
        """Count a request of a user and its tenant; raises RateLimitError."""
        # A user is one of a tenant: the same name elsewhere is another user.
        user = f"{caller.tenant}/{caller.subject}"
        await self._count("user", RateSubject(user=user))
        await self._count("tenant", RateSubject(tenant=caller.tenant))

    async def count_failure(self, address: str) -> None:
        """Count a request without a valid key or token; raises RateLimitError."""
        await self._count("address", RateSubject(address=address))

    async def close(self) -> None:
        """Give back connections."""
        await self._store.close()

    async def _count(self, scope: _Scope, subject: RateSubject) -> None:
        limiter = self._by[scope]
        if limiter is not None:
            await limiter.acquire(subject)

    def _limiter(self, scope: _Scope, per_minute: int | None) -> RateLimiter | None:
        if per_minute is None:
            return None
        rule = RateLimitRule(
            name=f"requests per {scope}",
            max_calls=per_minute,
            window_seconds=_MINUTE_S,
            scope=scope,
        )
        return RateLimiter([rule], on_exhausted="refuse", store=self._store, clock=self._clock)


class LimitedAuthenticator:
    """Counts what an authenticator lets in and what it turns away.

    A valid key or token is never turned away because others from the same address failed:
    clients behind one proxy would lock each other out.
    """

    def __init__(self, inner: Authenticator, limits: RequestLimits, tenants: TenantService) -> None:
        """Count around this one, and let in people of these tenants."""
        self._inner = inner
        self._limits = limits
        self._tenants = tenants

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the caller.

        Raises:
            Unauthenticated: it is none that is known, or its tenant is suspended.
            RateLimitError: it, its tenant, or failures from its address came too often.
        """
        try:
            caller = await self._inner.authenticate(request)
            if caller is not OWNER and not await self._tenants.is_active(caller.tenant):
                raise Unauthenticated
        except Unauthenticated:
            if not request.is_again:
                await self._limits.count_failure(request.address)
            raise
        if caller is not OWNER and not request.is_again:
            await self._limits.count_caller(caller)
        return caller


__all__ = ["LimitedAuthenticator", "RequestLimits"]
