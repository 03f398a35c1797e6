"""Which files of a workspace changed, without git: marks of all files, taken and compared.

Bounded in every direction: so many files, so many bytes per file, so many bytes in all. What is
beyond the bounds is compared by size and time only, and shown without its lines.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.canonical import hash_sha256
from holdfast.errors import HoldfastError
from holdfast.orchestration.loop.events import FileDelta
from holdfast.private_files import open_whole_file
from holdfast.tools import FileWalk, Workspace, make_unified_diff

MOST_FILES = 20_000
MOST_BYTES = 1024 * 1024
MOST_TEXT = 128 * 1024
MOST_TEXT_IN_ALL = 16 * 1024 * 1024
KEPT_BEFORE = 64 * 1024
"""Longest text of which the journal keeps what it was before."""
MOST_DELTAS = 500
_MOST_DIFF = 20_000


class FileMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a file; `text` only if it is text and not too long."""

    size: int
    mtime_ns: int
    sha256: str
    text: str | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a workspace at one moment."""

    files: dict[str, FileMark] = msgspec.field(default_factory=dict)
    is_complete: bool = True

    def save(self, path: Path) -> None:
        """Keep it in a file that is seen whole or not at all."""
        with open_whole_file(path, is_durable=False) as file:
            file.write(zlib.compress(msgspec.json.encode(self), 1))

    @classmethod
    def load(cls, path: Path) -> Snapshot | None:
        """Return what was kept, `None` if nothing readable is there."""
        try:
            return msgspec.json.decode(zlib.decompress(path.read_bytes()), type=cls)
        except (OSError, zlib.error, msgspec.MsgspecError):
            return None


def take_snapshot(
    workspace: Workspace, *, before: Snapshot | None = None, hidden: Iterable[str] = ()
) -> Snapshot:
    """Return marks of all files that git would see, except those below `hidden` paths.

    A file whose size and time are those of `before` is not read again.
    """
    known = before.files if before is not None else {}
    kept = sum(len(mark.text or "") for mark in known.values())
    left_out = [f"{name.rstrip('/')}/**" for name in hidden]
    found: dict[str, FileMark] = {}
    walk = FileWalk(workspace, ignore=left_out, details=True)
    is_complete = True
    for entry in walk.files():
        if entry.kind != "file":
            continue
        if len(found) >= MOST_FILES:
            is_complete = False
            break
        old = known.get(entry.path)
        if old is not None and (old.size, old.mtime_ns) == (entry.size, entry.mtime_ns):
            found[entry.path] = old
            continue
        mark = _mark(workspace, entry.path, entry.size, entry.mtime_ns, MOST_TEXT_IN_ALL - kept)
        if mark is not None:
            kept += len(mark.text or "")
            found[entry.path] = mark
    return Snapshot(files=found, is_complete=is_complete and walk.is_complete)


def list_deltas(
    before: Snapshot, after: Snapshot, known: Mapping[str, FileDelta]
) -> list[FileDelta]:
    """Return what changed between two snapshots, by path.

    `known` are files that the loop changed earlier: what they were at first is kept already.
    """
    found = []
    for path in sorted(before.files.keys() | after.files.keys()):
        old, new = before.files.get(path), after.files.get(path)
        if old is not None and new is not None and old.sha256 == new.sha256:
            continue
        if path in known and known[path].sha256 == (new.sha256 if new is not None else ""):
            continue  # told already: a crash came before the marks were kept
        first = old.text if old is not None and path not in known else None
        if first is not None and len(first) > KEPT_BEFORE:
            first = None
        diff = _diff(old.text if old else "", new.text if new else "", path)
        found.append(
            FileDelta(
                path=path,
                change="added" if old is None else "removed" if new is None else "changed",
                sha256=new.sha256 if new is not None else "",
                before=first,
                diff=diff[0],
                added=diff[1],
                removed=diff[2],
            )
        )
    return found[:MOST_DELTAS]


def merge_deltas(changes: Iterable[FileDelta], now: Mapping[str, FileMark]) -> list[FileDelta]:
    """Return what all steps together did to each file, from what it was first to what it is."""
    first: dict[str, FileDelta] = {}
    last: dict[str, FileDelta] = {}
    for change in changes:
        first.setdefault(change.path, change)
        last[change.path] = change
    found = []
    for path in sorted(first):
        was_there, mark = first[path].change != "added", now.get(path)
        if not was_there and mark is None:
            continue
        before = first[path].before
        if before is not None and mark is not None and hash_sha256(before.encode()) == mark.sha256:
            continue
        old = before if was_there else ""
        text, added, removed = _diff(old, mark.text if mark else "", path)
        if old is None and was_there:
            text, added, removed = last[path].diff, last[path].added, last[path].removed
        found.append(
            FileDelta(
                path=path,
                change="added" if not was_there else "removed" if mark is None else "changed",
                sha256=mark.sha256 if mark else "",
                diff=text,
                added=added,
                removed=removed,
            )
        )
    return found


def _mark(workspace: Workspace, path: str, size: int, mtime_ns: int, room: int) -> FileMark | None:
    if size > MOST_BYTES:
        return FileMark(size, mtime_ns, f"{size}-{mtime_ns}")
    data = None
    with contextlib.suppress(HoldfastError):
        data = workspace.read(path, max_bytes=MOST_BYTES)
    if data is None:  # gone meanwhile, or not ours to read
        return None
    text = None
    if len(data) <= min(MOST_TEXT, room) and b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode()
    return FileMark(size, mtime_ns, hash_sha256(data), text)


def _diff(old: str | None, new: str | None, path: str) -> tuple[str, int, int]:
    if old is None or new is None:
        return "", 0, 0
    diff = make_unified_diff(old, new, path)
    return diff.text[:_MOST_DIFF], diff.added, diff.removed
