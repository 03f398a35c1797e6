"""Files that the client reads and writes for its caller."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from holdfast import private_files
from holdfast.errors import InvalidImport, UsageError
from holdfast.journal import Event
from holdfast.sessions import parse_export


def read_export(source: str | os.PathLike[str] | IO[bytes]) -> list[Event]:
    """Read and check an exported session from a path or an open file."""
    try:
        if not isinstance(source, str | os.PathLike):
            return parse_export(source)
        with open(source, "rb") as file:
            return parse_export(file)
    except (OSError, ValueError) as error:
        # ValueError: a path with a null byte, or a file that is closed.
        detail = getattr(error, "strerror", None) or str(error)
        raise InvalidImport(detail=f"it cannot be read: {detail}") from error


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file, readable by its owner only, that is seen complete or not at all.

    Raises:
        UsageError: the place cannot be written; nothing is left behind.
    """
    try:
        with private_files.whole_file(path) as file:
            yield file
    except OSError as error:
        raise UsageError(detail=f"{path} cannot be written: {error.strerror}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is seen complete or not at all."""
    with whole_file(path) as file:
        file.write(content)
