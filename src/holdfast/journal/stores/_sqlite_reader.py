"""Reading beside the writer: short reads on the loop, long ones in a thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from holdfast.journal.stores import _sqlite_file as file
from holdfast.journal.stores._group_commit import GroupCommit
from holdfast.journal.stores._sqlite_errors import translate

T = TypeVar("T")

SHORT_READ = 256
"""Reads of at most this many records are quicker than a hop to a thread."""


class Reader:
    """Two connections that only read: one for the loop, one for the thread.

    On the loop the writer's own connection is better, whenever it is idle.
    """

    def __init__(self, path: Path, writer: GroupCommit) -> None:
        """Open the first; the second comes with the first long read."""
        self._path = path
        self._writer = writer
        self.connection = file.connect(path)
        self._beside: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-read")

    async def read(
        self, read: Callable[[sqlite3.Connection], T], records: int = SHORT_READ + 1
    ) -> T:
        """Read at most about so many records; without a number, any number."""
        try:
            if records <= SHORT_READ:
                return read(self._writer.idle or self.connection)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._read_beside, read)
        except sqlite3.Error as error:
            raise translate(error, str(self._path)) from error

    async def close(self) -> None:
        """Finish what is being read, then close both connections."""
        await asyncio.to_thread(self._thread.shutdown)
        self.connection.close()
        if self._beside is not None:
            self._beside.close()

    def _read_beside(self, read: Callable[[sqlite3.Connection], T]) -> T:
        if self._beside is None:
            self._beside = file.connect(self._path)
        return read(self._beside)
