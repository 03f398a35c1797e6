"""The file of memories: what is gone is gone, what is broken is said."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from memory_setting import LetterEmbedder

from holdfast.errors import (
    MemoryIndexDamaged,
    SchemaTooNew,
    StorageDamaged,
    StorageError,
    StorageReadOnly,
    UsageError,
)
from holdfast.memory import (
    MemoryManager,
    MemoryOptions,
    MiniLmEmbedder,
    NoEmbedder,
    SqliteMemoryStorage,
    StaticEmbedder,
)
from holdfast.memory.space import VectorSpace


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


async def test_the_bytes_of_a_forgotten_memory_are_gone_from_the_disk(tmp_path: Path) -> None:
    secret = "xylophonist zanzibar quokkaburra"
    storage = SqliteMemoryStorage(tmp_path / "memory.db")
    async with MemoryManager(storage, LetterEmbedder()) as manager:
        for number in range(200):
            await manager.store_memory("s1", f"ordinary text number {number}", {})
        first = await manager.store_memory("s1", secret, {"who": "marzipanus"})
        after = MemoryOptions(previous_id=first)
        await manager.store_memory("s1", "the turn after it", {}, options=after)
        await manager.summarize_memories("s1", 0)
        await manager.pipeline.settle()
        assert b"quokkaburra" in on_disk(tmp_path)
        assert len(await manager.forget([first])) == 2
        left = on_disk(tmp_path)
        words = (b"xylophon", b"zanzibar", b"quokkaburra", b"marzipanus")
        assert [word for word in words if word in left] == []
        assert len(await manager.search_memory("s1", "ordinary", 300)) == 201


@pytest.mark.parametrize("embedder", [StaticEmbedder(), MiniLmEmbedder()])
async def test_no_token_of_a_forgotten_memory_is_left_on_the_disk(
    tmp_path: Path, embedder: StaticEmbedder
) -> None:
    storage = SqliteMemoryStorage(tmp_path / "memory.db")
    async with MemoryManager(storage, embedder) as manager:
        others = [
            await manager.store_memory("s1", f"ordinary text number {number}")
            for number in range(20)
        ]
        text = "the xylophonist of zanzibar keeps a quokka " * 30  # more than fits into a page
        secret = await manager.store_memory("s1", text)
        await manager.pipeline.settle()
        (entry,) = await manager.with_embeddings([await manager.get_memory(secret)])
        assert entry.tokens is not None and len(entry.tokens) > 300
        piece = entry.tokens[:48]
        assert piece in on_disk(tmp_path)
        await manager.forget([secret])
        left = on_disk(tmp_path)
        pieces = {entry.tokens[start : start + 24] for start in range(0, len(entry.tokens), 24)}
        assert [one for one in pieces if len(one) == 24 and one in left] == []
        assert (await manager.stats()).tokens == {embedder.model_id: len(others)}


async def test_a_broken_index_is_said_and_can_be_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    storage = SqliteMemoryStorage(path)
    async with MemoryManager(storage, NoEmbedder()) as manager:
        for number in range(50):
            await manager.store_memory("s1", f"walnut {number}", {})
    with sqlite3.connect(path) as db:
        db.execute("UPDATE words_data SET block = x'00ff00ff' WHERE id > 10")
    db.close()
    async with MemoryManager(SqliteMemoryStorage(path), NoEmbedder()) as manager:
        with pytest.raises(MemoryIndexDamaged) as caught:
            await manager.search_memory("s1", "walnut")
        assert "reindex" in caught.value.hint
        assert await manager.reindex() == 50
        assert len(await manager.search_memory("s1", "walnut", 100)) == 50


async def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = on_disk(tmp_path)
    with pytest.raises(StorageDamaged):
        await SqliteMemoryStorage(path).open()
    assert on_disk(tmp_path) == before


async def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    storage = SqliteMemoryStorage(path)
    await storage.open()
    await storage.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SchemaTooNew):
        await SqliteMemoryStorage(path).open()


async def test_garbage_and_a_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "garbage.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageDamaged):
        await SqliteMemoryStorage(tmp_path / "garbage.db").open()
    with pytest.raises(StorageReadOnly):
        await SqliteMemoryStorage(tmp_path).open()


@pytest.mark.parametrize("fault", ["garbage", "no second connection"])
async def test_a_file_that_cannot_be_opened_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    path = tmp_path / "memory.db"
    if fault == "garbage":
        path.write_bytes(b"not a database at all" * 100)
    plain, opened = sqlite3.connect, list[sqlite3.Connection]()

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        if opened and fault == "no second connection":
            raise sqlite3.OperationalError("too many open files")
        opened.append(plain(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises((StorageDamaged, StorageError)):
        await SqliteMemoryStorage(path).open()
    (only,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        only.execute("SELECT 1")


@pytest.mark.parametrize("connections", [0, 1])
async def test_an_opening_that_is_cancelled_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    plain, opened = sqlite3.connect, list[sqlite3.Connection]()
    has_come, may_go_on = threading.Event(), threading.Event()

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        if len(opened) == connections:
            has_come.set()
            may_go_on.wait(60)
        opened.append(plain(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connect)
    storage = SqliteMemoryStorage(tmp_path / "memory.db")
    opening = asyncio.create_task(storage.open())
    await asyncio.to_thread(has_come.wait, 60)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # until the thread has ended
    assert len(opened) == 2
    for one in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            one.execute("SELECT 1")


class AddressedEmbedder(LetterEmbedder):
    space = VectorSpace(model_id="letters/1", provider="x", model="y", base_url="http://127.0.0.1")


class UnreadableStorage(SqliteMemoryStorage):
    async def list_spaces(self) -> list[VectorSpace]:
        raise StorageError(path="", detail="it cannot be read")


async def test_a_manager_that_cannot_be_opened_closes_its_storage(tmp_path: Path) -> None:
    storage = UnreadableStorage(tmp_path / "memory.db")
    with pytest.raises(StorageError):
        await MemoryManager(storage, AddressedEmbedder()).open()
    with pytest.raises(UsageError, match="not open"):
        await storage.stats("default")


async def test_two_managers_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with (
        MemoryManager(SqliteMemoryStorage(path), LetterEmbedder()) as left,
        MemoryManager(SqliteMemoryStorage(path), LetterEmbedder()) as right,
    ):
        first = await left.store_memory("s1", "walnut one", {})
        assert len(await right.search_memory("s1", "walnut")) == 1
        second = await right.store_memory("s1", "walnut two", {})
        assert {e.id for e in await left.search_memory("s1", "walnut")} == {first, second}
        await left.forget([first])
        assert [e.id for e in await right.search_memory("s1", "walnut")] == [second]


def parts_of_the_index(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        found: int = db.execute("SELECT count(DISTINCT segid) FROM words_idx").fetchone()[0]
        return found


async def with_many(path: Path) -> None:
    async with MemoryManager(SqliteMemoryStorage(path), NoEmbedder()) as manager:
        for number in range(300):
            await manager.store_memory("s1", f"walnut number{number}")


async def test_searches_look_into_one_index_after_many_additions(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await with_many(path)
    storage = SqliteMemoryStorage(path)
    await storage.open()
    assert parts_of_the_index(path) > 4
    await storage.tidy()
    assert parts_of_the_index(path) == 1
    await storage.close()


async def test_the_index_is_tidied_when_many_memories_got_their_vectors(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await with_many(path)
    async with MemoryManager(SqliteMemoryStorage(path), LetterEmbedder()) as manager:
        assert await manager.pipeline.settle()
        assert parts_of_the_index(path) == 1
        [found] = await manager.search_memory("s1", "number299", 1)
        assert found.content.endswith("number299")


async def test_an_index_that_cannot_be_tidied_stops_no_vector(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await with_many(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE words_data SET block = x'00ff00ff' WHERE id > 10")
        db.commit()
    async with MemoryManager(SqliteMemoryStorage(path), LetterEmbedder()) as manager:
        assert await manager.pipeline.settle()
        assert (await manager.stats()).vectors == {"letters/1": 300}
