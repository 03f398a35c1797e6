"""Storages of memories by address: the same address as the journal's chooses them.

`sqlite://` (the default) keeps them in the file `memory.db` of a directory, `memory://` in the
process, `postgresql://USER:PASSWORD@HOST/DATABASE` in the schema `holdfast_memory` of a database
with pgvector (extra `postgres`). Packages add kinds by entry points of the group
`holdfast.memory_stores`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import SplitResult

import msgspec

from holdfast.journal import AddressRegistry, SchemaStatus, resolve_directory
from holdfast.memory.storage import MemoryStorage

MEMORY_FILE = "memory.db"
_DEFAULT = "sqlite://"


class MemoryStoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of storage for memories, as a package offers it."""

    open: Callable[[SplitResult, Path, bool], MemoryStorage]
    """Returns the storage at an address, for a state directory; synced to disk if asked."""
    place: Callable[[SplitResult, Path], Path] | None = None
    """Returns the file that it keeps on this machine."""
    holds: Callable[[SplitResult], Awaitable[bool]] | None = None
    """Says whether anything is remembered at an address that is no place on this machine."""
    migrate: Callable[[SplitResult, bool], Awaitable[SchemaStatus]] | None = None
    """Says which schema it has, and brings it up to date if asked to; see `StoreKind.migrate`."""
    grant: Callable[[SplitResult, str], Awaitable[None]] | None = None
    """Lets a role of the database use it; see `StoreKind.grant`."""
    erase: Callable[[SplitResult], Awaitable[None]] | None = None
    """Removes all that the tenant of an address has there, for kinds that keep tenants apart."""


def _open_sqlite(address: SplitResult, base_dir: Path, is_synced: bool) -> MemoryStorage:
    from holdfast.memory.stores.sqlite import SqliteMemoryStorage  # noqa: PLC0415 - when chosen

    return SqliteMemoryStorage(_resolve_sqlite_place(address, base_dir), is_synced=is_synced)


def _resolve_sqlite_place(address: SplitResult, base_dir: Path) -> Path:
    return resolve_directory(address, base_dir) / MEMORY_FILE


def _open_memory(address: SplitResult, base_dir: Path, is_synced: bool) -> MemoryStorage:
    from holdfast.memory.stores.sqlite import InMemoryStorage  # noqa: PLC0415 - when chosen

    return InMemoryStorage()


SQLITE = MemoryStoreKind(open=_open_sqlite, place=_resolve_sqlite_place)
MEMORY = MemoryStoreKind(open=_open_memory)
_KINDS = AddressRegistry(
    "holdfast.memory_stores",
    MemoryStoreKind,
    {
        "memory": f"{__name__}:MEMORY",
        "sqlite": f"{__name__}:SQLITE",
        "postgres": "holdfast.memory.stores.postgres:KIND",
        "postgresql": "holdfast.memory.stores.postgres:KIND",
    },
)


def open_memory_storage(url: str, *, base_dir: Path, is_synced: bool = False) -> MemoryStorage:
    """Return the storage at an address; without one, that of the state directory.

    Raises:
        UsageError: no kind of storage is known for the scheme.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    return kind.open(address, base_dir, is_synced)


def find_memory_place(url: str, *, base_dir: Path) -> Path | None:
    """Return the file in which memories are kept on this machine, if they are in one."""
    kind, address = _KINDS.find(url or _DEFAULT)
    return None if kind.place is None else kind.place(address, base_dir)


async def holds_memories(url: str, *, base_dir: Path) -> bool:
    """Say whether anything is remembered at an address, without setting anything up there.

    Raises:
        StorageError: it cannot be asked.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.holds is not None:
        return await kind.holds(address)
    return kind.place is not None and kind.place(address, base_dir).exists()


async def migrate_memory_storage(url: str, *, base_dir: Path, is_dry: bool) -> SchemaStatus | None:
    """Bring the schema of a storage up to date; `None` for one that needs no migration by hand."""
    kind, address = _KINDS.find(url or _DEFAULT)
    return None if kind.migrate is None else await kind.migrate(address, is_dry)


async def grant_memory_role(url: str, role: str) -> None:
    """Let a role of the database at an address use the memories there, where it has roles."""
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.grant is not None:
        await kind.grant(address, role)


async def erase_memories(url: str) -> None:
    """Remove all memories of the tenant that an address names, where tenants share a database."""
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.erase is not None:
        await kind.erase(address)
