"""A damaged file is mended: what proves to be unchanged is kept, and the rest is named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Client
from holdfast.errors import StorageDamaged, StorageLocked, UsageError
from holdfast.journal import Journal, MemoryStore, SqliteStore, verify
from holdfast.journal.store import MendReport
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import SAMPLE_TABLES, Note

OF_S1 = "stream = (SELECT stream FROM streams WHERE session_id = 's1')"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A closed file with two sessions of four events each."""
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        for name in ("s1", "s2"):
            notes = [Note(topic=name, rank=rank) for rank in range(4)]
            await journal.append(name, notes, must_be_new=True)
        await journal.store.acquire("s1", "gone", 600)
    return path


def forge(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement


async def mend(path: Path) -> MendReport:
    """Mend a closed file; what is left must be sound, and can be written on."""
    before = path.read_bytes()
    store = SqliteStore(path, projections=SAMPLE_TABLES, clock=FakeClock())
    report = await store.mend()
    assert Path(report.aside).read_bytes() == before
    assert [entry.name for entry in path.parent.glob(".mending-*")] == []
    async with Journal(store) as journal:
        assert await verify(store) == []
        stats = await store.stats()
        assert (stats["events"], stats["sessions"]) == (report.events, report.sessions)
        for head in await store.heads():
            taken = await store.acquire(head.session_id, "me", 60)
            assert taken is not None and taken.epoch > head.epoch
            await journal.append(head.session_id, [Note()])
        assert await verify(store) == []
    return report


async def test_a_sound_file_loses_nothing(path: Path) -> None:
    report = await mend(path)
    assert (report.events, report.sessions, report.lost) == (8, 2, ())


async def test_the_log_beside_a_file_is_mended_with_it(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s2", [Note(text="only in the log")])
        for end in ("", "-wal"):
            (copy.parent / f"journal.db{end}").write_bytes(
                path.with_name(f"journal.db{end}").read_bytes()
            )
    assert copy.with_name("journal.db-wal").stat().st_size > 0
    report = await mend(copy)
    assert (report.events, report.lost) == (9, ())
    assert Path(f"{report.aside}-wal").exists()


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE events SET payload = X'7b7d' WHERE {OF_S1} AND session_seq = 3",
        f"UPDATE events SET run_id = 'forged' WHERE {OF_S1} AND session_seq = 3",
        f"UPDATE events SET kind = X'ff' WHERE {OF_S1} AND session_seq = 3",
        f"UPDATE events SET kind = CAST(X'ff' AS TEXT) WHERE {OF_S1} AND session_seq = 3",
        f"UPDATE events SET time = 9e999 WHERE {OF_S1} AND session_seq = 3",
        f"UPDATE events SET version = 'two' WHERE {OF_S1} AND session_seq = 3",
        f"DELETE FROM events WHERE {OF_S1} AND session_seq = 3",
    ],
    ids=["payload", "header", "bytes", "no text", "infinite", "no number", "gap"],
)
async def test_a_session_is_kept_up_to_the_first_event_that_does_not_fit(
    path: Path, statement: str
) -> None:
    forge(path, statement)
    report = await mend(path)
    [lost] = report.lost
    assert (report.events, lost.session_id, lost.session_seq) == (6, "s1", 2)


async def test_a_session_of_which_nothing_fits_is_named(path: Path) -> None:
    forge(path, f"UPDATE events SET time = time + 1 WHERE {OF_S1} AND session_seq = 1")
    report = await mend(path)
    [lost] = report.lost
    assert (report.events, report.sessions) == (4, 1)
    assert (lost.session_id, lost.problem) == ("s1", "the session is lost")


async def test_events_whose_session_has_no_name_left_are_counted(path: Path) -> None:
    forge(path, "DELETE FROM streams WHERE session_id = 's1'")
    report = await mend(path)
    [lost] = report.lost
    assert (report.events, lost.session_id) == (4, "system")
    assert lost.problem.startswith("4 events")


def test_a_session_finds_its_name_in_the_table_of_sessions(tmp_path: Path) -> None:
    with Client(base_dir=tmp_path) as client:
        session = client.sessions.create("kept")
    forge(tmp_path / "journal.db", f"DELETE FROM streams WHERE session_id = '{session.id}'")
    with Client(base_dir=tmp_path) as client:
        assert client.storage.mend().lost == ()
    with Client(base_dir=tmp_path) as client:
        assert client.sessions.get(session.id).title == "kept"
        assert client.audit.verify() == []


async def test_a_file_of_which_nothing_can_be_read_stays_as_it_is(path: Path) -> None:
    noise = b"no database at all " * 500
    path.write_bytes(noise)
    with pytest.raises(StorageDamaged) as caught:
        await SqliteStore(path).mend()
    assert "no event" in str(caught.value)
    assert path.read_bytes() == noise
    assert list(path.parent.glob("*.mended*")) == []


async def test_a_file_that_is_open_is_not_mended(path: Path) -> None:
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        for store in (journal.store, SqliteStore(path)):
            with pytest.raises(StorageLocked):
                await store.mend()
        assert len(await journal.read("s1")) == 4


async def test_what_lives_in_memory_cannot_be_mended() -> None:
    with pytest.raises(UsageError):
        await MemoryStore().mend()
