"""Read from the header of a GGUF file how much text its model was trained to see.

The header is a list of named values, each with its type. Whatever is strange in it gives no
answer instead of an error: llama.cpp says what is wrong with a file when it loads it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

MAGIC = b"GGUF"
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the plain types, by their number in the format."""
_UNSIGNED = {0: "<B", 2: "<H", 4: "<I", 10: "<Q"}
_TEXT, _LIST = 8, 9
_MAX_VALUES = 10_000
_MAX_ITEMS = 2_000_000
_MAX_NAME = 65_536
_KEY = ".context_length"


def read_trained_window(path: Path) -> int | None:
    """Return how many tokens the model was trained to see; `None` if the file does not say."""
    try:
        with path.open("rb") as file:
            return _find(file)
    except (OSError, ValueError, struct.error):
        return None


def _find(file: BinaryIO) -> int | None:
    if file.read(4) != MAGIC or _read_number(file, "<I") < 2:
        return None
    _read_number(file, "<Q")  # How many tensors there are.
    for _ in range(min(_read_number(file, "<Q"), _MAX_VALUES)):
        name = _render_text(file)
        kind = _read_number(file, "<I")
        if name.endswith(_KEY) and kind in _UNSIGNED:
            return _read_number(file, _UNSIGNED[kind]) or None
        _skip(file, kind)
    return None


def _skip(file: BinaryIO, kind: int) -> None:
    if kind in _SIZES:
        file.seek(_SIZES[kind], 1)
    elif kind == _TEXT:
        file.seek(_read_number(file, "<Q"), 1)
    elif kind == _LIST:
        inner, count = _read_number(file, "<I"), _read_number(file, "<Q")
        if inner in _SIZES:
            file.seek(_SIZES[inner] * count, 1)
        elif inner == _TEXT and count <= _MAX_ITEMS:
            for _ in range(count):
                file.seek(_read_number(file, "<Q"), 1)
        else:
            raise ValueError("lists of lists are not part of the format as it is used")
    else:
        raise ValueError(f"there is no type {kind}")


def _render_text(file: BinaryIO) -> str:
    length = _read_number(file, "<Q")
    if length > _MAX_NAME:
        raise ValueError("the name of a value is too long")
    return file.read(length).decode("utf-8", "replace")


def _read_number(file: BinaryIO, form: str) -> int:
    (found,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return int(found)
