"""Where bytes are kept: in memory, or in an SQLite file."""

from holdfast.journal.stores._sqlite_at_rest import SqliteAtRest
from holdfast.journal.stores.memory import MemoryStore
from holdfast.journal.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteAtRest", "SqliteStore"]
