"""A client that dies in the middle of a test, as a killed process would."""

from __future__ import annotations

from typing import Any

from holdfast.client import AsyncClient


class Vanished(BaseException):
    """Raised in place of every fact that a dead client would record."""


async def vanish(client: AsyncClient) -> None:
    """Let a client record nothing from now on.

    The caller that goes on after that may call `leave` and open another client on the same
    directory.
    """
    journal = await client.storage.journal()

    async def refuse(*_: Any, **__: Any) -> Any:  # noqa: ANN401 - stands for any append
        raise Vanished

    journal.append = refuse  # type: ignore[method-assign]


async def leave(client: AsyncClient) -> None:
    """Give back what the client holds, as time would: leases that no caller renews."""
    journal = await client.storage.journal()
    for head in await journal.store.heads():
        await journal.store.release(head.session_id, head.epoch)
    try:
        await client.close()
    except Vanished:
        return
