"""Where bytes are kept: in memory, or in an SQLite file."""

from holdfast.journal.stores.memory import MemoryStore
from holdfast.journal.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
