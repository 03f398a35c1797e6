"""AGENTS.md: what a project wants agents to know; the nearest file wins."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.skills import levels
from holdfast.tools import Workspace

FILE = "AGENTS.md"
MAX_BYTES = 32 * 1024
_KEPT = 64
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def harmless(text: str) -> str:
    """Return foreign text without control characters and marks that hide or reorder it."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def inside(tag: str, text: str) -> str:
    """Return foreign text that cannot close the tag around it."""
    return re.sub(rf"<(?=/\s*{re.escape(tag)})", "&lt;", text, flags=re.IGNORECASE)


_NOT_READ = ((0, 0, 0), ("", ""))


class FoundInstructions(NamedTuple):
    """The file that holds for a directory, and what tells whether it has changed."""

    name: str
    path: Path
    stamp: tuple[int, int, int]


class ProjectInstructions:
    """Finds and reads the nearest AGENTS.md; reads again only when it has changed."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        """Read at most so many bytes of a file."""
        self._max_bytes = max_bytes
        self._levels: dict[str, tuple[tuple[str, Path], ...]] = {}
        self._read: dict[str, tuple[tuple[int, int, int], tuple[str, str]]] = {}

    def find(self, directory: str) -> FoundInstructions | None:
        """Return the file that holds for a directory; one look per directory above it."""
        places = self._levels.get(directory)
        if places is None:
            if len(self._levels) >= _KEPT:
                self._levels.clear()
            files = [level / FILE for level in levels(directory)]
            places = self._levels[directory] = tuple([(str(file), file) for file in files])
        for name, path in places:
            try:
                seen = os.stat(name)
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode):
                return FoundInstructions(name, path, (seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return None

    def fresh(self, found: FoundInstructions) -> tuple[str, str] | None:
        """Return what was read of a file, if that is what is there now; see `read`."""
        stamp, read = self._read.get(found.name, _NOT_READ)
        return read if stamp == found.stamp else None

    def read(self, directory: str, found: FoundInstructions) -> tuple[str, str]:
        """Return the text and a note about what is missing from it.

        Opened as tools open files: beneath the project's root, links out of it refused. A
        file that cannot be read gives an empty text and the reason. Blocks for a moment.
        """
        read = self._load(levels(directory)[-1], found.path)
        if len(self._read) >= _KEPT:
            self._read.clear()
        self._read[found.name] = (found.stamp, read)
        return read

    def _load(self, root: Path, path: Path) -> tuple[str, str]:
        try:
            with Workspace(root).open(str(path.relative_to(root))) as stream:
                data = stream.read(self._max_bytes + 1)
        except (HoldfastError, OSError) as error:
            return "", f"{path.name} was not read: {error}"
        text = harmless(data[: self._max_bytes].decode("utf-8", "replace")).strip()
        if len(data) > self._max_bytes:
            return text, f"cut after {self._max_bytes} bytes"
        return text, ""
