"""Where bytes are kept: in memory, in an SQLite file, or where a package offers it by URL.

Database drivers, their classes and SQL stay in here; the process that needs a store asks `registry` for
the one at an address.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.journal.stores._sqlite_at_rest import SqliteAtRest as SqliteAtRest
    from holdfast.journal.stores.memory import MemoryStore as MemoryStore
    from holdfast.journal.stores.registry import AddressRegistry as AddressRegistry
    from holdfast.journal.stores.registry import StoreKind as StoreKind
    from holdfast.journal.stores.registry import StoreOptions as StoreOptions
    from holdfast.journal.stores.registry import list_schemes as list_schemes
    from holdfast.journal.stores.registry import list_store_places as list_store_places
    from holdfast.journal.stores.registry import open_chains as open_chains
    from holdfast.journal.stores.registry import open_store as open_store
    from holdfast.journal.stores.sqlite import SqliteStore as SqliteStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "_sqlite_at_rest": "SqliteAtRest",
            "memory": "MemoryStore",
            "registry": "AddressRegistry StoreKind StoreOptions list_schemes open_chains open_store "
            "list_store_places",
            "sqlite": "SqliteStore",
        },
    )
