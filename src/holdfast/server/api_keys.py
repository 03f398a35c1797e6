"""API keys over HTTP: `Authorization: Bearer hf_…`."""

from __future__ import annotations

from holdfast.errors import Unauthenticated
from holdfast.identity import KeyService
from holdfast.operations import Caller
from holdfast.server.identity import RequestHead, read_bearer
from holdfast.server.limits import RequestLimits


class ApiKeyAuthenticator:
    """Knows callers by the keys of the control store."""

    def __init__(self, keys: KeyService, limits: RequestLimits) -> None:
        """Look keys up here, and count what is asked with each."""
        self._keys = keys
        self._limits = limits

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the subject of the key.

        Raises:
            Unauthenticated: it is missing, malformed, unknown, expired or revoked.
            RateLimitError: too much was asked with it.
        """
        key = await self._keys.verify(read_bearer(request.headers))
        if key is None:
            raise Unauthenticated
        if not request.is_again:
            await self._limits.count_key(key.id)
        return Caller(tenant=key.tenant, subject=key.subject, scopes=key.all_scopes)


__all__ = ["ApiKeyAuthenticator"]
