"""When, and where, runs could write: how files that a run made are told from those of the user.

A file that instructs agents (`AGENTS.md`, `CLAUDE.md`, an agent's own) must not be obeyed because a
run has put it there. What a run writes changes the file's inode at a time that no process can
choose, so it is enough to remember between which times commands and file tools of runs could write
below which directories. A file whose inode changed in such a window counts as written by a run,
whatever its name and however it came there; a user who edits it meanwhile has to vouch for it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import StorageError

_FOLDER: Final = "writes"
_LOG: Final = "windows.jsonl"
_MOST_BYTES: Final = 512 * 1024
# File systems stamp by a clock that ticks more coarsely than it is read.
_TICK_NS: Final = 20_000_000
_MOST_LINKS: Final = 40


class _Window(msgspec.Struct, frozen=True, array_like=True):
    """Between which stamps of files (ns) something could be written below which directories."""

    start: int
    end: int
    tops: tuple[str, ...]

    def covers(self, path: str, changed_ns: int) -> bool:
        """Say whether a file at a real path may have been changed in it."""
        return self.start - _TICK_NS <= changed_ns <= self.end + _TICK_NS and any(
            path.startswith(f"{top}/") for top in self.tops
        )


class RunWrites:
    """The windows of one state directory; every call blocks for a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep them in this directory; nothing is created before the first write."""
        self.folder = Path(state_dir) / _FOLDER
        self._log = self.folder / _LOG
        self._known: tuple[tuple[int, int], tuple[_Window, ...]] = ((0, 0), ())

    @contextlib.contextmanager
    def open_window(self, directories: Sequence[str]) -> Iterator[None]:
        """Note that a run can write below these directories, from now until the end."""
        window = self.begin(directories)
        try:
            yield
        finally:
            window.end()

    def begin(self, directories: Sequence[str]) -> WriteWindow:
        """Note the same; the caller ends it. One whose process is killed ends when it is noticed.

        Raises:
            StorageError: it could not be noted, so nothing must be written.
        """
        # With it come all kinds of compression, for a note that few processes write.
        import tempfile  # noqa: PLC0415

        tops = tuple(os.path.realpath(path) for path in directories)
        with self._lock():
            self._sweep()
            handle, name = tempfile.mkstemp(dir=self.folder, prefix="open-")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                os.write(handle, msgspec.json.encode(tops))
            except BaseException:
                os.close(handle)
                os.unlink(name)
                raise
        return WriteWindow(writes=self, note=Path(name), tops=tops, handle=handle)

    def was_written(self, path: str | os.PathLike[str]) -> bool:
        """Say whether a run may have written the file, or the link, that is at a path now."""
        stamps = self._list_stamps(path)
        if not stamps or not self.folder.is_dir():
            return False
        windows = [*self._read_log(), *self._list_open()]
        return any(window.covers(*stamp) for window in windows for stamp in stamps)

    # --- within ---------------------------------------------------------------------

    def _list_stamps(self, path: str | os.PathLike[str]) -> list[tuple[str, int]]:
        """Return where an entry, every link on the way and what it leads to really are.

        With each stands when it was changed: a link that is turned in the middle chooses the file.
        """
        place = os.path.abspath(path)
        own = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        real = os.path.realpath(place)
        found: list[tuple[str, int]] = []
        for one in dict.fromkeys((own, *_list_links(place), real)):
            with contextlib.suppress(OSError):
                found.append((one, os.lstat(one).st_ctime_ns))
        return found

    def _end(self, window: WriteWindow) -> None:
        with self._lock():
            self._append(_Window(window.start_ns, window.touch(), window.tops))
            window.note.unlink(missing_ok=True)

    def _append(self, window: _Window) -> None:
        with open(self._log, "ab") as log:
            log.write(msgspec.json.encode(window) + b"\n")
            size = log.tell()
        if size > _MOST_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        """Make one window of the older half: it covers more, never less."""
        windows = self._read_log()
        old, new = windows[: len(windows) // 2], windows[len(windows) // 2 :]
        tops = tuple(dict.fromkeys(top for window in old for top in window.tops))
        whole = _Window(min(w.start for w in old), max(w.end for w in old), tops)
        fresh = self._log.with_suffix(".new")
        fresh.write_bytes(b"".join(msgspec.json.encode(w) + b"\n" for w in (whole, *new)))
        os.replace(fresh, self._log)

    def _read_log(self) -> tuple[_Window, ...]:
        try:
            seen = os.stat(self._log)
            stamp = (seen.st_mtime_ns, seen.st_size)
            if stamp != self._known[0]:
                lines = self._log.read_bytes().splitlines()
                self._known = (stamp, tuple(_decode_lines(lines)))
        except OSError:
            return ()
        return self._known[1]

    def _list_open(self) -> Iterator[_Window]:
        """The windows that no process has ended: open from their start on."""
        for note in self.folder.glob("open-*"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                tops = msgspec.json.decode(note.read_bytes(), type=tuple[str, ...])
                yield _Window(_find_first_stamp(os.stat(note)), 1 << 63, tops)

    def _sweep(self) -> None:
        """End the windows of processes that are gone: now is late enough."""
        for note in self.folder.glob("open-*"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                handle = os.open(note, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    tops = msgspec.json.decode(note.read_bytes(), type=tuple[str, ...])
                    start = _find_first_stamp(os.fstat(handle))
                    self._append(_Window(start, _stamp_now(handle), tops))
                    note.unlink()
                finally:
                    os.close(handle)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            detail = error.strerror or "it cannot be written"
            raise StorageError(path=str(self.folder), detail=detail) from error


class WriteWindow:
    """One window that is open; end it when nothing can be written any more."""

    def __init__(
        self, *, writes: RunWrites, note: Path, tops: tuple[str, ...], handle: int
    ) -> None:
        """Hold the note, and its lock, until the end."""
        self._writes = writes
        self._handle = handle
        self.note = note
        self.tops = tops
        # By the clock that stamps files, so that both can be compared.
        self.start_ns = _find_first_stamp(os.fstat(handle))

    def touch(self) -> int:
        """Return the stamp that a file gets now."""
        return _stamp_now(self._handle)

    def end(self) -> None:
        """Close the window."""
        try:
            self._writes._end(self)
        finally:
            os.close(self._handle)


def _list_links(path: str) -> list[str]:
    """Return the links that stand between a path and what it leads to, as really placed."""
    found: list[str] = []
    done, rest = "/", path.split("/")
    while rest and len(found) < _MOST_LINKS:
        name, *rest = rest
        if name in ("", "."):
            continue
        place = os.path.dirname(done) if name == ".." else os.path.join(done, name)
        try:
            target = os.readlink(place)
        except OSError:  # no link, or nothing at all
            done = place
            continue
        found.append(place)
        done, rest = ("/" if target.startswith("/") else done), [*target.split("/"), *rest]
    return found


def _decode_lines(lines: list[bytes]) -> Iterator[_Window]:
    for line in lines:
        # A line that a kill cut short belongs to a note that is still there.
        with contextlib.suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(line, type=_Window)


def _find_first_stamp(seen: os.stat_result) -> int:
    return min(seen.st_mtime_ns, seen.st_ctime_ns)


def _stamp_now(handle: int) -> int:
    os.utime(handle)
    return os.fstat(handle).st_ctime_ns


__all__ = ["RunWrites", "WriteWindow"]
