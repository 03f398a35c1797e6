"""Which content of a project a person has vouched for.

The caller that opens a project of another author must not thereby obey it. A record in the
state directory says, per project and thing, which exact content was trusted; a changed
content is a stranger again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from holdfast.canonical import hash_sha256
from holdfast.errors import StorageDamaged, StorageError
from holdfast.private_files import PrivateJsonFile
from holdfast.settings import RunWrites

FILE = "trust.json"
_INSTRUCTIONS = "instructions:"

_Records: TypeAlias = dict[str, dict[str, str]]


class InstructionTrust:
    """Which files may instruct agents: those of the user, and those of runs that a user trusts."""

    def __init__(self, store: TrustStore, writes: RunWrites) -> None:
        """Go by what runs wrote, and by what was trusted."""
        self._store = store
        self._writes = writes
        self.folder = str(writes.folder)
        """Where it is noted what runs could write; missing while none could."""

    def is_obeyed(self, path: str | os.PathLike[str]) -> bool:
        """Say whether no run wrote the file as it is, or a user has trusted it as it is."""
        if not self._writes.was_written(path):
            return True
        place = os.path.realpath(path)
        name = _INSTRUCTIONS + os.path.basename(place)
        return self._store.is_trusted(os.path.dirname(place), name, _digest_file(place))

    def accept(self, path: str | os.PathLike[str]) -> bool:
        """Vouch for a file as it is now; says whether that was needed. Raises as `trust` does."""
        if self.is_obeyed(path):
            return False
        place = os.path.realpath(path)
        name = _INSTRUCTIONS + os.path.basename(place)
        self._store.trust(os.path.dirname(place), name, _digest_file(place))
        return True


def _digest_file(path: str) -> str:
    """Return what identifies a file's content; nothing, which is never trusted, if unreadable."""
    try:
        return hash_sha256(Path(path).read_bytes())
    except OSError:
        return ""


class TrustStore:
    """Trust records of one state directory; every call blocks for a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep records in this directory; nothing is created before the first one."""
        self._file = PrivateJsonFile(Path(state_dir) / FILE, _Records, empty=dict)

    def is_trusted(self, project: str | os.PathLike[str], name: str, digest: str) -> bool:
        """Say whether exactly this content was trusted; never without a digest."""
        known = self._read_records().get(os.fspath(project), {}).get(name)
        return bool(digest) and known == digest

    def is_known(self, project: str | os.PathLike[str], name: str) -> bool:
        """Say whether some content of this name was trusted."""
        return name in self._read_records().get(os.fspath(project), {})

    def trust(self, project: str | os.PathLike[str], name: str, digest: str) -> None:
        """Vouch for a content.

        Raises:
            StorageError: it could not be written; nothing is trusted.
            StorageDamaged: the records cannot be read, and were left as they are.
        """

        def change(records: _Records) -> None:
            records.setdefault(os.fspath(project), {})[name] = digest

        self._file.change(change)

    def revoke(self, project: str | os.PathLike[str], name: str) -> None:
        """Take the word back; raises as `trust` does."""

        def change(records: _Records) -> None:
            records.get(os.fspath(project), {}).pop(name, None)

        self._file.change(change)

    def _read_records(self) -> _Records:
        """Return all records; a file that cannot be read trusts nothing."""
        try:
            return self._file.read()
        except (StorageError, StorageDamaged):
            return {}
