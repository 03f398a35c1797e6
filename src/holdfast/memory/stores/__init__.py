"""Where memories are kept: SQLite, in a file or in memory."""

from holdfast.memory.stores.sqlite import InMemoryStorage, SqliteMemoryStorage

__all__ = ["InMemoryStorage", "SqliteMemoryStorage"]
