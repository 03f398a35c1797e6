"""The SQLite store: what happens beside the straight way."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import (
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageReadOnly,
    UsageError,
)
from holdfast.journal import Journal, MemoryStore, RowQuery, SqliteStore, verify
from holdfast.journal.stores import _group_commit, _sqlite_file, _sqlite_guard
from holdfast.journal.stores import sqlite as _sqlite
from holdfast.journal.stores._sqlite_chains import KnownChains
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS, Mark, Note, SampleStep, Topics


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path):
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as opened:
        await opened.append("s1", [Note()], must_be_new=True)
        await opened.append("s1", [Mark()])
        yield opened


def writer_of(journal: Journal) -> sqlite3.Connection:
    assert isinstance(journal.store, SqliteStore) and journal.store._writer is not None
    return journal.store._writer._connection


async def test_a_cancelled_append_that_had_begun_may_be_stored_but_never_half(journal) -> None:
    head = await journal.store.acquire("s1", "me", 60)
    assert head is not None
    task = asyncio.create_task(journal.append("s1", [SampleStep(), SampleStep()], epoch=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await journal.append("s1", [Mark()])
    assert [event.session_seq for event in await journal.read("s1")] in ([1, 2, 3], [1, 2, 3, 4, 5])
    assert await verify(journal.store) == []


async def test_who_is_cancelled_while_a_thread_commits_hears_of_it_when_that_has_ended(
    journal, path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(journal.append("s1", [Mark()]))
        for _ in range(3):  # on the loop, in a group on the loop, in a thread
            await asyncio.sleep(0)
        assert journal.store._writer.idle is None
        task.cancel()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        other.execute("COMMIT")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await journal.read("s1")) == 3


async def test_an_append_cancelled_before_its_commit_leaves_no_trace(journal) -> None:
    tasks = [asyncio.create_task(journal.append("s1", [Note(rank=n)])) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    ranks = [event.expect(Note).rank for event in await journal.read("s1", after=2)]
    assert ranks == [0, 2]


async def test_a_group_of_cancelled_appends_is_not_even_begun(journal) -> None:
    tasks = [asyncio.create_task(journal.append("s1", [Note(rank=n)])) for n in range(3)]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(await journal.read("s1")) == 3


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest(journal) -> None:
    await journal.store.acquire("s1", "me", 60)
    accepted = asyncio.create_task(journal.append("s1", [SampleStep()], epoch=1))
    await asyncio.sleep(0)
    closing_store = asyncio.create_task(journal.store.close())
    await asyncio.sleep(0)
    with pytest.raises(StorageError):
        await journal.append("s1", [Note()])
    [event] = await accepted
    await closing_store
    assert event.session_seq == 3
    await journal.store.open()
    assert len(await journal.read("s1")) == 3


async def test_a_connection_that_may_not_write_says_so(journal) -> None:
    writer_of(journal).execute("PRAGMA query_only = ON")
    for payloads in ([Mark()], [Note()], [Note(), Note()]):
        with pytest.raises(StorageReadOnly) as caught:
            await journal.append("s1", payloads)
        assert caught.value.code == "storage.read_only"
    results = await asyncio.gather(
        *[journal.append("s1", [Note()]) for _ in range(3)], return_exceptions=True
    )
    assert [type(result) for result in results] == [StorageReadOnly] * 3
    writer_of(journal).execute("PRAGMA query_only = OFF")
    await journal.append("s1", [Mark()])
    assert len(await journal.read("s1")) == 3


async def test_the_short_way_gives_way_to_a_lock(journal, path, monkeypatch) -> None:
    monkeypatch.setattr(_group_commit, "_PATIENCE_IN_THREAD_MS", 30)
    await journal.append("s1", [Mark()])  # who has written alone is served at once
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageLocked):
            await journal.append("s1", [Mark()])
        other.execute("COMMIT")
    [event] = await journal.append("s1", [Mark()])
    assert event.session_seq == 4


async def test_a_lost_table_is_an_error_of_the_store(journal, path) -> None:
    await journal.append("s1", [Mark()])  # who has written alone is served at once
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE events RENAME TO elsewhere")
    for work in (
        journal.read_last_seq(),
        journal.store.heads(),
        journal.store.changed(99, 1),
        journal.store.collect(),
        journal.append("s1", [Mark()]),
        journal.append("s1", [Note()]),
    ):
        with pytest.raises(StorageError) as caught:
            await work
        assert caught.value.code == "storage.failed"


async def test_a_group_that_one_of_them_breaks_is_repeated_one_by_one(
    journal, path, monkeypatch
) -> None:
    """Also when the database is locked before the second try."""
    monkeypatch.setattr(_group_commit, "_PATIENCE_ON_LOOP_MS", 1)
    other = sqlite3.connect(path, isolation_level=None)
    forget = journal.store._chains.forget

    def lock_and_forget() -> None:
        forget()
        other.execute("BEGIN IMMEDIATE")

    journal.store._writer._on_rollback = lock_and_forget
    results = await asyncio.gather(
        journal.append("s1", [Note()]),
        journal.append("s1", [Note(rank=1)]),
        journal.append("s1", [Note(), Note(text="break")]),
        return_exceptions=True,
    )
    other.close()
    journal.store._writer._on_rollback = forget
    assert [type(result) for result in results[1:]] == [StorageLocked] * 2
    assert await verify(journal.store) == []


async def test_rows_outlive_a_rebuild_that_fails(tmp_path) -> None:
    class Fragile(Topics):
        name = "testing_fragile"
        is_broken = False

        def apply(self, row, event, payload):
            if self.is_broken:
                raise UsageError(detail="broken")
            return super().apply(row, event, payload)

    for store_of in (
        lambda tables: MemoryStore(projections=tables),
        lambda tables: SqliteStore(tmp_path / "fragile.db", projections=tables),
    ):
        table = Fragile()
        async with Journal(store_of([table])) as journal:
            await journal.append("s1", [Note()], must_be_new=True)
            table.is_broken = True
            with pytest.raises(UsageError):
                await journal.rebuild()
            assert len(await journal.rows(RowQuery(projection=table))) == 1


async def test_others_who_write_elsewhere_do_not_confuse_the_short_way(journal, path) -> None:
    await journal.append("s2", [Note()], must_be_new=True)
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as other:
        for number in range(3):
            await journal.append("s1", [Mark(number=number)])
            await other.append("s2", [Mark(number=number)])
    assert await journal.read_last_seq() == 9
    assert await verify(journal.store) == []


async def test_a_head_is_that_of_the_log_whoever_moved_it(journal, path) -> None:
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as other:
        [event] = await other.append("s1", [Mark()])
        head = await journal.head("s1")
        assert head is not None
        assert (head.session_seq, head.hash) == (event.session_seq, event.hash)
        assert await other.head("s1") == head
        assert await other.head("missing") is None


async def test_many_sessions_are_remembered_up_to_a_number(journal, monkeypatch) -> None:
    monkeypatch.setattr(KnownChains, "_MOST", 3)
    for number in range(9):
        await journal.append(f"many{number}", [Note()], must_be_new=True)
        await journal.append(f"many{number}", [Mark()])
    for number in range(9):
        await journal.append(f"many{number}", [Mark()])
        assert len(await journal.read(f"many{number}")) == 3


async def test_two_who_open_at_once_build_tables_once(path, monkeypatch) -> None:
    await (await Journal(SqliteStore(path)).open()).close()
    plain = _sqlite_file.open_exclusively
    first = SqliteStore(path, projections=SAMPLE_TABLES)

    @contextmanager
    def late(place: Path):
        monkeypatch.setattr(_sqlite_file, "open_exclusively", plain)
        first._prepare()
        with plain(place) as connection:
            yield connection

    monkeypatch.setattr(_sqlite_file, "open_exclusively", late)
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        assert await journal.row(TOPICS, "s1", "a") is not None


async def test_whoever_comes_second_finds_the_file_made(path, monkeypatch) -> None:
    plain = fcntl.flock
    came: list[int] = []

    def somebody_was_quicker(place: int, operation: int) -> None:
        plain(place, operation)
        if not came:
            came.append(place)
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", somebody_was_quicker)
    async with Journal(SqliteStore(path)) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
    before = path.read_bytes()
    _sqlite_file._create(path)
    assert path.read_bytes() == before


async def test_a_file_that_cannot_be_begun_is_named(path, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", broken)
    with pytest.raises(StorageError) as caught:
        await SqliteStore(path).open()
    assert caught.value.code == "storage.failed"
    monkeypatch.undo()
    await (await Journal(SqliteStore(path)).open()).close()


def test_space_is_given_back_by_sound_files_only(path) -> None:
    path.write_text("text " * 1000)
    with pytest.raises(StorageDamaged):
        _sqlite_file.give_back_space(path)


def test_reading_that_fails_is_a_storage_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    _sqlite_file._create(path)
    with pytest.raises(StorageError), _sqlite_file.open_for_reading(path) as connection:
        connection.execute("SELECT nothing FROM nowhere")


async def test_a_chain_whose_end_cannot_be_read_is_a_storage_error(journal, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(KnownChains, "head", fail)
    with pytest.raises(StorageError) as caught:
        await journal.head("s1")
    assert caught.value.code == "storage.failed"


async def test_a_commit_that_fails_unforeseen_tells_whoever_waits(journal, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(journal.store._writer, "_transact", fail)
        with pytest.raises(ZeroDivisionError):
            await journal.append("s1", [Mark()], is_synced=True)
    await journal.append("s1", [Mark()], is_synced=True)
    assert [event.session_seq for event in await journal.read("s1")] == [1, 2, 3]


async def test_a_store_that_is_not_open_gives_no_lease(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        await SqliteStore(tmp_path / "journal.db").acquire("s1", "me", 60)
    assert caught.value.code == "storage.failed"


async def test_a_full_disk_says_so_and_what_fits_is_stored_after(journal) -> None:
    writer = writer_of(journal)
    [(pages,)] = writer.execute("PRAGMA page_count").fetchall()
    writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    with pytest.raises(StorageFull) as caught:
        await journal.append("s1", [Note(text="x" * 50_000)])
    assert caught.value.code == "storage.full"
    writer.execute("PRAGMA max_page_count = 1000000").fetchall()
    await journal.append("s1", [Note(text="x" * 50_000)])
    assert [event.session_seq for event in await journal.read("s1")] == [1, 2, 3]
    assert await verify(journal.store) == []


async def test_a_schema_whose_names_are_no_text_is_damage(path) -> None:
    async with Journal(SqliteStore(path)) as opened:
        await opened.append("s1", [Note()], must_be_new=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET name = CAST(X'ff' AS TEXT), sql = 'CREATE nothing' "
            "WHERE name = 'events_by_session'"
        )
    before = path.read_bytes()
    with pytest.raises(StorageDamaged) as caught:
        await SqliteStore(path).open()
    assert "no text" in str(caught.value)
    assert path.read_bytes() == before


async def test_writes_that_are_all_cancelled_begin_no_transaction(journal) -> None:
    begun: list[str] = []
    writer_of(journal).set_trace_callback(begun.append)
    tasks = [
        asyncio.create_task(journal.store._writer.run(lambda connection: None)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    writer_of(journal).set_trace_callback(None)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    assert begun == []
    await journal.append("s1", [Mark()])
    assert len(await journal.read("s1")) == 3


async def test_a_directory_in_the_place_of_the_file_is_named(path) -> None:
    path.mkdir()
    with pytest.raises(StorageReadOnly) as caught:
        await SqliteStore(path).open()
    assert "directory" in str(caught.value)


async def test_an_empty_file_whose_log_is_not_is_left_as_it_is(path) -> None:
    log = path.with_name("journal.db-wal")
    path.touch()
    log.write_bytes(b"events that are nowhere else")
    with pytest.raises(StorageDamaged):
        await SqliteStore(path).open()
    assert (path.read_bytes(), log.read_bytes()) == (b"", b"events that are nowhere else")


async def test_a_disk_without_room_for_a_file_says_so(path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(StorageFull):
            await SqliteStore(path).open()
    await (await Journal(SqliteStore(path)).open()).close()


async def test_a_store_that_cannot_connect_leaves_no_lock_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Journal(SqliteStore(path)):
        pass
    connect, tries = _sqlite_file.connect, []
    for failing in (1, 2):  # of the writer, then of the reader
        store = SqliteStore(path)
        prepare, left = store._prepare, [failing]

        def connect_late(place: Path, left: list[int] = left) -> sqlite3.Connection:
            left[0] -= 1
            if left[0] == 0:
                raise StorageError(path=str(place), detail="no descriptor is left")
            return connect(place)

        def prepare_first(prepare=prepare, connect_late=connect_late) -> None:
            prepare()
            monkeypatch.setattr(_sqlite_file, "connect", connect_late)

        monkeypatch.setattr(store, "_prepare", prepare_first)
        with pytest.raises(StorageError):
            await store.open()
        monkeypatch.undo()
        with _sqlite_guard.FileGuard(path).alone() as is_alone:
            tries.append(is_alone)
        await store.open()  # and it can be tried again
        await store.close()
    assert tries == [True, True]


async def test_a_store_is_closed_in_a_forked_child_and_goes_on_in_its_parent(
    journal: Journal, path: Path
) -> None:
    kept = len(_sqlite._left_behind)
    journal.store.leave_to_parent()  # what a forked child does first
    with pytest.raises(StorageError):
        await journal.append("s1", [Mark()])
    with pytest.raises(StorageError):
        await journal.read("s1")
    [(writer, reader)] = _sqlite._left_behind[kept:]
    journal.store._writer, journal.store._reader = writer, reader
    del _sqlite._left_behind[kept:]
    await journal.append("s1", [Mark()])
    never_opened = SqliteStore(path)
    never_opened.leave_to_parent()
    _sqlite_file._forget_lock()
    assert len(_sqlite._left_behind) == kept
