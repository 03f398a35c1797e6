"""Foreign text, made fit to be read: without what no reader can see.

Text that is invisible to a person and read by a model is a way of prompt injection.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_KEPT = frozenset("\n\t")


# Controls, and signs that turn the reading direction or spell words that no screen shows.
@functools.cache
def _compile_deceiving() -> re.Pattern[str]:
    return re.compile(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
    )


def make_readable(text: str, limit: int) -> str:
    """Return a text of few words, such as a description, with nothing hidden in it."""
    cut = text[:limit]
    kept = [char for char in cut if char in _KEPT or unicodedata.category(char)[0] != "C"]
    return "".join(kept) + (" […]" if len(text) > limit else "")


def strip_deceiving(text: str) -> str:
    """Return what a tool answered, without terminal controls and text that hides itself."""
    return _compile_deceiving().sub("", text)


__all__ = ["make_readable", "strip_deceiving"]
