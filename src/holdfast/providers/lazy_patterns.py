"""Regular expressions that are compiled when they are first used.

To compile one takes up to a millisecond, and of those that a module has most programs use few.
"""

from __future__ import annotations

import re
from typing import Any, cast


def compile_on_use(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return what `re.compile` would return, which is made with the first look at it."""
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


class _LazyPattern:
    """Stands for a pattern; each of its methods is looked up once."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a pattern has
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found
