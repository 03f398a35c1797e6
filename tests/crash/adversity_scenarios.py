"""What a process with a limited disk or limited rights does; run with a directory."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.journal import Journal, SqliteStore
from holdfast.testing._store_samples import SAMPLE_TABLES, Note

NOBODY = 65534


def tell(**news: object) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


async def fill_the_disk(directory: str) -> None:
    """Append until the system refuses, then go on with what still fits."""
    store = SqliteStore(Path(directory) / "journal.db", projections=SAMPLE_TABLES)
    async with Journal(store) as journal:
        await journal.append("s1", [Note(text="first")], must_be_new=True)
        told, codes = 1, []
        for number in range(200):
            text = os.urandom(6000).hex() if number % 2 else "x" * 20_000
            payloads = [Note(text=text, rank=number)] * (1 + number % 3)
            try:
                events = await journal.append("s1", payloads)
                told = events[-1].session_seq
            except HoldfastError as error:
                codes.append(error.code)
        tell(told=told, codes=sorted(set(codes)), refused=len(codes))


async def limit_file_sizes(directory: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
    await fill_the_disk(directory)


async def open_without_rights(directory: str) -> None:
    """Open and append as somebody who may read but not write."""
    with tempfile.TemporaryDirectory() as warm:
        async with Journal(SqliteStore(Path(warm) / "warm.db")) as journal:
            await journal.append("s1", [Note()], must_be_new=True)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        async with Journal(SqliteStore(Path(directory) / "journal.db")) as journal:
            await journal.append("s1", [Note()])
        tell(code="none")
    except HoldfastError as error:
        tell(code=error.code, hint=error.hint)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
