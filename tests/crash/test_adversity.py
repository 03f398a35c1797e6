"""Full disks, missing rights, locks, damage, newer versions: a clear error, nothing made worse."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import (
    HoldfastError,
    SchemaTooNew,
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageReadOnly,
)
from holdfast.journal import Journal, SqliteStore, verify
from holdfast.journal.stores import _group_commit, _sqlite_file
from holdfast.testing._store_samples import SAMPLE_TABLES, Note, SampleStep

SCENARIOS = Path(__file__).with_name("adversity_scenarios.py")


def second_process(*words: str) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(SCENARIOS), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    news: dict[str, object] = json.loads(ended.stdout)
    return news


def content(place: Path) -> dict[str, str]:
    """Return the digests of everything in a directory that holds anything to keep."""
    return {
        found.name: hashlib.sha256(found.read_bytes()).hexdigest()
        for found in place.iterdir()
        if found.stat().st_size and not found.name.endswith("-shm")
    }


def names_in(place: Path) -> list[str]:
    return sorted(found.name for found in place.iterdir())


async def make(path: Path, count: int = 3) -> None:
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s1", [Note(rank=number) for number in range(count)], must_be_new=True)


async def events_of(path: Path) -> int:
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        assert await verify(journal.store) == []
        events = await journal.read_all("s1")
    assert [event.session_seq for event in events] == list(range(1, len(events) + 1))
    return len(events)


# --- no space -------------------------------------------------------------------------


def test_what_was_acknowledged_before_a_file_limit_is_there(tmp_path: Path) -> None:
    news = second_process("limit_file_sizes", str(tmp_path))
    assert news["refused"]
    assert set(news["codes"]) <= {"storage.failed", "storage.full"}  # type: ignore[call-overload]
    assert asyncio.run(events_of(tmp_path / "journal.db")) == news["told"]


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """Mount a disk of one megabyte; `None` where this process may not mount."""
    place = Path(tempfile.mkdtemp())
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = libc.mount(b"none", str(place).encode(), b"tmpfs", 0, b"size=1m")
    try:
        yield place if mounted == 0 else None
    finally:
        if mounted == 0:
            libc.umount2(str(place).encode(), 2)
        place.rmdir()


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk() as place:
        if place is None:
            # Without the right to mount, SQLite's own limit stands in for the disk's.
            assert asyncio.run(fill_to_a_page_limit(tmp_path / "journal.db")) == ["storage.full"]
            return
        news = second_process("fill_the_disk", str(place))
        assert news["refused"]
        assert news["codes"] == ["storage.full"]
        before = asyncio.run(read_only_count(place))
        assert before == news["told"]
        shutil.copytree(place, tmp_path / "copy")
    assert asyncio.run(events_of(tmp_path / "copy" / "journal.db")) == news["told"]


async def fill_to_a_page_limit(path: Path) -> list[str]:
    await make(path)
    store = SqliteStore(path, projections=SAMPLE_TABLES)
    async with Journal(store) as journal:
        assert store._writer is not None
        store._writer._connection.execute("PRAGMA max_page_count = 60")
        told, codes = 3, set()
        for number in range(60):
            try:
                [event] = await journal.append("s1", [Note(text="x" * 20_000, rank=number)])
                told = event.session_seq
            except HoldfastError as error:
                codes.add(error.code)
    assert await events_of(path) == told
    return sorted(codes)


def test_a_limit_of_pages_is_a_full_disk(tmp_path: Path) -> None:
    assert asyncio.run(fill_to_a_page_limit(tmp_path / "journal.db")) == ["storage.full"]


async def read_only_count(place: Path) -> int:
    """Count what is readable while the disk is still full."""
    with closing(sqlite3.connect(place / "journal.db")) as connection:
        return connection.execute("SELECT count(*) FROM events").fetchone()[0]  # type: ignore[no-any-return]


async def test_no_space_for_a_new_file_is_a_full_disk(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageFull) as caught:
        await SqliteStore(tmp_path / "journal.db").open()
    assert caught.value.code == "storage.full"
    monkeypatch.undo()
    await make(tmp_path / "journal.db")


# --- no rights ------------------------------------------------------------------------


@pytest.mark.parametrize("rights", ["directory", "file", "nothing there"])
def test_without_the_right_to_write_it_says_so(rights: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if rights != "nothing there":
            asyncio.run(make(place / "journal.db"))
            (place / "journal.db").chmod(0o444)
        before = content(place)
        place.chmod(0o777 if rights == "file" else 0o555)
        news = second_process("open_without_rights", str(place))
        place.chmod(0o700)
        assert news["code"] == "storage.read_only"
        assert "AGENT_STATE_DIR" in str(news["hint"])
        after = content(place)
        assert before.items() <= after.items()


async def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StorageReadOnly) as caught:
        await SqliteStore(tmp_path / "taken" / "journal.db").open()
    assert caught.value.code == "storage.read_only"


async def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(StorageReadOnly) as caught:
        await SqliteStore(tmp_path / "journal.db").open()
    assert caught.value.code == "storage.read_only"


# --- locked ---------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(_sqlite_file, "PATIENCE_S", 0.05)
    monkeypatch.setattr(_group_commit, "_PATIENCE_IN_THREAD_MS", 50)


@pytest.mark.usefixtures("impatient")
async def test_a_locked_database_is_read_and_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
            assert len(await journal.read_all("s1")) == 3
            for payloads in ([Note()], [Note(), Note()]):
                with pytest.raises(StorageLocked) as caught:
                    await journal.append("s1", payloads)
                assert caught.value.code == "storage.locked"
            with pytest.raises(StorageLocked):
                await asyncio.to_thread(journal.store.renew, {}, "me", 10)
            with pytest.raises(StorageLocked):
                await journal.rebuild()
            results = await asyncio.gather(
                *[journal.append("s1", [Note()]) for _ in range(3)], return_exceptions=True
            )
            assert [type(result) for result in results] == [StorageLocked] * 3
            other.execute("COMMIT")
            await journal.append("s1", [Note()])
    assert await events_of(path) == 4


@pytest.mark.usefixtures("impatient")
async def test_a_locked_database_cannot_be_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM projections")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageLocked):
            await SqliteStore(path, projections=SAMPLE_TABLES).open()
    assert await events_of(path) == 3


async def test_a_short_lock_is_waited_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.gather(
                journal.append("s1", [Note()]), journal.append("s1", [Note(), Note()])
            )
            for _ in range(3):
                await asyncio.sleep(0)
            other.execute("COMMIT")
        await waiting
    assert await events_of(path) == 6


# --- damaged, foreign, newer ----------------------------------------------------------


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name)")
        connection.commit()


def make_marked(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 77")
        connection.commit()


DAMAGES = {
    "text": lambda path: path.write_text("not a database, but long enough " * 200),
    "random": lambda path: path.write_bytes(os.urandom(20_000)),
    "short": lambda path: path.write_bytes(path.read_bytes()[:90]),
    "header": lambda path: path.write_bytes(b"x" * 100 + path.read_bytes()[100:]),
    "foreign": make_foreign,
    "marked": make_marked,
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, damage) -> None:
    path = tmp_path / "journal.db"
    if damage in ("short", "header"):
        await make(path)
    DAMAGES[damage](path)
    before = content(tmp_path)
    with pytest.raises(StorageDamaged) as caught:
        await SqliteStore(path, projections=SAMPLE_TABLES).open()
    assert caught.value.code == "storage.damaged"
    assert content(tmp_path) == before


async def test_an_emptied_file_with_a_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    source, path = tmp_path / "source.db", tmp_path / "there" / "journal.db"
    async with Journal(SqliteStore(source)) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        path.parent.mkdir()
        path.with_name("journal.db-wal").write_bytes((tmp_path / "source.db-wal").read_bytes())
    for _ in range(2):
        before = content(path.parent)
        with pytest.raises(StorageDamaged):
            await SqliteStore(path).open()
        assert content(path.parent) == before
        path.touch()


async def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    (tmp_path / "journal.db.new").write_text("left behind by somebody who was killed")
    await make(path)
    assert await events_of(path) == 3
    assert names_in(tmp_path) == ["journal.db", "journal.db-state"]


async def test_pages_of_noise_are_named_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path, 500)
    data = bytearray(path.read_bytes())
    for start in range(4096 * 3, len(data), 4096):
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(bytes(data))
    with pytest.raises(StorageDamaged) as caught:
        async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
            await verify(journal.store)
    assert caught.value.code == "storage.damaged"


async def test_a_missing_blob_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path)) as journal:
        await journal.append("s1", [Note(text="x" * 40_000)], must_be_new=True)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DELETE FROM blobs")
        [event] = await journal.read("s1")
        with pytest.raises(StorageDamaged):
            event.decode()
        assert [finding.session_seq for finding in await verify(journal.store)] == [1]


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    with closing(sqlite3.connect(path)) as other:
        version = other.execute("PRAGMA user_version").fetchone()[0]
        other.execute(f"PRAGMA user_version = {version + 1}")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = content(tmp_path)
    with pytest.raises(SchemaTooNew) as caught:
        await SqliteStore(path, projections=SAMPLE_TABLES).open()
    assert caught.value.code == "storage.schema_too_new"
    assert content(tmp_path) == before


async def test_a_newer_schema_is_noticed_even_when_somebody_was_quicker(
    tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    monkeypatch.setattr(_sqlite_file, "_check_ours", lambda path: None)
    with pytest.raises(SchemaTooNew):
        await SqliteStore(path, projections=SAMPLE_TABLES).open()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone()[0] == 99


async def test_a_newer_event_kind_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE events SET version = 9 WHERE seq = 1")
        other.execute("UPDATE events SET kind = 'future.kind' WHERE seq = 2")
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        for event in (await journal.read("s1"))[:2]:
            with pytest.raises(SchemaTooNew):
                event.decode()
        with pytest.raises(SchemaTooNew):
            await journal.rebuild()
        assert (await journal.read("s1"))[2].expect(Note).rank == 2


async def test_a_removed_file_is_not_made_anew_behind_our_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make(path)
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        for name in names_in(tmp_path):
            (tmp_path / name).unlink()
        with pytest.raises(StorageError):
            journal.store.renew({}, "me", 10)
        with pytest.raises(StorageError):
            await journal.store.collect()
        assert names_in(tmp_path) == []


# --- power cuts -----------------------------------------------------------------------


async def test_commits_that_must_reach_the_disk_ask_for_it(tmp_path: Path, monkeypatch) -> None:
    """Power cannot be cut here; that the disk is asked to keep what it got can be seen."""
    seen: list[tuple[str, int]] = []
    plain = _sqlite_file.connect

    def watched(path: Path) -> sqlite3.Connection:
        connection = plain(path)

        def trace(sql: str) -> None:
            if sql.startswith(("COMMIT", "INSERT INTO events")):
                seen.append((sql.split()[0], modes[id(connection)]))
            if sql.startswith("PRAGMA synchronous = "):
                modes[id(connection)] = {"NORMAL": 1, "FULL": 2}[sql.split()[-1]]

        modes[id(connection)] = 1
        connection.set_trace_callback(trace)
        return connection

    modes: dict[int, int] = {}
    monkeypatch.setattr(_sqlite_file, "connect", watched)
    async with Journal(SqliteStore(tmp_path / "process.db")) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        await journal.store.acquire("s1", "me", 60)
        seen.clear()
        await journal.append("s1", [Note()])
        assert {mode for _, mode in seen} == {1}
        seen.clear()
        await journal.append("s1", [SampleStep()], epoch=1)
        assert ("COMMIT", 2) in seen
        seen.clear()
        await journal.redact("s1", [1], reason="asked")
        assert ("COMMIT", 2) in seen
    async with Journal(SqliteStore(tmp_path / "power.db", durability="power")) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        seen.clear()
        await asyncio.gather(*[journal.append("s1", [Note()]) for _ in range(3)])
        await journal.append("s1", [Note()])
        commits = [mode for word, mode in seen if word == "COMMIT"]
        assert commits == [2, 2]
        assert {mode for _, mode in seen} == {2}
