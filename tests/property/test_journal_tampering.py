"""Whatever is changed in the file behind the journal's back, `verify` finds it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from holdfast.errors import NotFound, StorageDamaged
from holdfast.journal import (
    HeadsFile,
    Journal,
    SessionDeleted,
    SqliteStore,
    encode_redacted,
    export_heads,
    parse_heads,
    verify,
)
from holdfast.journal.envelope import GENESIS, hash_chain, make_header
from holdfast.journal.stores._sqlite_chains import compute_place
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import Note, SampleStep

LENGTH = 8
EDITED = {
    "kind": ["testing.other", "", b"x", b"\xff\xfe"],
    "version": [2, -1, "one"],
    "time": [1.5, "now"],
    "run_id": ["forged", b"\x00"],
    "agent_path": ["forged"],
    "correlation_id": ["forged"],
    "causation_id": ["forged"],
    "epoch": [7, "7 of 9"],
    "digest": [b"\x00" * 32, "text", b""],
    "hash": [b"\x00" * 32, "text", b""],
    "payload": [b'{"text":"forged"}', b"", "text", b"\xff"],
    "session_seq": [77, "seventy"],
}
EDITS = [(column, value) for column, values in EDITED.items() for value in values]


async def build(path: Path) -> HeadsFile:
    """Make two sessions with a lease, a large payload, a redaction and a deletion."""
    clock = FakeClock()
    async with Journal(SqliteStore(path, clock=clock), clock=clock) as journal:
        for name in ("s1", "s2", "gone"):
            await journal.append(name, [Note(text=name)], must_be_new=True)
            head = await journal.store.acquire(name, "me", 10)
            assert head is not None
            await journal.append(name, [Note(text="x" * 40_000), Note(text="second")], epoch=1)
            await journal.append(name, [SampleStep(number=1), Note(text="third")], epoch=1)
            await journal.redact(name, [3], reason="asked")
            await journal.append(name, [SampleStep(number=2), Note(text="last")], epoch=1)
        heads = parse_heads(await export_heads(journal.store, clock))
        gone = heads.heads["gone"]
        note = SessionDeleted(session_id="gone", last=gone.session_seq, hash=gone.hash)
        await journal.store.delete("gone", journal.draft(note), 1)
        assert await verify(journal.store, heads=heads) == []
        return heads


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> tuple[Path, HeadsFile]:
    path = tmp_path_factory.mktemp("original") / "journal.db"
    return path, asyncio.run(build(path))


def findings(path: Path, heads: HeadsFile | None = None) -> dict[str, list[int]]:
    """Return what verify finds: session to numbers; a file that cannot be read counts as well."""

    async def work() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        async with Journal(SqliteStore(path)) as journal:
            for finding in await verify(journal.store, heads=heads):
                found.setdefault(finding.session_id, []).append(finding.session_seq)
        return found

    return asyncio.run(work())


def changed(original: Path, place: Path, *statements: tuple[str, tuple[object, ...]]) -> Path:
    """Copy the file and change the copy with plain SQL."""
    path = place / "changed.db"
    shutil.copy(original, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql, values in statements:
            assert connection.execute(sql, values).rowcount != 0
    return path


SESSION_1 = "stream = (SELECT stream FROM streams WHERE session_id = 's1')"


@pytest.mark.parametrize(("column", "value"), EDITS)
def test_an_edited_column_is_found(original, tmp_path, column, value) -> None:
    for number in (1, 4, LENGTH):
        sql = f"UPDATE events SET {column} = ? WHERE {SESSION_1} AND session_seq = ?"
        path = changed(original[0], tmp_path, (sql, (value, number)))
        try:
            assert set(findings(path)) == {"s1"}
        except StorageDamaged:
            assert value == b"\xff\xfe"


@given(
    number=st.integers(1, LENGTH),
    position=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    column=st.sampled_from(["payload", "digest", "hash"]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(number=2, position=20_000, bit=3, column="payload")
def test_a_single_flipped_bit_is_found(original, tmp_path, number, position, bit, column) -> None:
    path = tmp_path / "flipped.db"
    shutil.copy(original[0], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        sql = f"SELECT seq, {column}, digest FROM events WHERE {SESSION_1} AND session_seq = ?"
        seq, data, digest = connection.execute(sql, (number,)).fetchone()
        table = f"UPDATE events SET {column} = ? WHERE seq = ?"
        key: object = seq
        if data is None:
            data = connection.execute("SELECT data FROM blobs WHERE digest = ?", (digest,))
            data = data.fetchone()[0]
            table, key = "UPDATE blobs SET data = ? WHERE digest = ?", digest
        flipped = bytearray(data)
        flipped[position % len(flipped)] ^= 1 << bit
        connection.execute(table, (bytes(flipped), key))
    assert "s1" in findings(path)


@given(numbers=st.sets(st.integers(1, LENGTH), min_size=1, max_size=LENGTH - 1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_removed_events_are_found(original, tmp_path, numbers) -> None:
    listed = ", ".join(str(number) for number in numbers)
    sql = f"DELETE FROM events WHERE {SESSION_1} AND session_seq IN ({listed})"
    path = changed(original[0], tmp_path, (sql, ()))
    is_cut_only = numbers == set(range(min(numbers), LENGTH + 1))
    # Event 3 is redacted and 6 says so: a cut between them shows without help from outside.
    shows = not is_cut_only or 3 < min(numbers) <= 6
    assert ("s1" in findings(path)) == shows
    assert "s1" in findings(path, original[1])


@given(order=st.permutations(range(1, LENGTH + 1)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_another_order_is_found(original, tmp_path, order) -> None:
    moves = [
        (
            f"UPDATE events SET session_seq = ? WHERE {SESSION_1} AND session_seq = ?",
            (-new, old),
        )
        for old, new in enumerate(order, 1)
    ]
    restore = (f"UPDATE events SET session_seq = -session_seq WHERE {SESSION_1}", ())
    path = changed(original[0], tmp_path, *moves, restore)
    is_same = list(order) == list(range(1, LENGTH + 1))
    assert (findings(path) == {}) == is_same


def test_a_rewritten_chain_is_found_with_exported_heads(original, tmp_path) -> None:
    path = tmp_path / "rewritten.db"
    shutil.copy(original[0], path)

    async def rewrite() -> None:
        async with Journal(SqliteStore(path)) as journal:
            events = await journal.read_all("s1")
        previous = GENESIS
        with closing(sqlite3.connect(path)) as connection, connection:
            for event in events:
                time = event.time + 1
                header = tuple(time if item == event.time else item for item in make_header(event))
                previous = hash_chain(previous, header)
                connection.execute(
                    "UPDATE events SET time = ?, hash = ?, place = ? WHERE seq = ?",
                    (time, bytes.fromhex(previous), compute_place(previous, event.seq), event.seq),
                )

    asyncio.run(rewrite())
    assert findings(path) == {}
    assert findings(path, original[1]) == {"s1": [LENGTH]}


def test_a_removed_session_is_found_with_exported_heads(original, tmp_path) -> None:
    path = changed(
        original[0],
        tmp_path,
        (f"DELETE FROM events WHERE {SESSION_1}", ()),
        ("DELETE FROM streams WHERE session_id = 's1'", ()),
    )
    assert findings(path) == {}
    assert findings(path, original[1]) == {"s1": [0]}


def test_an_emptied_session_is_found_with_exported_heads(original, tmp_path) -> None:
    path = changed(original[0], tmp_path, (f"DELETE FROM events WHERE {SESSION_1}", ()))
    # Its row still counts events that the log lacks, which shows without help from outside.
    assert findings(path) == {"s1": [0]}
    assert findings(path, original[1]) == {"s1": [0, LENGTH]}


def test_a_removed_deletion_note_is_found(original, tmp_path) -> None:
    system = "stream = (SELECT stream FROM streams WHERE session_id = 'system')"
    path = changed(original[0], tmp_path, (f"DELETE FROM events WHERE {system}", ()))
    assert findings(path, original[1]) == {"gone": [0], "system": [0]}
    edited = (f"UPDATE events SET payload = ? WHERE {system}", (b"{}",))
    path = changed(original[0], tmp_path, edited)
    assert findings(path, original[1]) == {"gone": [0], "system": [1]}


def test_a_payload_removed_without_a_record_is_found(original, tmp_path) -> None:
    bare = encode_redacted(Note(text="[removed]"))
    sql = f"UPDATE events SET placement = 2, payload = ? WHERE {SESSION_1} AND session_seq = 1"
    path = changed(original[0], tmp_path, (sql, (bare,)))
    assert findings(path) == {"s1": [1]}


@pytest.mark.parametrize(
    "content", [encode_redacted(Note(text="forged")), b"{}", b"\xff", encode_redacted(SampleStep())]
)
def test_content_put_in_the_place_of_a_redaction_is_found(original, tmp_path, content) -> None:
    sql = f"UPDATE events SET payload = ? WHERE {SESSION_1} AND session_seq = 3"
    path = changed(original[0], tmp_path, (sql, (content,)))
    assert findings(path) == {"s1": [3]}


def test_a_damaged_redaction_note_is_a_finding_and_not_an_end(original, tmp_path) -> None:
    sql = f"UPDATE events SET payload = ? WHERE {SESSION_1} AND session_seq = 6"
    path = changed(original[0], tmp_path, (sql, (b"\xff",)))
    assert findings(path) == {"s1": [6, 3]}


def test_a_forged_redaction_note_is_a_finding_and_not_an_end(original, tmp_path) -> None:
    digest = hashlib.sha256(b"{}").digest()
    sql = f"UPDATE events SET payload = ?, digest = ? WHERE {SESSION_1} AND session_seq = 6"
    path = changed(original[0], tmp_path, (sql, (b"{}", digest)))
    assert findings(path) == {"s1": [6, 3]}


def test_a_missing_blob_is_found(original, tmp_path) -> None:
    path = changed(original[0], tmp_path, ("DELETE FROM blobs", ()))
    assert findings(path) == {"s1": [2], "s2": [2]}


def test_one_session_is_checked_alone(original) -> None:
    async def work() -> None:
        async with Journal(SqliteStore(original[0])) as journal:
            told: list[tuple[str, int]] = []
            check = partial(verify, journal.store, progress=lambda *news: told.append(news))
            assert await check(session_id="s1", heads=original[1]) == []
            assert await check(session_id="gone", heads=original[1]) == []
            assert told == [("s1", LENGTH)]
            with pytest.raises(NotFound):
                await check(session_id="gone")
            with pytest.raises(NotFound):
                await check(session_id="never", heads=original[1])

    asyncio.run(work())
