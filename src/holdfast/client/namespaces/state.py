"""`client.state`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, state


class StateNamespace(Surface[Mode]):
    """State: values by address, with versions, shared by agents and kept between runs."""

    manager = state.manager
    get = state.get
    entry = state.entry
    set = state.set_
    delete = state.delete
    update = state.update
    list = state.list_
    history = state.history
    watch = state.watch
    snapshot = state.snapshot
    restore = state.restore
    forget = state.forget
    sweep = state.sweep
