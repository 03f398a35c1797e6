"""Find the markers that redaction left, in what comes back from the journal.

A text that was redacted is not what a caller wrote. Before it is used for anything but
reading, the caller that uses it has to know.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

_MARK = r"\[redacted:[a-z0-9-]+\]"
_PACKED = r"[A-Za-z0-9+/]{24,}"
_PACKED_MARK = b"[redacted:"


def list_withheld(value: object, name: str = "") -> tuple[str, ...]:
    """Return the places of a JSON value in which a secret was replaced by a marker.

    Places are written as `files.0.content`. A marker inside base64 counts too; so does one
    that a caller wrote on purpose, since no caller can tell them apart.
    """
    if isinstance(value, str):
        return (name,) if _is_marked(value) else ()
    found: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{name}.{key}" if name else str(key)
            found += [place] if _is_marked(str(key)) else []
            found += list_withheld(item, place)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            found += list_withheld(item, f"{name}.{at}" if name else str(at))
    return tuple(dict.fromkeys(found))


def _is_marked(text: str) -> bool:
    if re.search(_MARK, text):
        return True
    return any(map(_hides_mark, re.findall(_PACKED, text)))


def _hides_mark(code: str) -> bool:
    return _PACKED_MARK in base64.b64decode(code[: len(code) // 4 * 4])


__all__ = ["list_withheld"]
