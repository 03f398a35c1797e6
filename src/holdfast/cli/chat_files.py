"""Files in a chat: those that a message names with `@`, and what completes their names."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.tools import FileWalk, Workspace

MOST_FILES: Final = 20
"""So many files may one message name."""
_MENTION: Final = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@]+))')
_LIKE_FILE: Final = re.compile(
    r"(?:~|\.{1,2})?/\S+|(?:[\w.-]+/)*[\w-][\w.-]*\.(?=\w*[a-z])[A-Za-z0-9]{1,5}"
)
"""A path from somewhere, or a name with an ending."""
_DECORATOR: Final = re.compile(r"^\s*@[\w.]+", re.MULTILINE)
_MOST_WALKED: Final = 20_000
_MOST_OFFERED: Final = 30
_FRESH_S: Final = 5.0
_LAST: Final = ".,;:!?)]}'"


def find_mentions(text: str, place: Path) -> list[str]:
    """Return the files that a message names with `@`, each once; other words stay words.

    `@"with a space.txt"` names what has a space. What is no file below `place`, nor by its whole
    path, is not meant as one: an address, a name, a decorator.
    """
    found: dict[str, None] = {}
    for quoted, bare in _MENTION.findall(text):
        for name in [quoted] if quoted else [bare, bare.rstrip(_LAST)]:
            if is_file(name, place):
                found[name] = None
                break
    return list(found)[:MOST_FILES]


def find_missing(text: str, place: Path) -> list[str]:
    """Return what a message seems to name with `@` as a file and is none, each once.

    `@nosuch.txt`, `@./nosuch` and what stands in quotes look like files; a name such as `@ann`,
    a package (`@types/node`) and a decorator in pasted code do not.
    """
    found: dict[str, None] = {}
    if "\n" in text:
        text = _DECORATOR.sub("", text)
    for quoted, bare in _MENTION.findall(text):
        name = quoted or bare.rstrip(_LAST)
        if any(is_file(one, place) for one in (quoted, bare, name)):
            continue
        if quoted or _LIKE_FILE.fullmatch(name):
            found[name] = None
    return list(found)[:MOST_FILES]


def is_file(name: str, place: Path) -> bool:
    """Say whether a name is that of a file; `~` is the home directory."""
    try:
        return bool(name) and (place / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return False


class FileNames:
    """Completes the names of files below a folder, as git sees them, best match first."""

    def __init__(self, place: Path) -> None:
        """Look at nothing yet."""
        self._place = place
        self._known: list[str] = []
        self._read_at = -_FRESH_S

    def complete(self, start: str) -> list[str]:
        """Return names that fit what was typed: at the beginning, in the name, anywhere."""
        wanted = start.lower()
        ranked = []
        for path in self._list():
            low = path.lower()
            if not wanted or low.startswith(wanted):
                rank = 0
            elif low.rpartition("/")[2].startswith(wanted):
                rank = 1
            elif wanted in low:
                rank = 2
            else:
                continue
            ranked.append((rank, path.count("/"), path))
        return [path for _, _, path in sorted(ranked)[:_MOST_OFFERED]]

    def _list(self) -> list[str]:
        now = time.monotonic()
        if now - self._read_at >= _FRESH_S:
            found: list[str] = []
            try:
                for entry in FileWalk(Workspace(str(self._place))).files():
                    if len(found) >= _MOST_WALKED:
                        break
                    found.append(entry.path)
            except HoldfastError:
                found = []  # no folder to complete from
            self._known, self._read_at = found, time.monotonic()
        return self._known


def quote_mention(path: str) -> str:
    """Return how a message names a file."""
    return f'@"{path}"' if any(one.isspace() for one in path) else f"@{path}"


__all__ = ["FileNames", "find_mentions", "find_missing", "is_file", "quote_mention"]
