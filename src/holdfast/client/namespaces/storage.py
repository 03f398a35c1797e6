"""`client.storage`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, storage


class StorageNamespace(Surface[Mode]):
    """The store itself."""

    clean_up = storage.clean_up
    rebuild = storage.rebuild
    mend = storage.mend
    status = storage.status
    migrate = storage.migrate
    grant = storage.grant
    copy = storage.copy
    backup = storage.backup
    stats = storage.stats
    export_layout = storage.export_layout
    journal = storage.journal
