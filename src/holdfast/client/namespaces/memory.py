"""`client.memory`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, memory


class MemoryNamespace(Surface[Mode]):
    """Memories: store, search, supersede, forget."""

    manager = memory.manager
    store = memory.store
    search = memory.search
    relevant = memory.relevant
    summarize = memory.summarize
    remember_session = memory.remember_session
    get = memory.get
    history = memory.history
    update = memory.update
    list = memory.list_
    pin = memory.pin
    forget = memory.forget
    delete = memory.delete
    stats = memory.stats
    reindex = memory.reindex
    lines = memory.lines
    load = memory.load
