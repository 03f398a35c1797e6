"""Files of memories of every earlier schema open, and get what newer ones have."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.memory import Identity, MemoryManager, SqliteMemoryStorage, StaticEmbedder
from holdfast.testing import FakeClock

GOLDEN = sorted((Path(__file__).parent / "golden").glob("memory_v*.sql"))
DIGESTS = {"memory_v2.sql": "273b5c7078b87b2b5f0009d67197dabdd9d6bd2273e1c669c3ea296b8efbef6b"}
MODEL = StaticEmbedder.model_id


def vectors(path: Path) -> dict[int, bytes]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT row, vector FROM vectors"))


def test_no_golden_memory_was_changed() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in GOLDEN}
    assert found == DIGESTS


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
async def test_old_memories_get_tokens_and_speakers_in_the_background(
    golden: Path, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(golden.read_text(encoding="utf-8"))
    before = vectors(path)
    storage = SqliteMemoryStorage(path)
    identity, clock = Identity(user="ada"), FakeClock()
    embedder = StaticEmbedder()
    async with MemoryManager(storage, embedder, identity=identity, clock=clock) as manager:
        await storage.tidy()
        manager.pipeline.wake()
        await manager.pipeline.settle()
        counts = await manager.stats()
        assert counts.tokens == counts.vectors == {MODEL: 5}
        found = await manager.search_memory("s1", "How long did Melanie hike?", 5)
        assert found[0].id == "line1"
        assert found[0].parts is not None and found[0].parts.speaker > 0
        assert found[0].parts.late > 0 and found[0].parts.when > 0
        assert (await manager.get_memory("line2")).previous_id == "line1"
        assert (await manager.get_memory("note")).content.startswith("Größe")
    after = vectors(path)
    # Lines of the conversation were embedded with the name before; the note stays as it was.
    assert after[5] == before[5] and after[2] != before[2]
