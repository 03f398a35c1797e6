"""Where we are logged in: the tokens of MCP servers, in a file that only its owner may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.private_files import PrivateJsonFile

FILE: Final = "mcp_logins.json"


class KeptLogin(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of one login; `url` is the server that it holds for, and no other."""

    url: str = ""
    tokens: JsonObject | None = None
    expires_at: float | None = None
    client: JsonObject | None = None
    """How we are registered at the authorization server."""
    authorization_server: JsonObject | None = None
    """Its metadata, so that tokens can be refreshed without looking for it again."""


class LoginBook:
    """The logins of one state directory; every call blocks a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep them in this directory; nothing is created before the first one."""
        self._file = PrivateJsonFile(Path(state_dir) / FILE, dict[str, KeptLogin], empty=dict)

    def read(self, name: str, url: str) -> KeptLogin:
        """Return the login of a server at an address; an empty one if there is none.

        A server that has moved is another one: its tokens are not sent to the new address.

        Raises:
            StorageError: the file cannot be read.
            StorageDamaged: it holds something else.
        """
        found = self._file.read().get(name)
        return found if found is not None and found.url == url else KeptLogin(url=url)

    def keep(self, name: str, login: KeptLogin) -> None:
        """Write a login down; raises StorageError where that fails."""

        def change(logins: dict[str, KeptLogin]) -> None:
            logins[name] = login

        self._file.change(change)

    def forget_tokens(self, name: str) -> None:
        """Forget the tokens of a server, but not how we are registered there."""

        def change(logins: dict[str, KeptLogin]) -> None:
            if name in logins:
                logins[name].tokens = logins[name].expires_at = None

        self._file.change(change)

    def forget(self, name: str) -> bool:
        """Forget a server's login; says whether there was one."""
        if name not in self._file.read():
            return False

        def change(logins: dict[str, KeptLogin]) -> None:
            logins.pop(name, None)

        self._file.change(change)
        return True


__all__ = ["FILE", "KeptLogin", "LoginBook"]
