"""Which dispatcher fits to a store."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.clock import SYSTEM, Clock
from holdfast.dispatch.dispatcher import Dispatcher
from holdfast.errors import MissingExtra

_POSTGRES = frozenset({"postgres", "postgresql"})


def open_dispatcher(url: str, *, clock: Clock = SYSTEM) -> Dispatcher:
    """Return the dispatcher for the store at an address; it connects to nothing yet.

    Raises:
        MissingExtra: the store is Postgres, and the extra `postgres` is not installed.
    """
    address = urlsplit(url)
    if address.scheme not in _POSTGRES:
        from holdfast.dispatch.embedded import EmbeddedDispatcher  # noqa: PLC0415 - on use

        return EmbeddedDispatcher(clock=clock)
    try:
        from holdfast.dispatch.stores.postgres import PostgresDispatcher  # noqa: PLC0415 - extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            what="Workers on Postgres", package=error.name or "", extra="postgres"
        ) from error
    return PostgresDispatcher(address)
