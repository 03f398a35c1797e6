"""`client.hook_files`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, hooks


class HookFileNamespace(Surface[Mode]):
    """Hooks that are files, and callbacks."""

    list = hooks.list_
    trust = hooks.trust
    use_callbacks = hooks.use_callbacks
