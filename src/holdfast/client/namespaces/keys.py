"""`client.keys`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, keys


class KeyNamespace(Surface[Mode]):
    """API keys: make, list, rotate, revoke; and the browsers that logged in with them."""

    create = keys.create
    list = keys.list_
    rotate = keys.rotate
    revoke = keys.revoke
    list_logins = keys.list_logins
    end_login = keys.end_login
