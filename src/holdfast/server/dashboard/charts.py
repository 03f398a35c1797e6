"""Drawings as SVG, with positions as attributes: no style and no script stands in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.server.dashboard.words import Markup

_WIDTH: Final = 720
_HEIGHT: Final = 190
_LEFT: Final = 56
_FOOT: Final = 24


def draw_columns(points: Sequence[tuple[str, float, str]], *, title: str) -> Markup:
    """Return columns by name: each has a name, a height, and the words for it."""
    most = max((value for _, value, _ in points), default=0.0) or 1.0
    step = (_WIDTH - _LEFT) / max(1, len(points))
    room = _HEIGHT - _FOOT - 14
    shown = []
    for part in (0.0, 0.5, 1.0):
        y = _HEIGHT - _FOOT - room * part
        shown.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                _LEFT, _WIDTH, y, y
            )
        )
    every = max(1, len(points) // 8)
    for index, (name, value, words) in enumerate(points):
        height = room * value / most
        x = _LEFT + index * step
        shown.append(
            Markup(
                '<rect class="col" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="2">'
                "<title>{}: {}</title></rect>"
            ).format(
                x + step * 0.12,
                _HEIGHT - _FOOT - height,
                step * 0.76,
                max(height, 0.5),
                name,
                words,
            )
        )
        if index % every == 0:
            shown.append(
                Markup('<text x="{:.1f}" y="{}">{}</text>').format(x, _HEIGHT - 7, name[5:])
            )
    top = max(points, key=lambda one: one[1])[2] if points else ""
    shown.append(Markup('<text x="0" y="18">{}</text>').format(top))
    shown.append(Markup('<text x="0" y="{}">0</text>').format(_HEIGHT - _FOOT))
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, Markup("").join(shown))


__all__ = ["draw_columns"]
