"""The front door of an application: `AsyncClient`, thin.

Namespaces (`client.sessions`, `client.runs`, …) and handles (`run.cancel()`) are projections of
the table of operations; nothing is decided here.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.client.channel import LocalChannel
from holdfast.client.surface import ClientSurface
from holdfast.errors import UsageError
from holdfast.operations import Async
from holdfast.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.redaction import Redactor
    from holdfast.settings import Settings


class AsyncClient(ClientSurface[Async]):
    """Sessions, messages and everything else of one state directory.

    Use it as a context manager, or call `close` when done::

        async with AsyncClient() as client:
            session = await client.sessions.create("Math Help")

    Records are kept in `base_dir` (also called `storage_path`), or else where the settings
    say: AGENT_STATE_DIR, a config file, or the standard place of the user.
    """

    def __init__(
        self,
        base_dir: str | os.PathLike[str] | None = None,
        *,
        storage_path: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
    ) -> None:
        """Read and check the settings; files are opened with the first call.

        `tenant` is on whose account runs of this client spend, and whose memories it keeps
        and finds; by default the setting of that name.

        What the redactor finds never reaches the state directory; by default it knows the
        keys of settings, environment and secrets file, and the formats of common keys.

        Raises:
            ConfigError: the settings are wrong; all mistakes are named.
        """
        if base_dir is not None and storage_path is not None:
            raise UsageError(detail="Give base_dir or storage_path; they mean the same.")
        runtime = Runtime(
            settings,
            base_dir=base_dir if base_dir is not None else storage_path,
            redactor=redactor,
            tenant=tenant,
        )
        super().__init__(runtime, LocalChannel(runtime))

    async def __aenter__(self) -> Self:
        """Open the journal."""
        await self._runtime.opened()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the journal."""
        await self.close()

    async def close(self) -> None:
        """Finish what was accepted and give everything back; safe to repeat."""
        await self._runtime.close()


__all__ = ["AsyncClient", "ClientSurface", "LocalChannel"]
