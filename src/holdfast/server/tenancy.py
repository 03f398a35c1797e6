"""On whose records a request works: the seam between a `Caller` and a `Runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.operations import Caller
from holdfast.runtime import Runtime


class RuntimeProvider(Protocol):
    """Finds the runtime of a caller's tenant, and looks after all of them."""

    operator: Runtime
    """The runtime of the state directory itself."""

    async def runtime_for(self, caller: Caller) -> Runtime:
        """Return the runtime on whose records this caller works, open.

        Raises:
            Unauthenticated: there is no such tenant, or it is suspended.
        """
        ...

    def list_open(self) -> Sequence[Runtime]:
        """Return the runtimes that are open now, for readiness, metrics and draining."""
        ...

    async def open(self) -> None:
        """Open what has to be there before the first request."""
        ...

    async def close(self) -> None:
        """Close every runtime; safe to repeat."""
        ...


class SingleTenant:
    """One runtime for every caller: the state directory of this process."""

    def __init__(self, runtime: Runtime) -> None:
        """Work on this runtime."""
        self.operator = runtime

    async def runtime_for(self, caller: Caller) -> Runtime:
        """Return the runtime, open."""
        return await self.operator.opened()

    def list_open(self) -> Sequence[Runtime]:
        """Return the runtime, if it is open."""
        return (self.operator,) if self.operator.is_open else ()

    async def open(self) -> None:
        """Open the records."""
        await self.operator.opened()

    async def close(self) -> None:
        """Close the runtime; safe to repeat."""
        await self.operator.close()


__all__ = ["RuntimeProvider", "SingleTenant"]
