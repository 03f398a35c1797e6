"""The audit works on a copy of the records that lies where nothing can be written."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.errors import NotFound, SchemaTooNew, StorageDamaged, StorageReadOnly


def unwritable(folder: Path) -> None:
    """Leave SQLite no place for its memory beside the file, as a read-only mount does."""
    (folder / "journal.db-shm").symlink_to("nowhere/at/all")


@pytest.fixture
async def session_id(tmp_path: Path) -> str:
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        session = await client.create_session(title="kept")
        for number in range(3):
            await client.update_session(session.id, title=f"title {number}")
    return session.id


@pytest.fixture
async def state(tmp_path: Path, session_id: str) -> Path:
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    unwritable(tmp_path / "copy")
    return tmp_path / "copy"


def tamper(state: Path, statement: str) -> None:
    (state / "journal.db-shm").unlink()
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute(statement)
        connection.commit()
    assert not (state / "journal.db-wal").exists()
    unwritable(state)


async def test_sound_chains_are_checked_and_the_file_stays(state: Path, session_id: str) -> None:
    before = (state / "journal.db").read_bytes()
    counted: list[tuple[str, int]] = []
    client = AsyncClient(base_dir=state)
    assert (
        await client.audit.verify(progress=lambda name, events: counted.append((name, events)))
        == []
    )
    assert (session_id, 4) in counted
    assert await client.audit.verify(session_id=session_id) == []
    with pytest.raises(NotFound):
        await client.audit.verify(session_id="ses_none")
    with pytest.raises(StorageReadOnly):
        await client.create_session(title="no")
    await client.close()
    assert (state / "journal.db").read_bytes() == before


async def test_what_was_changed_is_found_as_elsewhere(
    tmp_path: Path, state: Path, session_id: str
) -> None:
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        heads = await client.audit.heads()
    at_rest = AsyncClient(base_dir=state)
    assert await at_rest.audit.verify(heads=heads) == []
    assert (await at_rest.audit.heads()).count(session_id.encode()) == 1
    tamper(state, "DELETE FROM events WHERE session_seq = 2")
    [found] = await at_rest.audit.verify()
    assert (found.session_id, "missing" in found.problem) == (session_id, True)
    tamper(state, "DELETE FROM events WHERE session_seq > 1")
    assert await at_rest.audit.verify() == []
    [cut] = await at_rest.audit.verify(heads=heads)
    assert "the chain was cut" in cut.problem
    await at_rest.close()


async def test_a_log_that_cannot_be_read_is_not_left_out(state: Path) -> None:
    (state / "journal.db-wal").write_bytes(b"more")
    with pytest.raises(StorageReadOnly, match="its log"):
        await AsyncClient(base_dir=state).audit.verify()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("PRAGMA user_version = 1", StorageReadOnly),
        ("PRAGMA user_version = 1000", SchemaTooNew),
        ("PRAGMA application_id = 7", StorageDamaged),
    ],
)
async def test_a_file_that_is_not_as_ours_is_now_is_refused(
    state: Path, statement: str, error: type[Exception]
) -> None:
    tamper(state, statement)
    with pytest.raises(error):
        await AsyncClient(base_dir=state).audit.verify()


async def test_a_file_that_was_cut_off_is_called_damaged(state: Path) -> None:
    whole = (state / "journal.db").read_bytes()
    (state / "journal.db").write_bytes(whole[:4096])
    with pytest.raises(StorageDamaged):
        await AsyncClient(base_dir=state).audit.verify()


async def test_where_there_are_no_records_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageReadOnly):
        await AsyncClient(base_dir=tmp_path / "file" / "below").audit.verify()
