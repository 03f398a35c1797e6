"""Blobs in Postgres, in pieces, for those whose machines share nothing but a database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlunsplit

import psycopg

from holdfast.artifacts.blobs import BlobInfo, split_key
from holdfast.artifacts.stores.files import check_blob_key, check_upload_name, make_missing
from holdfast.artifacts.stores.registry import BlobStoreKind, BlobStoreOptions
from holdfast.journal import PostgresPlace, SchemaBook, SchemaStatus, find_tenant_url

_TABLES = ("pieces", "uploads", "blobs", "places")
BOOK = SchemaBook(
    schema="holdfast_artifacts",
    package="holdfast.artifacts.stores",
    granted=_TABLES,
    erasing=tuple(
        f"DELETE FROM holdfast_artifacts.{name} WHERE tenant = current_setting('holdfast.tenant')"
        for name in _TABLES
    ),
)
_PIECE = 1024 * 1024
_AT_ONCE = 4
"""Blobs of so many pieces are read with one question."""
_PAGE = 500
_MOST_READERS = 4
# A reader holds no lock, but one that is gone must not hold back the server's own cleaning.
_PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = '10min'"

_PUBLISH = """
INSERT INTO holdfast_artifacts.blobs (tenant, key, upload, size) VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant, key) DO
"""
_DROP_UNUSED = """
DELETE FROM holdfast_artifacts.pieces p WHERE p.tenant = %s AND p.upload = ANY(%s)
AND NOT EXISTS (SELECT 1 FROM holdfast_artifacts.uploads u WHERE u.upload = p.upload)
AND NOT EXISTS (SELECT 1 FROM holdfast_artifacts.blobs b WHERE b.upload = p.upload)
"""


class PostgresBlobs:
    """Keeps blobs in the schema `holdfast_artifacts` of a database."""

    def __init__(self, address: SplitResult) -> None:
        """Keep them at this address; nothing is touched yet.

        Raises:
            UsageError: something in the address means nothing.
        """
        self._place = PostgresPlace(address, BOOK)
        self._opening = asyncio.Lock()
        self._readers = asyncio.Semaphore(_MOST_READERS)

    async def open(self) -> None:
        """Connect; set up an empty database, or check that its schema fits."""
        async with self._opening:
            await self._place.open()

    async def close(self) -> None:
        """Give the connections back."""
        async with self._opening:
            await self._place.close()

    async def claim(self, mark: str) -> str:
        """Mark the place, if it has no mark yet, and return the mark that it has."""
        async with self.change() as connection:
            await connection.execute(
                "INSERT INTO holdfast_artifacts.places (tenant, mark) VALUES (%s, %s) "
                "ON CONFLICT DO NOTHING",
                (self.tenant, mark),
            )
            found = await connection.execute(
                "SELECT mark FROM holdfast_artifacts.places WHERE tenant = %s", (self.tenant,)
            )
            return str((await found.fetchall())[0][0])

    def begin(self, name: str) -> PostgresUpload:
        """Return an upload."""
        return PostgresUpload(self, check_upload_name(name))

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        check_blob_key(key)
        rows = await self._read(
            "SELECT size FROM holdfast_artifacts.blobs WHERE tenant = %s AND key = %s", key
        )
        return rows[0][0] if rows else None

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob, as it was when the first of them were read."""
        check_blob_key(key)
        # One statement sees one moment: a blob that is replaced meanwhile is read to its end.
        rows = await self._read(
            "SELECT b.size, p.number, p.data FROM holdfast_artifacts.blobs b "
            "JOIN holdfast_artifacts.pieces p ON p.upload = b.upload AND (p.number = 0 OR b.size "
            f"<= {_AT_ONCE * _PIECE}) WHERE b.tenant = %s AND b.key = %s ORDER BY p.number",
            key,
        )
        if not rows:
            raise make_missing(key)
        if rows[0][0] <= _AT_ONCE * _PIECE:
            for row in rows:
                yield bytes(row[2])
            return
        del rows
        async with self._readers, self._hold_moment() as connection:
            found = await _ask(
                connection,
                "SELECT upload FROM holdfast_artifacts.blobs WHERE tenant = %s AND key = %s",
                (self.tenant, key),
            )
            if not found:
                raise make_missing(key)
            number = 0
            sql = "SELECT data FROM holdfast_artifacts.pieces WHERE upload = %s AND number = %s"
            while pieces := await _ask(connection, sql, (found[0][0], number)):
                yield bytes(pieces[0][0])
                number += 1

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs."""
        for key in keys:
            check_blob_key(key)
        async with self.change() as connection:
            found = await _ask(
                connection,
                "DELETE FROM holdfast_artifacts.blobs WHERE tenant = %s AND key = ANY(%s) "
                "RETURNING upload",
                (self.tenant, list(keys)),
            )
            await self.drop_unused(connection, [row[0] for row in found])

    async def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once."""
        last = ""
        sql = (
            "SELECT key, size FROM holdfast_artifacts.blobs WHERE tenant = %s AND key > %s "
            f"ORDER BY key LIMIT {_PAGE}"
        )
        while page := await self._read(sql, last):
            for key, size in page:
                if split_key(key) is not None:
                    yield BlobInfo(key=key, size=size)
            last = page[-1][0]

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that were begun."""
        sql = "SELECT name FROM holdfast_artifacts.uploads WHERE tenant = %s ORDER BY name"
        return [name for (name,) in await self._read(sql)]

    async def remove_upload(self, name: str) -> None:
        """Let go of an upload; what was published of it stays."""
        async with self.change() as connection:
            found = await _ask(
                connection,
                "DELETE FROM holdfast_artifacts.uploads WHERE tenant = %s AND name = %s "
                "RETURNING upload",
                (self.tenant, name),
            )
            await self.drop_unused(connection, [row[0] for row in found])

    # --- for uploads ------------------------------------------------------------------

    @property
    def tenant(self) -> str:
        """In whose name rows are written."""
        return self._place.target.tenant

    @contextlib.asynccontextmanager
    async def change(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """Do something in one transaction."""
        await self.open()
        async with self._place.begin_transaction() as connection:
            yield connection

    async def drop_unused(
        self, connection: psycopg.AsyncConnection[Any], uploads: Sequence[int]
    ) -> None:
        """Remove the pieces of those uploads that belong to no name and to no blob."""
        if uploads:
            await connection.execute(_DROP_UNUSED, (self.tenant, list(uploads)))

    # --- inside -----------------------------------------------------------------------

    async def _read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        await self.open()
        return await self._place.read(sql, [self.tenant, *values])

    @contextlib.asynccontextmanager
    async def _hold_moment(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """Have a connection of one's own that sees one moment for as long as it is read."""
        connection = await self._place.connect()
        try:
            async with connection, connection.transaction():
                await connection.execute(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                )
                await connection.execute(_PATIENCE)
                await connection.execute(
                    "SELECT set_config('holdfast.tenant', %s, true)", (self.tenant,)
                )
                yield connection
        except psycopg.Error as error:
            raise self._place.explain(error) from error


class PostgresUpload:
    """Pieces that have no key yet."""

    def __init__(self, store: PostgresBlobs, name: str) -> None:
        """Write under this name, from the first bytes on."""
        self._store = store
        self._name = name
        self._upload = 0
        self._number = 0
        self._size = 0
        self._rest = bytearray()

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._rest += data
        while len(self._rest) >= _PIECE:
            piece = bytes(self._rest[:_PIECE])
            await self._keep(piece)
            del self._rest[:_PIECE]

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the pieces be the blob of this key."""
        check_blob_key(key)
        if self._rest or not self._upload:
            await self._keep(bytes(self._rest))
            self._rest.clear()
        store = self._store
        conflict = "UPDATE SET upload = excluded.upload, size = excluded.size"
        async with store.change() as connection:
            before = await _ask(
                connection,
                "SELECT upload FROM holdfast_artifacts.blobs WHERE tenant = %s AND key = %s "
                "FOR UPDATE",
                (store.tenant, key),
            )
            await connection.execute(
                _PUBLISH + (conflict if replaces else "NOTHING"),
                (store.tenant, key, self._upload, self._size),
            )
            if replaces:
                await store.drop_unused(connection, [row[0] for row in before])

    async def discard(self) -> None:
        """Let go of the pieces, unless they are a blob's by now."""
        self._rest.clear()
        if self._upload:
            await self._store.remove_upload(self._name)

    async def _keep(self, piece: bytes) -> None:
        store, upload = self._store, self._upload
        async with store.change() as connection:
            if not upload:
                [[upload]] = await _ask(
                    connection,
                    "INSERT INTO holdfast_artifacts.uploads (tenant, name) VALUES (%s, %s) "
                    "RETURNING upload",
                    (store.tenant, self._name),
                )
            await connection.execute(
                "INSERT INTO holdfast_artifacts.pieces (tenant, upload, number, data) "
                "VALUES (%s, %s, %s, %s)",
                (store.tenant, upload, self._number, piece),
            )
        self._upload = upload
        self._number += 1
        self._size += len(piece)


async def _ask(
    connection: psycopg.AsyncConnection[Any], sql: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(sql, values)).fetchall()


def _open(address: SplitResult, options: BlobStoreOptions) -> PostgresBlobs:
    return PostgresBlobs(address)


async def _migrate(address: SplitResult, base_dir: Path, is_dry: bool) -> SchemaStatus:
    return await PostgresPlace(address, BOOK).migrate(is_dry=is_dry)


async def _grant(address: SplitResult, role: str) -> None:
    await PostgresPlace(address, BOOK).grant(role)


async def _erase(address: SplitResult, options: BlobStoreOptions) -> None:
    await PostgresPlace(address, BOOK).erase()


def _find_tenant_url(address: SplitResult, tenant: str) -> str:
    return find_tenant_url(urlunsplit(address), tenant) or ""


KIND = BlobStoreKind(
    open=_open, migrate=_migrate, grant=_grant, tenant_url=_find_tenant_url, erase=_erase
)
"""`postgresql://USER@HOST/DATABASE`: many machines, one place."""

__all__ = ["KIND", "PostgresBlobs", "PostgresUpload"]
