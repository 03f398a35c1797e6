"""Tables of other rooms lie where the journal's do, and are opened, granted and erased alike."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from postgres_server import APP, OWNER, PostgresServer

from holdfast.errors import StorageDamaged, StorageError, StorageUnavailable, UsageError
from holdfast.journal import (
    PostgresPlace,
    SchemaBook,
    SqlitePlace,
    backup_files,
    erase_tenant,
    grant_role,
)
from holdfast.memory.stores.postgres import BOOK


def place_of(server: PostgresServer, name: str, book: SchemaBook = BOOK) -> PostgresPlace:
    return PostgresPlace(urlsplit(server.url(name, holdfast_tenant="acme")), book)


async def test_nothing_is_granted_or_erased_where_nothing_is_set_up(
    postgres: PostgresServer,
) -> None:
    place = place_of(postgres, postgres.make_database())
    await place.grant(APP)
    await place.erase()
    assert (await place.migrate(is_dry=True)).version == 0


async def test_what_the_server_refuses_is_told_in_our_words(postgres: PostgresServer) -> None:
    name = postgres.make_database()
    place = place_of(postgres, name)
    await place.migrate(is_dry=False)
    with pytest.raises(StorageError):
        await place.grant("nobody_of_that_name")
    broken = SchemaBook(schema=BOOK.schema, package=BOOK.package, erasing=("DELETE FROM nothing",))
    with pytest.raises(StorageError):
        await place_of(postgres, name, broken).erase()
    postgres.execute(f"ALTER SCHEMA {BOOK.schema} OWNER TO postgres", name)
    postgres.execute(f"REVOKE ALL ON SCHEMA {BOOK.schema} FROM {OWNER}", name)
    with pytest.raises(StorageError):
        await place.migrate(is_dry=False)
    nowhere = PostgresPlace(urlsplit("postgresql://a@127.0.0.1:1/b"), BOOK)
    with pytest.raises(StorageUnavailable):
        await nowhere.migrate(is_dry=True)
    assert not place.is_open and not nowhere.is_open


async def test_a_place_is_opened_once_and_closed_when_it_cannot_be_used(
    postgres: PostgresServer,
) -> None:
    name = postgres.make_database()
    place = place_of(postgres, name)
    await place.open()
    await place.open()
    await place.close()
    renamed = f"ALTER TABLE {BOOK.schema}.migrations RENAME COLUMN version TO other"
    postgres.execute(renamed, name)
    with pytest.raises(StorageError):
        await place.open()
    assert not place.is_open


async def test_roles_are_granted_nothing_where_nobody_answers() -> None:
    with pytest.raises(StorageUnavailable):
        await grant_role("postgresql://a@127.0.0.1:1/b", APP, "records")


def test_a_place_without_a_file_is_the_memory_of_this_process(tmp_path: Path) -> None:
    nowhere = SqlitePlace(None)
    assert isinstance(nowhere.explain(sqlite3.OperationalError("disk I/O error")), StorageError)
    assert nowhere.connect().execute("SELECT 1").fetchone() == (1,)
    assert nowhere.measure_bytes() == 0
    with pytest.raises(StorageError):
        SqlitePlace(tmp_path / "not-there.db").connect()


def test_what_is_no_database_is_not_backed_up_as_one(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "x.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(StorageDamaged):
        backup_files("", tmp_path / "state", tmp_path / "copy", lambda done, total: None)


async def test_a_store_that_keeps_no_tenants_apart_has_none_to_erase() -> None:
    await erase_tenant("memory://", "acme")


def test_a_pooler_is_there_or_not(postgres: PostgresServer) -> None:
    with pytest.raises(UsageError):
        PostgresPlace(urlsplit("postgresql://a@b/c?holdfast_pooler=maybe"), BOOK)
