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
_LOW = (1 << 70) - 1
_VALID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """Return a fresh id that sorts after every id this process made before."""
    global _last
    with _lock:
        now = time.time_ns() // 1_000_000
        # Within one millisecond (or when the wall clock steps back) count up instead.
        if now > _last >> 80:
            _last = now << 80 | int.from_bytes(os.urandom(10))
        else:
            _last += 1
        value = _last
    high, low = value >> 70, value & _LOW
    return (
        f"{prefix}_{_PAIRS[high >> 50]}{_PAIRS[high >> 40 & 1023]}{_PAIRS[high >> 30 & 1023]}"
        f"{_PAIRS[high >> 20 & 1023]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
        f"{_PAIRS[low >> 60]}{_PAIRS[low >> 50 & 1023]}{_PAIRS[low >> 40 & 1023]}"
        f"{_PAIRS[low >> 30 & 1023]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}"
        f"{_PAIRS[low & 1023]}"
    )


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
