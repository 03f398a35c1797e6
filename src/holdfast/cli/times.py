"""Times for people: how long ago, how long, and on which day."""

from __future__ import annotations

import time

from holdfast.clock import SYSTEM

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY


def format_age(then: float, now: float | None = None) -> str:
    """Return how long ago something was, and after a week on which day."""
    if not then:
        return ""
    passed = max(0.0, (SYSTEM.now() if now is None else now) - then)
    if passed < 10:
        return "just now"
    if passed >= _WEEK:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    return f"{format_span(passed)} ago"


def format_span(seconds: float) -> str:
    """Return how long something takes or took, in its largest units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < _DAY:
        minutes = seconds % _HOUR // _MINUTE
        return f"{seconds // _HOUR:.0f} h" + (f" {minutes:.0f} min" if minutes else "")
    days = round(seconds / _DAY)
    return f"{days} day" + ("s" if days != 1 else "")


__all__ = ["format_age", "format_span"]
