"""Journals of every released schema open, verify and read, forever."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.journal import Journal, RowQuery, SqliteStore, verify
from holdfast.journal.events import SessionDeleted
from holdfast.journal.stores._sqlite_file import _list_migrations
from holdfast.sessions import SESSION_PROJECTIONS, SESSIONS
from holdfast.sessions import events as facts

GOLDEN = sorted((Path(__file__).parent / "golden").glob("journal_v*.sql"))
DIGESTS = {
    "journal_v1.sql": "f784e3bcdbfbb4ebca54ca3bc351f2045d1a9caa59dc5451c8522f563db70cc9",
    "journal_v2.sql": "adcc9e699ceab8d7843baf9cbb125a39abbb1facfe3b61fb7161ee3928355d07",
    "journal_v3.sql": "5f42168935e11274979427486ca5d7193d4ecb2c8c062f9f56d6cf75c1662de7",
    "journal_v4.sql": "bc9443091d8bf0d7d2b15f3c70148b849f3e2ef11c254e779fc3549f433c5387",
}


def test_every_schema_has_its_golden_journal_and_none_was_changed() -> None:
    assert len(GOLDEN) == len(_list_migrations())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in GOLDEN}
    assert found == DIGESTS


def loaded(golden: Path, path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(golden.read_text(encoding="utf-8"))
    return path


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
async def test_a_golden_journal_opens_verifies_and_reads(golden: Path, tmp_path: Path) -> None:
    path = loaded(golden, tmp_path / "journal.db")
    store = SqliteStore(path, projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        assert await verify(store) == []
        events = await journal.read_all("ses_kept")
        assert events[0].expect(facts.SessionCreated).title == "Größe ses_kept"
        texts = [event.expect(facts.MessageCreated).message.text for event in events[1:3]]
        assert texts == ["hello", "é" * 20_000]
        assert events[3].is_redacted
        assert "secret" not in events[3].expect(facts.MessageCreated).message.text
        [deleted] = await journal.read("system")
        assert deleted.expect(SessionDeleted).session_id == "ses_gone"
        [row] = await journal.rows(RowQuery(projection=SESSIONS))
        assert row.row.message_count == 3
        # It is alive: it gives back its lease, takes another and grows.
        await store.release("ses_kept", 1)
        head = await store.acquire("ses_kept", "me", 10)
        assert head is not None and head.epoch == 2
        await journal.append("ses_kept", [facts.SessionStateChanged(state="suspended")], epoch=2)
        assert await verify(store) == []
