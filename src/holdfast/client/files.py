"""Files that the client reads and writes for its caller."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

from holdfast.errors import InvalidImport, UsageError
from holdfast.journal import Event
from holdfast.sessions import parse_export


def read_export(source: str | os.PathLike[str] | IO[bytes]) -> list[Event]:
    """Read and check an exported session from a path or an open file."""
    if not isinstance(source, str | os.PathLike):
        return parse_export(source)
    try:
        with open(source, "rb") as file:
            return parse_export(file)
    except OSError as error:
        raise InvalidImport(detail=f"{os.fspath(source)}: {error.strerror}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is seen complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise UsageError(detail=f"{path} cannot be written: {error.strerror}") from error
