"""The token by which the owner of a state directory is known to the server that serves it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import StorageDamaged
from holdfast.ids import make_random_token
from holdfast.private_files import PrivateJsonFile

TOKEN_FILE: Final = "server-token.json"


class _KeptToken(msgspec.Struct, forbid_unknown_fields=True):
    token: str = ""


def make_token(base_dir: Path) -> str:
    """Return the token of a state directory; made, mode 0600, where there is none yet."""

    def fill(kept: _KeptToken) -> None:
        kept.token = kept.token or f"hfl_{make_random_token(32)}"

    return _open_token_file(base_dir).change(fill).token


def find_token(base_dir: Path) -> str:
    """Return the token that a server made in a state directory; empty if there is none."""
    try:
        return _open_token_file(base_dir).read().token
    except StorageDamaged:
        return ""


def _open_token_file(base_dir: Path) -> PrivateJsonFile[_KeptToken]:
    return PrivateJsonFile(base_dir / TOKEN_FILE, _KeptToken, empty=_KeptToken)


__all__ = ["TOKEN_FILE", "find_token", "make_token"]
