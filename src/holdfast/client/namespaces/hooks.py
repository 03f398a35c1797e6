"""`client.hooks`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, hooks


class HookNamespace(Surface[Mode]):
    """Hooks: Python functions of this process, and those of files."""

    on = hooks.on
    observe = hooks.observe
    on_script = hooks.on_script
    off = hooks.off
    load_entry_points = hooks.load_entry_points
    use_callbacks = hooks.use_callbacks
    registry = hooks.registry
    list = hooks.list_
    trust = hooks.trust
