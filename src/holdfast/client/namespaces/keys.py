"""`client.keys`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, keys


class KeyNamespace(Surface[Mode]):
    """API keys: make, list, rotate, revoke."""

    create = keys.create
    list = keys.list_
    rotate = keys.rotate
    revoke = keys.revoke
