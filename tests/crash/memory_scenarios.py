"""What a second process does in the crash tests of memory: store until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.memory import Identity, MemoryManager, MemoryOptions, SqliteMemoryStorage
from holdfast.memory.static_vectors import make_default_embedder


async def store(directory: str, name: str) -> None:
    """Store memories of a shared project and say each id once it is acknowledged."""
    storage = SqliteMemoryStorage(Path(directory) / "memory.db")
    identity = Identity(project="shared")
    async with MemoryManager(storage, make_default_embedder(), identity=identity) as manager:
        number = 0
        while True:
            memory_id = await manager.store_memory(
                name,
                f"Person{number % 2}: walnut {name} n{number}",
                {},
                options=MemoryOptions(scope="project"),
            )
            sys.stdout.write(memory_id + "\n")
            sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    asyncio.run(store(*sys.argv[1:]))
