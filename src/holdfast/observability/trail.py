"""The audit trail: append-only JSON lines in `audit/` of the state directory, with rotation.

Every line names the event of the journal that it was made from, so the trail needs no cursor that
could lie: where it goes on is behind its last whole line. One process at a time writes, under a
lock that dies with it; a line that a crash cut short is removed by the next writer, and written
again. A note of how far the journal was read only saves looking at events that make no line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import StorageDamaged, StorageError, StorageFull
from holdfast.private_files import open_whole_file

_TAIL = 1024 * 1024
"""No line is longer."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: what was done, by whom, with which version, and the event that proves it.

    `hash` is that of the event in the chain of its session. `detail` holds ids and shapes, never
    what people wrote or tools returned.
    """

    time: str
    seq: int
    kind: str
    action: str
    tenant: str
    actor: str
    agent: str = ""
    session_id: str
    session_seq: int
    run_id: str = ""
    tool: str = ""
    tool_version: str = ""
    source_hash: str = ""
    outcome: str = ""
    is_network: bool = False
    detail: JsonObject = msgspec.field(default_factory=dict)
    hash: str
    holdfast_version: str


class _Position(msgspec.Struct, frozen=True):
    seq: int


class AuditTrail:
    """The files of one state directory; every call blocks for a moment."""

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        """Write below this directory; a file that has grown so long is followed by a new one."""
        self.directory = directory
        self._max_bytes = max_bytes

    def list_files(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted(self.directory.glob("audit-*.jsonl"))

    def iterate(self, *, after: int = 0) -> Iterator[tuple[Path, int, bytes]]:
        """Yield file, number and bytes of each whole line; files that end before `after` are
        passed over."""
        files = self.list_files()
        for index, path in enumerate(files):
            if index + 1 < len(files) and _find_first(files[index + 1]) <= after:
                continue
            with path.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    if line.endswith(b"\n"):
                        yield path, number, line

    def read(self, *, after: int = 0) -> Iterator[AuditEntry]:
        """Yield the entries behind a `seq`.

        Raises:
            StorageDamaged: a line is none of ours.
        """
        for path, number, line in self.iterate(after=after):
            entry = parse_entry(line, f"{path}:{number}")
            if entry.seq > after:
                yield entry

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Be the only writer; says `False`, and locks nothing, while another one is.

        Raises:
            StorageError: the directory cannot be written.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            held = os.open(self.directory / "lock", flags, 0o600)
        except OSError as error:
            raise _translate(self.directory, error) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            yield False
            return
        try:
            yield True
        finally:
            os.close(held)

    def find_position(self) -> int:
        """Return the `seq` behind which the trail goes on; removes a line that was cut short.

        Only the holder of the lock may ask.
        """
        noted = 0
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            data = (self.directory / "position.json").read_bytes()
            noted = msgspec.json.decode(data, type=_Position).seq
        for path in reversed(self.list_files()):
            last = _mend_end(path)
            if last is not None:
                return max(noted, last)
        # Without a line, the note may be of a trail that is gone; it would hide events.
        return 0

    def append(self, lines: list[tuple[int, bytes]], position: int) -> None:
        """Add lines with their `seq`, on the disk when this returns; then note the position.

        Raises:
            StorageError: they cannot be written; the next writer mends what is there of them.
        """
        try:
            while lines:
                path, room = self._choose_file(lines[0][0])
                taken, size = 0, 0
                while taken < len(lines) and (taken == 0 or size < room):
                    size += len(lines[taken][1])
                    taken += 1
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(path, flags, 0o600), "ab") as stream:
                    stream.write(b"".join(line for _, line in lines[:taken]))
                    stream.flush()
                    os.fsync(stream.fileno())
                lines = lines[taken:]
            with open_whole_file(self.directory / "position.json", is_durable=False) as file:
                file.write(msgspec.json.encode(_Position(position)))
        except OSError as error:
            raise _translate(self.directory, error) from error

    def _choose_file(self, seq: int) -> tuple[Path, int]:
        files = self.list_files()
        if files:
            room = self._max_bytes - files[-1].stat().st_size
            if room > 0:
                return files[-1], room
        return self.directory / f"audit-{seq:016d}.jsonl", self._max_bytes


def parse_entry(line: bytes, place: str) -> AuditEntry:
    """Return the entry of a line; raises StorageDamaged."""
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise StorageDamaged(path=place, detail=f"it is no line of the audit: {error}") from error


def _find_first(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _mend_end(path: Path) -> int | None:
    """Cut off a line without an end; return the `seq` of the last whole one, if there is any."""
    with path.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL)
        stream.seek(start)
        tail = stream.read()
        whole = tail[: tail.rfind(b"\n") + 1]
        if len(whole) < len(tail):
            stream.truncate(start + len(whole))
        last = whole[:-1].rpartition(b"\n")[2]
        return parse_entry(last, str(path)).seq if last else None


def _translate(path: Path, error: OSError) -> StorageError:
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(path=str(path), detail=error.strerror or str(error))


__all__ = ["AuditEntry", "AuditTrail", "parse_entry"]
