"""Which content of a project a person has vouched for.

Whoever opens a project that somebody else wrote must not thereby obey it. A record in the
state directory says, per project and thing, which exact content was trusted; a changed
content is a stranger again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from holdfast.errors import StorageError
from holdfast.ids import random_token

FILE = "trust.json"
_MAX_BYTES = 4 * 1024 * 1024


class TrustStore:
    """Trust records of one state directory; every call blocks for a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep records in this directory; nothing is created before the first one."""
        self._path = Path(state_dir) / FILE

    def is_trusted(self, project: str | os.PathLike[str], name: str, digest: str) -> bool:
        """Say whether exactly this content was trusted; never without a digest."""
        known = self._read().get(os.fspath(project), {}).get(name)
        return bool(digest) and known == digest

    def is_known(self, project: str | os.PathLike[str], name: str) -> bool:
        """Say whether some content of this name was trusted."""
        return name in self._read().get(os.fspath(project), {})

    def trust(self, project: str | os.PathLike[str], name: str, digest: str) -> None:
        """Vouch for a content.

        Raises:
            StorageError: it could not be written; nothing is trusted.
        """
        self._change(os.fspath(project), name, digest)

    def revoke(self, project: str | os.PathLike[str], name: str) -> None:
        """Take the word back."""
        self._change(os.fspath(project), name, None)

    def _read(self) -> dict[str, dict[str, str]]:
        """Return all records; a file that cannot be read trusts nothing."""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            return msgspec.json.decode(data, type=dict[str, dict[str, str]])
        except (OSError, msgspec.MsgspecError, RecursionError):
            return {}

    def _change(self, project: str, name: str, digest: str | None) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._path.with_name(f"{FILE}.lock"), flags, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._write(project, name, digest)
            finally:
                os.close(lock)
        except OSError as error:
            detail = error.strerror or "it cannot be written"
            raise StorageError(path=str(self._path), detail=detail) from error

    def _write(self, project: str, name: str, digest: str | None) -> None:
        records = self._read()
        mine = records.setdefault(project, {})
        if digest is None:
            mine.pop(name, None)
        else:
            mine[name] = digest
        temporary = self._path.with_name(f".{FILE}.{random_token(6)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(records)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
