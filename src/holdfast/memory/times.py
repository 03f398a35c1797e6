"""Times that a query names: "in July 2023", "on 5 May", "2023-07-05"."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_MONTHS = (
    "january february march april may june july august september october november december"
).split()
_NAMED = re.compile(
    rf"\b(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{'|'.join(_MONTHS)})\b"
    r"(?:,? (?P<after>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?(?:,? (?P<year>\d{4})\b)?",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"\b(?P<year>\d{4})-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b")


class NamedTime(msgspec.Struct, frozen=True):
    """A month of some year, or a day of it; 0 where the query leaves it open."""

    year: int
    month: int
    day: int


def find_named_times(text: str) -> tuple[NamedTime, ...]:
    """Return the months and days that a text names, in English or as in 2023-07-05."""
    found = {*_iterate_spoken(text), *_iterate_dated(text)}
    return tuple(one for one in sorted(found, key=repr) if one.month in range(1, 13))


def _iterate_spoken(text: str) -> Iterator[NamedTime]:
    for match in _NAMED.finditer(text):
        day, year = int(match["day"] or match["after"] or 0), int(match["year"] or 0)
        # "may" is more often a verb.
        if match["month"] != "may" or day or year:
            yield NamedTime(year, _MONTHS.index(match["month"].lower()) + 1, min(day, 31))


def _iterate_dated(text: str) -> Iterator[NamedTime]:
    for match in _WRITTEN.finditer(text):
        yield NamedTime(int(match["year"]), int(match["month"]), min(int(match["day"] or 0), 31))


__all__ = ["NamedTime", "find_named_times"]
