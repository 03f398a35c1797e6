"""Settings that appeared while a command could have made them, and for which the user has not
vouched.

No tool writes what the next start goes by, and where it exists no command can. Where it is
missing, nothing that leaves the workspace clean keeps a command from making it. So what is
missing is written down in the state directory before a command starts, and struck out when it
has ended and nothing came. What did come is not obeyed before a person says so; this also holds
while the command runs, and after the process that ran it was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from holdfast.errors import StorageError, UsageError
from holdfast.settings.files import Mistake
from holdfast.settings.run_writes import RunWrites

_FOLDER: Final = "gaps"
_Places: TypeAlias = dict[str, str]
"""Paths, those of folders with a slash behind, and what they led to before; nothing if nowhere."""


class UnvouchedSettings:
    """The missing settings of one state directory; every call blocks for a moment."""

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        *,
        files: Sequence[Path] = (),
        folders: Sequence[Path] = (),
    ) -> None:
        """Watch over these places; nothing is created before the first command."""
        self._folder = Path(state_dir) / _FOLDER
        self.writes = RunWrites(state_dir)
        """When commands and file tools could write, for files that are read but not settings."""
        self._places = [*map(str, files), *(f"{path}/" for path in folders)]

    def begin(self, writable: Sequence[str]) -> Gap | None:
        """Note what a command that can write in these directories could make; None if nothing.

        Raises:
            StorageError: it could not be noted, so the command must not start.
        """
        tops = [os.path.realpath(path) for path in writable]
        if not self._folder.is_dir() and not any(_is_open(one, tops) for one in self._places):
            return None
        with self._lock():
            known = self._sweep()
            # What another command can make, or made, this one could make anew.
            before = {place: known[place] for place in self._places if place in known}
            for place in self._places:
                if place not in before and _is_open(place, tops):
                    before[place] = _describe_place(place)
            if not before:
                return None
            filled = [place for place, was in before.items() if _describe_place(place) != was]
            return self._note(before, known=frozenset(filled))

    def filled(self) -> list[str]:
        """Return where something stands now, or no longer, and a command could have done that."""
        found = {
            place.rstrip("/")
            for _, places in self._read_notes()
            for place, before in places.items()
            if _describe_place(place) != before
        }
        return sorted(found)

    def mistakes(self, paths: Callable[[], Iterable[Path]]) -> list[Mistake]:
        """Return which of these paths must not be obeyed, and why; mostly nothing has to ask."""
        filled = set(map(os.path.realpath, self.filled()))
        if not filled:
            return []
        return [
            Mistake(source=str(path), text=_explain_doubt(path))
            for path in dict.fromkeys(paths())
            if os.path.realpath(path) in filled
        ]

    def accept(self, path: str | os.PathLike[str]) -> bool:
        """Vouch for what is at a path; says whether it was in doubt.

        Raises:
            UsageError: a command that could change it is still running.
            StorageError: it could not be noted.
        """
        real, was_in_doubt = os.path.realpath(path), False
        if not self._folder.is_dir():
            return False
        with self._lock():
            for note, places in self._read_notes():
                filled = {one: was for one, was in places.items() if _describe_place(one) != was}
                kept = {one: was for one, was in filled.items() if os.path.realpath(one) != real}
                if kept == filled:
                    continue
                if _is_held(note):
                    raise UsageError(
                        detail=f"A command that could change {path} is still running; end it first."
                    )
                was_in_doubt = True
                if kept:
                    self._note(kept).let_go()
                note.unlink()
        return was_in_doubt

    # --- within ---------------------------------------------------------------------

    def _end(self, gap: Gap) -> list[str]:
        filled = [place for place, was in gap.places.items() if _describe_place(place) != was]
        if not filled:
            # One that stays, without anything that came, is swept by the next command.
            with contextlib.suppress(OSError):
                os.unlink(gap.note)
            return []
        with self._lock():
            others = [places for note, places in self._read_notes() if note != gap.note]
            # One note of what came is enough.
            if all(any(place in places for places in others) for place in filled):
                gap.note.unlink(missing_ok=True)
        return [place.rstrip("/") for place in filled if place not in gap.known]

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            try:
                descriptor = os.open(self._folder, flags)
            except FileNotFoundError:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self._folder, flags)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            detail = error.strerror or "it cannot be written"
            raise StorageError(path=str(self._folder), detail=detail) from error

    def _read_notes(self) -> Iterator[tuple[Path, _Places]]:
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            note = self._folder / name
            # One that was cut short was so before its command started.
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield note, msgspec.json.decode(note.read_bytes(), type=_Places)

    def _sweep(self) -> _Places:
        """Return the places of all notes, without those whose writer is gone and nothing came."""
        known: _Places = {}
        for note, places in self._read_notes():
            is_filled = any(_describe_place(place) != before for place, before in places.items())
            if is_filled or _is_held(note):
                known |= places
            else:
                note.unlink()
        return known

    def _note(self, places: _Places, known: frozenset[str] = frozenset()) -> Gap:
        # With it come all kinds of compression, for a note that few processes write.
        import tempfile  # noqa: PLC0415

        handle, name = tempfile.mkstemp(dir=self._folder, prefix="")
        try:
            # Held for as long as the command may run: the process that is killed lets go.
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(handle, msgspec.json.encode(places))
        except BaseException:
            os.close(handle)
            os.unlink(name)
            raise
        return Gap(settings=self, note=Path(name), places=places, known=known, handle=handle)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What one command could make; end it when the command has ended."""

    settings: UnvouchedSettings
    note: Path
    places: _Places
    known: frozenset[str]
    handle: int

    def end(self) -> list[str]:
        """Strike out what is still missing, and return what came since it began."""
        try:
            return self.settings._end(self)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Leave the note as it is."""
        os.close(self.handle)


def _explain_doubt(path: Path) -> str:
    trust = f"run `holdfast config trust {shlex.quote(str(path))}`"
    if path.exists():
        return (
            "was made while a command of an agent could have made it; look at it, then "
            f"{trust}, or remove it"
        )
    return f"was removed while a command of an agent could have removed it; put it back, or {trust}"


def _describe_place(place: str) -> str:
    """Return what a path leads to; nothing if that is missing, or a folder in a file's place."""
    is_there = os.path.exists(place) if place.endswith("/") else os.path.isfile(place)
    return os.path.realpath(place) if is_there else ""


def _is_open(place: str, tops: Sequence[str]) -> bool:
    """Say whether commands that write in `tops` can decide what is at a place.

    They can if an entry on the way is missing or a link: only what exists itself is mounted
    read-only for them. A folder in the place of a file is in no way either.
    """
    # The way to a top is real, and no process that is confined can change it.
    real, mode = next((top for top in tops if place.startswith(f"{top}/")), "/"), stat.S_IFDIR
    for part in place[len(real) :].strip("/").split("/"):
        if part == "..":
            real = os.path.dirname(real)
            continue
        here = os.path.join(real, part)
        is_within = any(here.startswith(f"{top}/") for top in tops)
        try:
            mode = os.lstat(here).st_mode
        except OSError:
            return is_within
        if stat.S_ISLNK(mode):
            if is_within:
                return True
            here = os.path.realpath(here)
        real = here
    is_usual = place.endswith("/") or not stat.S_ISDIR(mode)
    return not is_usual and any(real.startswith(f"{top}/") for top in tops)


def _is_held(note: Path) -> bool:
    """Say whether the command of a note may still be running."""
    try:
        descriptor = os.open(note, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


__all__ = ["Gap", "UnvouchedSettings"]
