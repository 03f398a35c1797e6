"""Memories in Postgres, for processes of many machines: full text, and vectors by pgvector."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult

import psycopg
import psycopg_pool

from holdfast.errors import StorageUnavailable, UsageError
from holdfast.journal import PostgresPlace, SchemaBook, SchemaStatus
from holdfast.memory.entry import MemoryEntry
from holdfast.memory.storage import (
    ChooseAmong,
    IndexRow,
    LexicalHit,
    MemoryFilter,
    MemoryPlace,
    NearestQuery,
)
from holdfast.memory.stores import _postgres_nearest, _reading
from holdfast.memory.stores._database import MemoryDatabase
from holdfast.memory.stores._postgres_words import PostgresDatabase, WordStatistics
from holdfast.memory.stores._storage import SqlMemoryStorage, StorageLookup
from holdfast.memory.stores.registry import MemoryStoreKind
from holdfast.memory.words import name_place

T = TypeVar("T")
_MOST_IN_MEMORY = 20_000
"""Places with more memories are searched by the index of vectors; others are read once."""
_LATELY = 500
_MOST_SPEAKERS = 500
_MOST_OUTLINES = 1_000
_VIEWS = (
    "words",
    "tokens",
    "vectors",
    "links",
    "refusals",
    "spaces",
    "fences",
    "memories",
    "revisions",
)
BOOK = SchemaBook(
    schema="holdfast_memory",
    package="holdfast.memory.stores",
    granted=_VIEWS,
    # Views show, and let be removed, what is of the tenant.
    erasing=tuple(f"DELETE FROM holdfast_memory.{name}" for name in _VIEWS),
)
_PATIENCE_S = 30.0
_BEGIN = (
    "SELECT set_config('holdfast.tenant', %s, true), set_config('search_path', %s, true),"
    " set_config('idle_in_transaction_session_timeout', '15s', true)"
)
_IS_SET_UP = """
SELECT has_schema_privilege(n.oid, 'USAGE') AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'memories')
FROM pg_catalog.pg_namespace n WHERE n.nspname = 'holdfast_memory'
"""
_EXTENSION = (
    "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e"
    " JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
_SIZES = """
SELECT (SELECT coalesce(sum(pg_column_size(m)), 0) FROM memories m)
    + (SELECT coalesce(sum(pg_column_size(v.embedding)), 0) FROM vectors v)
    + (SELECT coalesce(sum(octet_length(t.tokens)), 0) FROM tokens t)
    + (SELECT coalesce(sum(pg_column_size(w.words)), 0) FROM words w)
"""
_LEFT = re.compile(r"(\d+) are dead but not yet removable")
_TABLES = ("memories", "vectors", "tokens", "words", "links", "refusals")


class _Outline(NamedTuple):
    """What a search has to know of places before it asks: at most so many changes ago."""

    revision: int
    is_large: bool
    speakers: tuple[str, ...]


class PostgresMemoryStorage(SqlMemoryStorage):
    """Rows, words and vectors in the schema `holdfast_memory` of a database.

    It is asked in threads, on a few connections of its own. A writer holds the row of its tenant
    in `revisions`, so that changes are seen in the order of their revisions.
    """

    def __init__(self, address: SplitResult) -> None:
        """Keep them at this address; nothing is touched yet.

        Raises:
            UsageError: something in the address means nothing.
        """
        self._place = PostgresPlace(address, BOOK)
        self._pool: psycopg_pool.ConnectionPool[psycopg.Connection[tuple[Any, ...]]] | None = None
        self._path = ""
        self._known = threading.local()
        self._outlines: dict[tuple[MemoryPlace, ...], _Outline] = {}
        self.most_in_memory = _MOST_IN_MEMORY

    async def open(self) -> None:
        """Connect; set up an empty database, or check that its schema fits."""
        if self._pool is not None:
            return
        await self._place.open()
        await self._place.close()
        try:
            await asyncio.to_thread(self._connect)
        except asyncio.CancelledError:
            await self.close()
            raise

    def _connect(self) -> None:
        pool: psycopg_pool.ConnectionPool[psycopg.Connection[tuple[Any, ...]]]
        pool = psycopg_pool.ConnectionPool(
            self._place.target.conninfo,
            kwargs={"autocommit": True, **self._place.target.options},
            min_size=0,
            max_size=self._place.target.readers + 1,
            timeout=_PATIENCE_S,
            max_idle=60,
            open=True,
            name="holdfast-memory",
        )
        self._pool = pool
        with self._open_pooled() as connection:
            found = connection.execute(_EXTENSION).fetchone()
            beside = f", {found[0]}" if found is not None else ""
            self._path = f"holdfast_memory{beside}, pg_catalog"
            with self._begin(connection):
                connection.execute("INSERT INTO revisions (last) VALUES (0) ON CONFLICT DO NOTHING")

    async def close(self) -> None:
        """Give the connections back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.close)

    def run_reading(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Ask in one transaction; once more if the connection broke."""
        try:
            return self._run(work, is_writing=False)
        except StorageUnavailable:
            self._drop_broken()
        return self._run(work, is_writing=False)

    def run_writing(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Change something in one transaction, while no other process writes for this tenant.

        It begins once more if the connection was broken by then. If it breaks later, what was
        written may be stored although this raises.
        """
        has_begun = False

        def begin(db: MemoryDatabase) -> T:
            nonlocal has_begun
            has_begun = True
            return work(db)

        try:
            return self._run(begin, is_writing=True)
        except StorageUnavailable:
            if has_begun:
                raise
            self._drop_broken()
        return self._run(work, is_writing=True)

    def measure_bytes(self) -> int:
        """Return how many bytes the rows of this tenant take, indexes left out."""
        return self.run_reading(lambda db: int(db.execute(_SIZES).fetchone()[0]))

    async def compact(self) -> bool:
        """Let the server clean its tables of what was removed; see `MemoryStorage.compact`.

        False if it did not: another transaction still reads what was there before, or this role may
        not ask for it. Then the server's own cleaning (autovacuum) does it later. What it has
        logged and backed up is beyond the reach of a client.
        """
        return await asyncio.to_thread(self._clean_tables)

    # --- large places -----------------------------------------------------------------

    async def is_large(self, places: Sequence[MemoryPlace]) -> bool:
        """Say whether places hold too much to be read into memory; see `NearestStorage`."""
        return (await self._read_outline(tuple(places))).is_large

    async def list_speakers(self, places: Sequence[MemoryPlace]) -> list[str]:
        """Return who speaks in some places."""
        return list((await self._read_outline(tuple(places))).speakers)

    async def select_nearest(
        self,
        places: Sequence[MemoryPlace],
        words: Sequence[str],
        where: MemoryFilter,
        near: NearestQuery,
        choose: ChooseAmong,
        *,
        now: float,
    ) -> dict[int, MemoryEntry]:
        """Return what is picked among what may be among the best; see `NearestStorage`."""

        def look(db: MemoryDatabase) -> tuple[list[LexicalHit], list[int] | None, list[IndexRow]]:
            hits = db.search_lexical(places, words)
            rows = {hit.row for hit in hits}
            rows.update(_postgres_nearest.list_nearest(db, places, where, near, now))
            rows.update(_postgres_nearest.list_newest(db, places, where, now, near.limit // 4))
            found = _postgres_nearest.list_around(db, places, rows, near.model)
            if where.is_plain:
                return hits, None, found
            known = [one.row for one in found]
            passing = _postgres_nearest.list_passing_among(db, places, where, now, known)
            return hits, passing, found

        def work() -> dict[int, MemoryEntry]:
            hits, passing, found = self.run_reading(look)
            # Others may read meanwhile.
            chosen = choose(hits, passing, StorageLookup(self, places), found)
            if not chosen:
                return {}
            return self.run_reading(lambda db: _reading.index_by_row(db, places, chosen))

        return await asyncio.to_thread(work)

    async def _read_outline(self, places: tuple[MemoryPlace, ...]) -> _Outline:
        """Return what is known of places, which a few changes more or less do not alter."""
        last = await self.revision()
        known = self._outlines.get(places)
        if known is not None and 0 <= last - known.revision < _LATELY:
            return known
        most = self.most_in_memory

        def read(db: MemoryDatabase) -> _Outline:
            condition, values = _reading.build_places_sql(places)
            counted = f"SELECT 1 FROM memories m WHERE {condition} AND m.forgotten IS NULL LIMIT ?"
            sql = f"SELECT count(*) FROM ({counted}) s"
            is_large = db.execute(sql, [*values, most + 1]).fetchone()[0] > most
            speakers = _reading.list_speakers(db, places, _MOST_SPEAKERS) if is_large else ()
            return _Outline(last, is_large, speakers)

        if len(self._outlines) > _MOST_OUTLINES:
            self._outlines.clear()
        found = self._outlines[places] = await self._read(read)
        return found

    # --- inside -----------------------------------------------------------------------

    def _run(self, work: Callable[[MemoryDatabase], T], *, is_writing: bool) -> T:
        with self._open_pooled() as connection, self._begin(connection):
            if is_writing:
                connection.execute("SELECT last FROM revisions FOR UPDATE")
            return work(PostgresDatabase(connection, self._statistics))

    def _drop_broken(self) -> None:
        """Have those connections made anew that a restart of the server has broken."""
        if self._pool is not None:
            self._pool.check()

    @property
    def _statistics(self) -> WordStatistics:
        """What this thread knows of words; threads share nothing."""
        known = getattr(self._known, "words", None)
        if known is None:
            known = WordStatistics(name_place("tenant", self._place.target.tenant))
            self._known.words = known
        return known

    @contextlib.contextmanager
    def _begin(self, connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[None]:
        """Hold a transaction in the name of the tenant, which sees its rows only."""
        with connection.transaction():
            connection.execute(_BEGIN, (self._place.target.tenant, self._path))
            yield

    @contextlib.contextmanager
    def _open_pooled(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        if self._pool is None:
            raise UsageError(detail="The storage of memories is not open.")
        try:
            with self._pool.connection() as connection:
                yield connection
        except psycopg_pool.PoolTimeout as error:
            raise StorageUnavailable(
                path=self._place.target.shown, detail="no connection became free in time"
            ) from error
        except (UnicodeEncodeError, psycopg.DataError) as error:
            # A value that no column could hold, such as a NUL in a text.
            detail = str(error).strip().splitlines()[0]
            raise UsageError(detail=f"This cannot be looked up or kept: {detail}") from error
        except psycopg.Error as error:
            raise self._place.explain(error) from error

    def _clean_tables(self) -> bool:
        heard: list[tuple[str, str]] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            heard.append((notice.severity_nonlocalized or "", notice.message_primary or ""))

        with self._open_pooled() as connection:
            connection.add_notice_handler(hear)
            try:
                for table in _TABLES:
                    connection.execute(f"VACUUM (VERBOSE) holdfast_memory.all_{table}")
            finally:
                connection.remove_notice_handler(hear)
        # A role that may not is warned. What others still see is told in English, or not at all.
        is_allowed = all(severity != "WARNING" for severity, _ in heard)
        told = [_LEFT.search(message) for _, message in heard]
        kept = [int(found[1]) for found in told if found is not None]
        return is_allowed and len(kept) >= len(_TABLES) and not any(kept)


def _open(address: SplitResult, base_dir: Path, is_synced: bool) -> PostgresMemoryStorage:
    return PostgresMemoryStorage(address)


async def _holds(address: SplitResult) -> bool:
    place = PostgresPlace(address, BOOK)
    try:
        async with (
            await psycopg.AsyncConnection.connect(
                place.target.conninfo, **place.target.options
            ) as connection,
            connection.transaction(),
        ):
            await connection.execute(
                "SELECT set_config('holdfast.tenant', %s, true)", (place.target.tenant,)
            )
            found = await (await connection.execute(_IS_SET_UP)).fetchone()
            if found is None or not found[0]:
                return False
            some = await connection.execute("SELECT 1 FROM holdfast_memory.memories LIMIT 1")
            return await some.fetchone() is not None
    except psycopg.Error as error:
        raise place.explain(error) from error


async def _migrate(address: SplitResult, is_dry: bool) -> SchemaStatus:
    return await PostgresPlace(address, BOOK).migrate(is_dry=is_dry)


async def _grant(address: SplitResult, role: str) -> None:
    await PostgresPlace(address, BOOK).grant(role)


async def _erase(address: SplitResult) -> None:
    await PostgresPlace(address, BOOK).erase()


KIND = MemoryStoreKind(open=_open, holds=_holds, migrate=_migrate, grant=_grant, erase=_erase)
"""`postgresql://USER@HOST/DATABASE`: many machines, the same memories."""

__all__ = ["KIND", "PostgresMemoryStorage"]
