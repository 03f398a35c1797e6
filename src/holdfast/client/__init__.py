"""The front door of an application: `AsyncClient`, thin.

Namespaces (`client.sessions`, `client.runs`, …) and handles (`run.cancel()`) are projections of
the table of operations; nothing is decided here.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.client.addresses import check_address, choose_api_key
from holdfast.client.channel import LocalChannel
from holdfast.client.local_token import find_token, make_token
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
    say: AGENT_STATE_DIR, a config file, or the standard place of the user. The address of a
    server in its place, `AsyncClient("https://…", api_key="…")`, asks that server instead: the
    same namespaces, handles and errors.
    """

    def __init__(
        self,
        base_dir: str | os.PathLike[str] | None = None,
        *,
        storage_path: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
        api_key: str = "",
        allows_plain_http: bool = False,
    ) -> None:
        """Read and check the settings; files are opened with the first call.

        `tenant` is on whose account runs of this client spend, and whose memories it keeps
        and finds; by default the setting of that name.

        What the redactor finds never reaches the state directory; by default it knows the
        keys of settings, environment and secrets file, and the formats of common keys.

        `api_key` is for the server where `base_dir` is an address; by default HOLDFAST_API_KEY,
        or on this machine the token of the state directory. Over `http://` it is sent to other
        machines only with `allows_plain_http`.

        Raises:
            ConfigError: the settings are wrong; all mistakes are named.
        """
        runtime, channel = open_channel(
            choose_place(base_dir, storage_path),
            settings=settings,
            redactor=redactor,
            tenant=tenant,
            api_key=api_key,
            allows_plain_http=allows_plain_http,
        )
        super().__init__(runtime, channel)

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


def choose_place(
    base_dir: str | os.PathLike[str] | None, storage_path: str | os.PathLike[str] | None
) -> str | os.PathLike[str] | None:
    """Return the place that was named; raises UsageError if two were."""
    if base_dir is not None and storage_path is not None:
        raise UsageError(detail="Give base_dir or storage_path; they mean the same.")
    return base_dir if base_dir is not None else storage_path


def open_channel(
    place: str | os.PathLike[str] | None,
    *,
    settings: Settings | None = None,
    redactor: Redactor | None = None,
    tenant: str = "",
    api_key: str = "",
    allows_plain_http: bool = False,
) -> tuple[Runtime, LocalChannel]:
    """Return a runtime of this process with the way to it, or both for a server elsewhere."""
    if isinstance(place, str) and place.lower().startswith(("http://", "https://")):
        from holdfast.client.remote import connect  # noqa: PLC0415 - only for servers

        if redactor is not None or tenant:
            raise UsageError(detail="A server has its own redactor, and knows the tenant by key.")
        found: tuple[Runtime, LocalChannel] = connect(  # type: ignore[assignment]
            place, settings=settings, api_key=api_key, allows_plain_http=allows_plain_http
        )
        return found
    if api_key:
        raise UsageError(detail="An api_key is for a server: AsyncClient('https://…', api_key=…).")
    runtime = Runtime(settings, base_dir=place, redactor=redactor, tenant=tenant)
    return runtime, LocalChannel(runtime)


__all__ = [
    "AsyncClient",
    "ClientSurface",
    "LocalChannel",
    "check_address",
    "choose_api_key",
    "find_token",
    "make_token",
    "choose_place",
    "open_channel",
]
