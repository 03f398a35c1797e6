"""The only source of identity.

An id is `<prefix>_<26 characters>`: 48 bits of milliseconds, then 80 random bits,
in Crockford's base 32. Ids made by one process sort in the order in which they were
made, also within a millisecond; ids of different processes never meet.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time

from holdfast.errors import InvalidId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_OF_BYTES = _ALPHABET.encode() * 8
_LAST_COUNT = (1 << 20) - 1
_lock = threading.Lock()
_now = 0
_head = ""
_count = 0


def make_id(prefix: str) -> str:
    """Return a fresh id that sorts after every id this process made before."""
    global _now, _head, _count
    with _lock:
        now = time.time_ns() // 1_000_000
        if now <= _now and _count < _LAST_COUNT:
            # Within one millisecond, or when the wall clock stepped back.
            _count += 1
        else:
            # The ids of a millisecond share 22 characters, and count from anywhere.
            _now = now = max(now, _now + 1)
            fresh = os.urandom(15)
            _head = (
                f"{_PAIRS[now >> 40]}{_PAIRS[now >> 30 & 1023]}{_PAIRS[now >> 20 & 1023]}"
                f"{_PAIRS[now >> 10 & 1023]}{_PAIRS[now & 1023]}"
                f"{fresh[:12].translate(_OF_BYTES).decode()}"
            )
            _count = int.from_bytes(fresh[12:]) & _LAST_COUNT
        return f"{prefix}_{_head}{_PAIRS[_count >> 10]}{_PAIRS[_count & 1023]}"


def _forget() -> None:
    """Begin anew in a process that was forked: what it knows, the other one counts on with."""
    global _lock, _now
    _lock = threading.Lock()
    _now = 0


os.register_at_fork(after_in_child=_forget)


@functools.cache
def _compile_valid() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_id(value: object, kind: str) -> str:
    """Return `value` if it can be an id; an id is always safe as a file name.

    Raises:
        InvalidId: it is no string, is too long, or holds a character that ids never have.
    """
    if not isinstance(value, str) or not _compile_valid().fullmatch(value):
        shown = value if isinstance(value, str) and len(value) <= 80 else f"{str(value)[:77]}..."
        raise InvalidId(value=shown, kind=kind)
    return value


def is_id(value: object) -> bool:
    """Say whether `value` has the form of an id."""
    return isinstance(value, str) and _compile_valid().fullmatch(value) is not None


def make_random_token(nbytes: int = 16) -> str:
    """Return an unguessable text, for lease owners and idempotency keys."""
    return os.urandom(nbytes).hex()
