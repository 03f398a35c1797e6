"""AGENTS.md: what a project wants agents to know; the nearest file wins."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.skills.project import levels
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


class ProjectInstructions:
    """Finds and reads the nearest AGENTS.md; reads again only when it has changed."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        """Read at most so many bytes of a file."""
        self._max_bytes = max_bytes
        self._levels: dict[str, tuple[Path, ...]] = {}
        self._read: dict[str, tuple[tuple[int, int, int], str, str]] = {}

    def find(self, directory: str) -> Path | None:
        """Return the file that holds for a directory; a few looks at the file system."""
        if directory not in self._levels:
            if len(self._levels) >= _KEPT:
                self._levels.clear()
            self._levels[directory] = tuple(level / FILE for level in levels(directory))
        for path in self._levels[directory]:
            if os.path.isfile(path):
                return path
        return None

    def fresh(self, path: Path) -> tuple[str, str] | None:
        """Return what was read last, if it is still what is there; see `read`."""
        known = self._read.get(str(path))
        return known[1:] if known is not None and known[0] == _stamp(path) else None

    def read(self, directory: str, path: Path) -> tuple[str, str]:
        """Return the text and a note about what is missing from it.

        Opened as tools open files: beneath the project's root, links out of it refused. A
        file that cannot be read gives an empty text and the reason. Blocks for a moment.
        """
        stamp = _stamp(path)
        known = self._read.get(str(path))
        if known is not None and known[0] == stamp:
            return known[1], known[2]
        text, note = self._load(levels(directory)[-1], path)
        if len(self._read) >= _KEPT:
            self._read.clear()
        self._read[str(path)] = (stamp, text, note)
        return text, note

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


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
