"""Give aiohttp the addresses that were checked, so that it connects to nothing else.

The name is not looked up a second time: between two answers it could change (DNS rebinding).
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult


class PinnedResolver(AbstractResolver):
    """Knows one host."""

    def __init__(self, host: str | None, addresses: tuple[str, ...]) -> None:
        """Answer for this host, always the same."""
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses; raises OSError for any other host."""
        if host != self._host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held open."""
