"""Data as people read it: times, spans, amounts, and JSON, as pieces of HTML that are safe."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from holdfast.clock import SYSTEM
from holdfast.errors import MissingExtra

try:
    from markupsafe import Markup, escape
except ImportError as _error:
    raise MissingExtra(what="the dashboard", package="jinja2", extra="server") from _error

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_LONGEST_JSON: Final = 20_000


def format_ago(then: float | None) -> Markup:
    """Return how long ago something was, with the exact time on hover."""
    if not then:
        return Markup('<span class="quiet">never</span>')
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(then))
    shown = format_exact(then)
    return Markup('<time datetime="{}" title="{}" data-then="{}">{}</time>').format(
        exact, shown, int(then), say_age(SYSTEM.now() - then)
    )


def format_exact(then: float) -> str:
    """Return a time as it is, for what is read later."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(then))


def say_age(passed: float) -> str:
    """Return an age in its largest unit; what is yet to come is said so."""
    if passed < -5:
        return f"in {_say_largest_unit(-passed)}"
    if passed < 5:
        return "just now"
    return f"{_say_largest_unit(passed)} ago"


def _say_largest_unit(seconds: float) -> str:
    for size, name in ((_DAY, "day"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if name == 'day' and count != 1 else ''}"
    return f"{seconds:.0f} s"


def format_span(seconds: float | None) -> str:
    """Return how long something took, in its largest units."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    days = round(seconds / _DAY)
    return f"{days} day" + ("s" if days != 1 else "")


def format_money(usd: float | None) -> str:
    """Return an amount in dollars, small ones with more digits; `unknown` without a price."""
    if usd is None:
        return "unknown"
    if usd == 0:
        return "$0"
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def format_count(number: float | None) -> str:
    """Return a number with separators, large ones in thousands or millions."""
    if number is None:
        return ""
    if number >= 10_000_000:
        return f"{number / 1_000_000:.1f} M"
    if number >= 100_000:
        return f"{number / 1000:.0f} k"
    return f"{number:,.0f}"


def format_bytes(size: float | None) -> str:
    """Return a size in its largest unit."""
    left = float(size or 0)
    for unit in ("B", "KB", "MB", "GB"):
        if left < 1000 or unit == "GB":
            whole = unit == "B" or left >= 100
            number = f"{left:.0f}" if whole else f"{left:.1f}"
            return f"{number}\N{NO-BREAK SPACE}{unit}"
        left /= 1000
    return ""


def format_json(value: object) -> str:
    """Return data as indented JSON, cut where it is too long to be read."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    return cut_text(text, _LONGEST_JSON)


def mark_code(text: str) -> Markup:
    """Return words with what stands between backticks as code; HTML stays as it is."""
    if isinstance(text, Markup):
        return text
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece)
        for index, piece in enumerate(pieces)
    )


def cut_text(text: str, most: int) -> str:
    """Return a text, or its beginning with how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most:,} more characters"


def cut_id(id: str) -> str:
    """Return the beginning of a long digest."""
    return f"{id[:12]}…" if len(id) > 16 else id


def shorten_id(id: str) -> str:
    """Return an id by which people tell things apart: its kind and its last characters."""
    kind, _, rest = id.partition("_")
    return f"{kind}…{rest[-6:]}" if len(rest) > 10 else id


FILTERS: Final[dict[str, Any]] = {
    "ago": format_ago,
    "exact": format_exact,
    "span": format_span,
    "money": format_money,
    "count": format_count,
    "bytes": format_bytes,
    "json": format_json,
    "cut": cut_text,
    "short": shorten_id,
    "cut_id": cut_id,
    "ticks": mark_code,
}

__all__ = [
    "FILTERS",
    "Markup",
    "cut_id",
    "cut_text",
    "escape",
    "format_ago",
    "format_bytes",
    "format_count",
    "format_exact",
    "format_json",
    "format_money",
    "format_span",
    "mark_code",
    "say_age",
    "shorten_id",
]
