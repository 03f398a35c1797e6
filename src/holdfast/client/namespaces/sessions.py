"""`client.sessions`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, sessions


class SessionNamespace(Surface[Mode]):
    """Sessions: create, find, change, archive, fork, revert, export, import."""

    create = sessions.create
    get = sessions.get
    list = sessions.list_
    most_recent = sessions.most_recent
    update = sessions.update
    change_state = sessions.change_state
    archive = sessions.archive
    restore = sessions.restore
    delete = sessions.delete
    fork = sessions.fork
    revert = sessions.revert
    undo = sessions.undo
    lines = sessions.lines
    export = sessions.export
    load = sessions.load
    context = sessions.context
    compact = sessions.compact
    manager = sessions.manager
