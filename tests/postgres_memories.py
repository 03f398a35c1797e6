"""Memories of any test in Postgres, where its records are: `TEST_STORE=postgres`."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from postgres_server import APP, PostgresServer

from holdfast.memory import (
    MemoryStorage,
    MemoryStoreKind,
    grant_memory_role,
    holds_memories,
    migrate_memory_storage,
    open_memory_storage,
)

_at: list[str] = []


def keep_memories_in_postgres(server: PostgresServer) -> None:
    """Keep memories of a state directory, as a tenant, in the database of `use_by_default`."""
    from holdfast.memory.stores import registry  # noqa: PLC0415
    from holdfast.runtime.memory import MemoryService  # noqa: PLC0415

    name = urlsplit(server.default_url).path.lstrip("/")
    owner = server.url(name)
    asyncio.run(migrate_memory_storage(owner, base_dir=Path(), is_dry=False))
    asyncio.run(grant_memory_role(owner, APP))
    _at[:] = [server.url(name, role=APP)]
    registry._KINDS._builtin = {**registry._KINDS._builtin, "default": f"{__name__}:KIND"}
    registry._DEFAULT = "default://"
    # Whether anything is remembered is asked of the database, not of a file.
    MemoryService._find_place = lambda self: None  # type: ignore[method-assign]

    async def holds(url: str, *, base_dir: Path) -> bool:
        return await holds_memories(url or _find_tenant(base_dir), base_dir=base_dir)

    import holdfast.memory  # noqa: PLC0415

    holdfast.memory.holds_memories = holds


def _find_tenant(base_dir: Path) -> str:
    tenant = hashlib.sha256(str(base_dir).encode()).hexdigest()[:24]
    return f"{_at[0]}&holdfast_tenant={tenant}"


def _open(address: SplitResult, base_dir: Path, is_synced: bool) -> MemoryStorage:
    return open_memory_storage(_find_tenant(base_dir), base_dir=base_dir)


KIND = MemoryStoreKind(open=_open)
