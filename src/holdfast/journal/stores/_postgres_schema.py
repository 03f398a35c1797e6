"""Schemas in Postgres: versioned files, applied under an advisory lock.

The journal's is one; memories and artifacts have schemas of their own, each with its own book of
what was applied, so that each may lie in another database.

A file `NNNN_name.sql` says in its first line from which version on older programs can go on with
what it makes (`-- compatible from: N`), so that workers are upgraded one after the other. An empty
database is set up by the first process that opens it; an existing one changes only when
`holdfast storage migrate` is called.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
import psycopg
from procrastinate.schema import SchemaManager

from holdfast.errors import SchemaTooNew, StorageError


class SchemaBook(msgspec.Struct, frozen=True, kw_only=True):
    """Whose schema it is, and where its steps are."""

    schema: str
    package: str
    """Its steps are the files in `sql/postgres` of this package."""
    granted: tuple[str, ...] = ()
    """Tables and views that a role needs which serves requests."""
    erasing: tuple[str, ...] = ()
    """Statements that remove all rows of the tenant that the transaction names."""


JOURNAL = SchemaBook(schema="holdfast", package="holdfast.journal.stores")
_FOLDER = "sql/postgres"
_LOCK = 0x686F6C64  # any number that other programs do not use
_MARK = "-- compatible from:"
_ENGINE = "-- include: the schema of procrastinate\n"
_CATALOGUE = """
SELECT has_schema_privilege(n.oid, 'USAGE'), EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c
    WHERE c.relnamespace = n.oid AND c.relname = 'migrations')
FROM pg_catalog.pg_namespace n WHERE n.nspname = %s
"""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    version: int
    name: str
    compatible_from: int
    sql: str


def make_book_sql(book: SchemaBook) -> str:
    """Return the statements that make a schema, and the table of what was applied to it."""
    return f"""
CREATE SCHEMA IF NOT EXISTS {book.schema};
CREATE TABLE IF NOT EXISTS {book.schema}.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    compatible_from integer NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);
"""


def list_migrations(book: SchemaBook = JOURNAL) -> list[Migration]:
    """Return the steps that this version of Holdfast knows, in order."""
    folder = resources.files(book.package).joinpath(_FOLDER)
    found = []
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        number, _, name = file.name.removesuffix(".sql").partition("_")
        sql = file.read_text(encoding="utf-8")
        first = sql.partition("\n")[0]
        if _ENGINE in sql:
            sql = sql.replace(_ENGINE, SchemaManager.get_schema())
        found.append(
            Migration(
                version=int(number),
                name=name,
                compatible_from=int(first.removeprefix(_MARK)),
                sql=sql,
            )
        )
    return found


async def read_version(
    connection: psycopg.AsyncConnection[Any], book: SchemaBook = JOURNAL
) -> tuple[int, int]:
    """Return the version of a database's schema, and the oldest that can work with it; 0 if none.

    Raises:
        StorageError: this role may not read it.
    """
    # Asked of the catalogue itself: what a name meant before may still be remembered.
    found = await (await connection.execute(_CATALOGUE, (book.schema,))).fetchone()
    if found is None:
        return 0, 0
    if not found[0]:
        raise StorageError(path=f"the schema {book.schema}", detail="this role may not use it")
    if not found[1]:
        return 0, 0
    last = (
        f"SELECT version, compatible_from FROM {book.schema}.migrations"
        " ORDER BY version DESC LIMIT 1"
    )
    row = await (await connection.execute(last)).fetchone()
    return (row[0], row[1]) if row is not None else (0, 0)


async def require_schema(
    connection: psycopg.AsyncConnection[Any], where: str, book: SchemaBook = JOURNAL
) -> None:
    """Set up an empty database; refuse one whose schema does not fit.

    Raises:
        SchemaTooNew: a newer Holdfast has migrated it beyond what this one can work with.
        StorageError: it is older than this Holdfast, or this role may not set it up.
    """
    known = list_migrations(book)[-1].version
    version, compatible_from = await read_version(connection, book)
    if version == 0:
        await migrate(connection, where, book)
        return
    if compatible_from > known:
        raise SchemaTooNew(what=f"the schema of {where}", found=version, known=known)
    if version < known:
        raise StorageError(
            path=where,
            detail=f"its schema has version {version} and this Holdfast needs {known}: "
            "`holdfast storage migrate` changes it",
        )


async def migrate(
    connection: psycopg.AsyncConnection[Any], where: str, book: SchemaBook = JOURNAL
) -> list[Migration]:
    """Apply the steps that are missing, all or none; returns them.

    Processes that call this at the same time wait for each other.

    Raises:
        SchemaTooNew: the database is newer than this Holdfast.
        StorageError: this role may not change it.
    """
    steps = list_migrations(book)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            version, compatible_from = await read_version(connection, book)
            if compatible_from > steps[-1].version:
                raise SchemaTooNew(
                    what=f"the schema of {where}", found=version, known=steps[-1].version
                )
            missing = [step for step in steps if step.version > version]
            if not missing:
                return []
            await connection.execute(make_book_sql(book))
            for step in missing:
                # Files of ours, not texts of others.
                await connection.execute(step.sql)
                await connection.execute(
                    f"INSERT INTO {book.schema}.migrations (version, name, compatible_from) "
                    "VALUES (%s, %s, %s)",
                    (step.version, step.name, step.compatible_from),
                )
    except psycopg.errors.InsufficientPrivilege as error:
        raise StorageError(
            path=where,
            detail="its schema has to be made or changed, and this role may not "
            f"({error.diag.message_primary}): `holdfast storage migrate` with the address of its "
            "owner does it",
        ) from error
    return missing
