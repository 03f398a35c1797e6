"""Where memories are kept: SQLite, in a file or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.memory.stores.sqlite import InMemoryStorage as InMemoryStorage
    from holdfast.memory.stores.sqlite import SqliteMemoryStorage as SqliteMemoryStorage
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"sqlite": "InMemoryStorage SqliteMemoryStorage"}
    )
