"""Drawings as SVG, with positions as attributes: no style and no script stands in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.server.dashboard.history import Bar
from holdfast.server.dashboard.words import Markup, format_count, format_span

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


_ROW: Final = 22
_NAMES: Final = 170
_MOST_ROWS: Final = 250


def draw_waterfall(bars: Sequence[Bar], *, zoom: int = 1, link: str = "") -> Markup:
    """Return what happened when: a row for each bar, from left to right as time passed."""
    shown_bars = bars[-_MOST_ROWS:]
    if not shown_bars:
        return Markup("")
    first = min(bar.began for bar in shown_bars)
    whole = max(max(bar.ended for bar in shown_bars) - first, 0.001)
    width, height = 720 * zoom, _ROW * len(shown_bars) + 30
    room = width - _NAMES - 70
    shown = []
    for part in range(5):
        x = _NAMES + room * part / 4
        shown.append(
            Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="18" y2="{1}"/>').format(
                x, height
            )
        )
        shown.append(
            Markup('<text x="{:.1f}" y="12">{}</text>').format(x, format_span(whole * part / 4))
        )
    for index, bar in enumerate(shown_bars):
        y = 24 + index * _ROW
        x = _NAMES + room * (bar.began - first) / whole
        length = max(3.0, room * (bar.ended - bar.began) / whole)
        took = format_span(bar.ended - bar.began)
        shown.append(
            Markup(
                '<a href="{}#at-{}"><title>{}: {}</title><text class="label" x="0" y="{}">{}</text>'
                '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="14" rx="3"/>'
                '<text x="{:.1f}" y="{}">{}</text></a>'
            ).format(
                link,
                bar.at,
                bar.label,
                took,
                y + 12,
                bar.label if len(bar.label) < 25 else bar.label[:23] + "…",
                bar.kind,
                x,
                y + 1,
                length,
                x + length + 5,
                y + 12,
                took,
            )
        )
    frame = Markup(
        '<svg class="chart fall" viewBox="0 0 {0} {1}" width="{0}" height="{1}" '
        'aria-label="Timeline of the run" role="group">{2}</svg>'
    )
    return frame.format(width, height, Markup("").join(shown))


_SPARK: Final = 90
_MOST_POINTS: Final = 30


def draw_spark(points: Sequence[int]) -> Markup:
    """Return small columns, as many as fit: the newest answers with what each one took."""
    shown = points[-_MOST_POINTS:]
    most = max(shown, default=0) or 1
    step = _SPARK / max(len(shown), 12)
    columns = [
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            index * step, 18 - max(1.5, 17 * value / most), step * 0.72, max(1.5, 17 * value / most)
        )
        for index, value in enumerate(shown)
    ]
    told = f"{len(points)} answers, at most {format_count(most)} tokens" if shown else ""
    return Markup(
        '<svg class="spark" viewBox="0 0 90 18" role="img" aria-label="{0}"><title>{0}</title>'
        "{1}</svg>"
    ).format(told or "no answer yet", Markup("").join(columns))


class GraphStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a graph: what it waits for, how it stands, and where to read more of it."""

    name: str
    needs: Sequence[str] = ()
    status: str = ""
    label: str = ""
    link: str = ""


def draw_graph(steps: Sequence[GraphStep], *, title: str) -> Markup:
    """Return steps as boxes from left to right, each behind those that it waits for."""
    level: dict[str, int] = {}
    for _ in steps:  # they may stand in any order: again until none moves further back
        before = dict(level)
        for one in steps:
            level[one.name] = 1 + max([level.get(need, -1) for need in one.needs], default=-1)
        if level == before:
            break
    rows: dict[int, int] = {}
    at: dict[str, tuple[int, int]] = {}
    for step in steps:
        row = rows.get(level[step.name], 0)
        rows[level[step.name]] = row + 1
        at[step.name] = (level[step.name] * 190, row * 64 + 8)
    width = max([x for x, _ in at.values()], default=0) + 160
    height = max([y for _, y in at.values()], default=0) + 52
    shown = [
        Markup('<path class="edge" d="M{} {}C{} {} {} {} {} {}"/>').format(
            at[one][0] + 150,
            at[one][1] + 20,
            at[one][0] + 175,
            at[one][1] + 20,
            at[name][0] - 25,
            at[name][1] + 20,
            at[name][0],
            at[name][1] + 20,
        )
        for name, needs in [(step.name, step.needs) for step in steps]
        for one in needs
        if one in at
    ]
    shown += [_draw_step(step, *at[step.name]) for step in steps]
    frame = Markup(
        '<svg class="chart fall" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="{2}" '
        'aria-label="{3}">{4}</svg>'
    )
    role = "group" if any([step.link for step in steps]) else "img"
    return frame.format(width, height, role, title, Markup("").join(shown))


def _draw_step(step: GraphStep, x: int, y: int) -> Markup:
    name = step.label or step.name
    short = name if len(name) < 20 else name[:18] + "…"
    told = f"{name}: {step.status}" if step.status else name
    box = Markup(
        '<title>{}</title><rect class="box {}" x="{}" y="{}" width="150" height="40" rx="8"/>'
        '<text class="label" x="{}" y="{}">{}</text>'
    ).format(told, step.status, x + 1, y, x + 10, y + (18 if step.status else 25), short)
    if step.status:
        box += Markup('<text x="{}" y="{}">{}</text>').format(x + 10, y + 32, step.status)
    if step.link:
        return Markup('<a href="{}">{}</a>').format(step.link, box)
    return Markup("<g>{}</g>").format(box)


__all__ = ["GraphStep", "draw_columns", "draw_graph", "draw_spark", "draw_waterfall"]
