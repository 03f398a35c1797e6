"""What was accepted of each server: the digests of its tools, kept in the state directory.

A server that showed harmless tools when it was set up may show others later. What it offers
the first time is written down; whatever differs from that is held back until a person says
that it is meant to be so.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast.errors import StorageDamaged, StorageError
from holdfast.ids import random_token
from holdfast.mcp.definitions import RemoteTool

FILE = "mcp_pins.json"
_MAX_BYTES = 16 * 1024 * 1024

Verdict: TypeAlias = Literal["accepted", "new", "changed"]
_Pins: TypeAlias = dict[str, dict[str, str]]


class PinBook:
    """The accepted tools of all servers of one state directory; every call blocks a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep them in this directory; nothing is created before the first one."""
        self._path = Path(state_dir) / FILE

    def judge(self, endpoint: str, tools: Sequence[RemoteTool]) -> dict[str, Verdict]:
        """Say of each tool, by the server's name for it, whether it is what was accepted.

        The first offer of a server is accepted as it is.

        Raises:
            StorageError: the file cannot be read or written; nothing is accepted.
        """
        known = self._read().get(endpoint)
        if known is None:
            self.accept(endpoint, tools, is_whole=True)
            return {tool.remote: "accepted" for tool in tools}
        return {tool.remote: _verdict(known.get(tool.remote), tool) for tool in tools}

    def accept(self, endpoint: str, tools: Iterable[RemoteTool], *, is_whole: bool = False) -> None:
        """Write tools down as they are now; `is_whole` forgets those that are not among them.

        Raises:
            StorageError: it could not be written; nothing is accepted.
        """
        digests = {tool.remote: tool.digest for tool in tools}

        def change(pins: _Pins) -> None:
            pins[endpoint] = digests if is_whole else {**pins.get(endpoint, {}), **digests}

        self._change(change)

    def forget(self, endpoint: str) -> None:
        """Forget a server; what it offers next is accepted as the first offer."""

        def change(pins: _Pins) -> None:
            pins.pop(endpoint, None)

        if endpoint in self._read():
            self._change(change)

    def _read(self) -> _Pins:
        """Return what was accepted; a file that cannot be read accepts nothing, and says so."""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            return msgspec.json.decode(data, type=_Pins)
        except FileNotFoundError:
            return {}
        except OSError as error:
            detail = error.strerror or "it cannot be read"
            raise StorageError(path=str(self._path), detail=detail) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise StorageDamaged(path=str(self._path), detail="it is no list of pins") from error

    def _change(self, change: Callable[[_Pins], None]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._path.with_name(f"{FILE}.lock"), flags, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                pins = self._read()
                change(pins)
                self._write(pins)
            finally:
                os.close(lock)
        except OSError as error:
            detail = error.strerror or "it cannot be written"
            raise StorageError(path=str(self._path), detail=detail) from error

    def _write(self, pins: _Pins) -> None:
        fresh = self._path.with_name(f".{FILE}.{random_token(6)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(pins)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)


def _verdict(known: str | None, tool: RemoteTool) -> Verdict:
    if known is None:
        return "new"
    return "accepted" if known == tool.digest else "changed"


__all__ = ["FILE", "PinBook", "Verdict"]
