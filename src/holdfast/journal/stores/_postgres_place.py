"""A schema of another room in Postgres: opened, checked and migrated as the journal's is."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult

import psycopg
from psycopg import sql

from holdfast.errors import HoldfastError
from holdfast.journal.stores._postgres_connections import (
    Connections,
    parse_postgres_target,
    translate,
)
from holdfast.journal.stores._postgres_schema import (
    SchemaBook,
    list_migrations,
    migrate,
    read_version,
    require_schema,
)
from holdfast.journal.stores.registry import SchemaStatus


class PostgresPlace(Connections):
    """Connections to a database in which a room keeps tables of its own."""

    def __init__(self, address: SplitResult, book: SchemaBook) -> None:
        """Connect to nothing yet.

        Raises:
            UsageError: something in the address means nothing.
        """
        super().__init__(parse_postgres_target(address))
        self.book = book

    async def open(self) -> None:
        """Be ready; an empty database is set up, one whose schema does not fit is refused.

        Raises:
            SchemaTooNew: a newer Holdfast has changed it.
            StorageError: its schema is older, or this role may not do what is needed.
            StorageUnavailable: it cannot be reached.
        """
        if self.is_open:
            return
        await super().open()
        try:
            async with await self.connect() as connection:
                await require_schema(connection, self.target.shown, self.book)
        except psycopg.Error as error:
            await self.close()
            raise translate(error, self.target.shown) from error
        except BaseException:
            await self.close()
            raise

    def explain(self, error: psycopg.Error) -> HoldfastError:
        """Return the error of ours that fits one of the driver."""
        return translate(error, self.target.shown)

    async def grant(self, role: str) -> None:
        """Let a role use what it needs to serve requests; nothing where nothing is set up.

        Raises:
            StorageError: the caller does not own the schema.
        """
        to, schema = sql.Identifier(role), sql.Identifier(self.book.schema)
        listed = sql.SQL(", ").join(
            sql.Identifier(self.book.schema, name) for name in self.book.granted
        )
        try:
            async with await self._connect_once() as connection, connection.transaction():
                if not (await read_version(connection, self.book))[0]:
                    return
                for statement, what in (
                    ("GRANT USAGE ON SCHEMA {} TO {}", schema),
                    ("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}", listed),
                    ("GRANT SELECT ON {} TO {}", sql.Identifier(self.book.schema, "migrations")),
                ):
                    await connection.execute(sql.SQL(statement).format(what, to))
        except psycopg.Error as error:
            raise self.explain(error) from error

    async def erase(self) -> None:
        """Remove all rows of the tenant that the address names; none else is touched."""
        try:
            async with await self._connect_once() as connection, connection.transaction():
                if not (await read_version(connection, self.book))[0]:
                    return
                await connection.execute(
                    "SELECT set_config('holdfast.tenant', %s, true)", (self.target.tenant,)
                )
                for statement in self.book.erasing:
                    await connection.execute(statement)
        except psycopg.Error as error:
            raise self.explain(error) from error

    async def _connect_once(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        return await psycopg.AsyncConnection.connect(
            self.target.conninfo, autocommit=True, **self.target.options
        )

    async def migrate(self, *, is_dry: bool) -> SchemaStatus:
        """Bring the schema up to date, or only say which one it has."""
        steps = list_migrations(self.book)
        try:
            async with await self._connect_once() as connection:
                applied = [] if is_dry else await migrate(connection, self.target.shown, self.book)
                version, _ = await read_version(connection, self.book)
        except psycopg.Error as error:
            raise translate(error, self.target.shown) from error
        return SchemaStatus(
            store=self.target.shown,
            version=version,
            known=steps[-1].version,
            applied=tuple(f"{one.version:04}_{one.name}" for one in applied),
            pending=tuple(f"{one.version:04}_{one.name}" for one in steps if one.version > version),
        )


__all__ = ["PostgresPlace"]
