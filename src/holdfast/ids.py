"""The only source of identity.

An id is `<prefix>_<26 characters>`: 48 bits of milliseconds, then 80 random bits,
in Crockford's base 32. Ids made by one process sort in the order in which they were
made, also within a millisecond; ids of different processes never meet.
"""

from __future__ import annotations

import os
import re
import threading
import time

from holdfast.errors import InvalidId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """Return a fresh id that sorts after every id this process made before."""
    global _last
    with _lock:
        fresh = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
        # Within one millisecond (or when the wall clock steps back) count up instead.
        _last = fresh if fresh >> 80 > _last >> 80 else _last + 1
        value = _last
    return prefix + "_" + "".join(_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10))


def check_id(value: object, kind: str) -> str:
    """Return `value` if it can be an id; an id is always safe as a file name.

    Raises:
        InvalidId: it is no string, is too long, or holds a character that ids never have.
    """
    if not isinstance(value, str) or not _VALID.fullmatch(value):
        shown = value if isinstance(value, str) and len(value) <= 80 else f"{str(value)[:77]}..."
        raise InvalidId(value=shown, kind=kind)
    return value


def is_id(value: object) -> bool:
    """Say whether `value` has the form of an id."""
    return isinstance(value, str) and _VALID.fullmatch(value) is not None


def random_token(nbytes: int = 16) -> str:
    """Return an unguessable text, for lease owners and idempotency keys."""
    return os.urandom(nbytes).hex()
