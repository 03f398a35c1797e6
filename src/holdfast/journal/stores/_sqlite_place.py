"""A SQLite file of another room: connected to, measured and explained as the journal's is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.journal.stores._sqlite_errors import translate
from holdfast.journal.stores._sqlite_file import compute_size, connect


class SqlitePlace:
    """Where a room keeps tables of its own: a file, or without one the memory of this process."""

    def __init__(self, path: Path | None) -> None:
        """Touch nothing yet."""
        self.path = path
        self.name = str(path or ":memory:")

    def connect(self) -> sqlite3.Connection:
        """Open a connection that any thread may use, one at a time; never creates the file.

        Raises:
            StorageError: it cannot be opened, or is no database.
        """
        if self.path is not None:
            return connect(self.path)
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def explain(self, error: sqlite3.Error) -> HoldfastError:
        """Return the error of ours that fits one of the driver."""
        return translate(error, self.name)

    def measure_bytes(self) -> int:
        """Return how many bytes it takes on disk, the write-ahead log included."""
        return compute_size(self.path) if self.path is not None else 0


__all__ = ["SqlitePlace"]
