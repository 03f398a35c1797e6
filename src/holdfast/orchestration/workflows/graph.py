"""A workflow as a picture: Mermaid text, or SVG drawn with a small layered layout.

Steps are boxes, blocks are boxes around boxes, arrows say what waits for what. Nothing of a
workflow reaches the picture unescaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from holdfast.canonical import JsonObject
from holdfast.orchestration.workflows.definition import Definition, WorkflowStep
from holdfast.orchestration.workflows.order import list_layers, list_needs

_CHAR = 7
_LINE = 16
_PAD = 14
_GAP_X = 24
_GAP_Y = 34
_LONGEST = 44
_COLORS = {
    "tool": "#dbeafe",
    "agent": "#dcfce7",
    "workflow": "#fef3c7",
    "state": "#e0f2fe",
    "value": "#f3f4f6",
    "parallel": "#ffffff",
    "if": "#ffffff",
    "loop": "#ffffff",
    "branch": "#fafafa",
}


@dataclass(frozen=True, kw_only=True)
class Box:
    """A step, or a block with the boxes inside it and the arrows between them."""

    id: str
    kind: str
    lines: tuple[str, ...]
    inside: tuple[Box, ...] = ()
    arrows: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def draw_boxes(definition: Definition) -> Box:
    """Return a workflow as boxes in boxes."""
    return _block(definition.name, "workflow", (definition.name,), definition.steps)


def _block(
    id: str,
    kind: str,
    lines: tuple[str, ...],
    steps: Sequence[WorkflowStep],
    *,
    is_parallel: bool = False,
) -> Box:
    needs = list_needs(steps, is_parallel=is_parallel)
    return Box(
        id=id,
        kind=kind,
        lines=lines,
        inside=tuple(_make_box(step) for step in steps),
        arrows=tuple((one, step.id) for step in steps for one in sorted(needs[step.id])),
        rows=tuple(tuple(row) for row in list_layers(needs)),
    )


def _make_box(step: WorkflowStep) -> Box:
    lines = [step.id, _shorten(step.does)] if step.does != step.kind else [step.id, step.kind]
    if step.when is not None:
        lines.append(_shorten(f"when {step.when}"))
    if step.on_error == "continue":
        lines.append("goes on after a failure")
    if step.retry is not None:
        lines.append(f"up to {step.retry.attempts} attempts")
    told = tuple(lines)
    if step.parallel is not None:
        return _block(step.id, "parallel", told, step.parallel, is_parallel=True)
    if step.steps is not None:
        return _block(step.id, "loop", told, step.steps)
    if step.then is not None:
        branches = [("then", step.then), ("else", step.else_ or ())]
        inside = tuple(
            _block(f"{step.id}.{key}", "branch", (key,), steps) for key, steps in branches if steps
        )
        row = tuple(one.id for one in inside)
        return Box(id=step.id, kind="if", lines=told, inside=inside, rows=(row,))
    return Box(id=step.id, kind=step.kind, lines=told)


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


# --- plain data and Mermaid -------------------------------------------------------------


def to_json(definition: Definition) -> JsonObject:
    """Return the graph as nodes and edges."""
    nodes: list[JsonObject] = []
    edges: list[JsonObject] = []

    def walk(box: Box, parent: str) -> None:
        for one in box.inside:
            nodes.append(
                {"id": one.id, "kind": one.kind, "label": list(one.lines), "parent": parent}
            )
            walk(one, one.id)
        edges.extend({"from": start, "to": end} for start, end in box.arrows)

    walk(draw_boxes(definition), "")
    return {"name": definition.name, "nodes": nodes, "edges": edges}


def to_mermaid(definition: Definition) -> str:
    """Return the graph as a Mermaid flowchart."""
    out = ["flowchart TD"]
    names: dict[str, str] = {}

    def name(id: str) -> str:
        return names.setdefault(id, f"n{len(names)}")

    def walk(box: Box, indent: str) -> None:
        for one in box.inside:
            label = "<br/>".join(_render_mermaid(line) for line in one.lines)
            if not one.inside:
                out.append(f'{indent}{name(one.id)}["{label}"]')
                continue
            out.append(f'{indent}subgraph {name(one.id)}["{label}"]')
            walk(one, indent + "  ")
            out.append(f"{indent}end")
        out.extend(f"{indent}{name(start)} --> {name(end)}" for start, end in box.arrows)

    walk(draw_boxes(definition), "  ")
    return "\n".join(out) + "\n"


def _render_mermaid(text: str) -> str:
    """Write everything that could mean something to Mermaid or HTML as a character's number."""
    return "".join(
        char if char.isalnum() or char in " _-.,…" else f"#{ord(char)};" for char in text
    )


# --- SVG ---------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Placed:
    box: Box
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    inside: dict[str, _Placed] = field(default_factory=dict)


def to_svg(definition: Definition) -> str:
    """Return the graph as an SVG picture that needs nothing else."""
    root = _place(draw_boxes(definition))
    shapes: list[str] = []
    _draw(root, 0.0, 0.0, shapes)
    width, height = round(root.width), round(root.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(definition.name)}" font-family="sans-serif" font-size="12">'
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#475569"/>'
        "</marker></defs>"
    )
    return "\n".join([head, marker, *shapes, "</svg>"]) + "\n"


def _place(box: Box) -> _Placed:
    """Lay out a box: rows from top to bottom, each centred."""
    title = max(len(line) for line in box.lines) * _CHAR + 2 * _PAD
    top = len(box.lines) * _LINE + _PAD
    if not box.inside:
        return _Placed(box=box, width=title, height=top + 4)
    inside = {one.id: _place(one) for one in box.inside}
    rows = [[inside[id] for id in row] for row in box.rows]
    widths = [sum(one.width for one in row) + _GAP_X * (len(row) - 1) for row in rows]
    width = max(title, *widths, 0.0) if widths else float(title)
    y = float(top + _PAD)
    for row, taken in zip(rows, widths, strict=True):
        x = _PAD + (width - taken) / 2
        for one in row:
            one.x, one.y = x, y
            x += one.width + _GAP_X
        y += max(one.height for one in row) + _GAP_Y
    return _Placed(box=box, width=width + 2 * _PAD, height=y - _GAP_Y + _PAD, inside=inside)


def _draw(placed: _Placed, left: float, above: float, shapes: list[str]) -> None:
    box = placed.box
    dash = ' stroke-dasharray="4 3"' if box.inside else ""
    shapes.append(
        f'<rect x="{left + 1:.1f}" y="{above + 1:.1f}" width="{placed.width - 2:.1f}" '
        f'height="{placed.height - 2:.1f}" rx="8" fill="{_COLORS[box.kind]}" '
        f'stroke="#64748b"{dash}/>'
    )
    for number, line in enumerate(box.lines):
        weight = ' font-weight="bold"' if number == 0 else ' fill="#475569"'
        shapes.append(
            f'<text x="{left + placed.width / 2:.1f}" y="{above + _PAD + number * _LINE + 4:.1f}" '
            f'text-anchor="middle"{weight}>{_escape_xml(line)}</text>'
        )
    for one in placed.inside.values():
        _draw(one, left + one.x, above + one.y, shapes)
    for start, end in box.arrows:
        shapes.append(_render_arrow(placed.inside[start], placed.inside[end], left, above))


def _render_arrow(start: _Placed, end: _Placed, left: float, above: float) -> str:
    x1, y1 = left + start.x + start.width / 2, above + start.y + start.height
    x2, y2 = left + end.x + end.width / 2, above + end.y
    middle = (y1 + y2) / 2
    return (
        f'<path d="M{x1:.1f} {y1:.1f} C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} '
        f'{x2:.1f} {y2:.1f}" fill="none" stroke="#475569" marker-end="url(#tip)"/>'
    )


def _escape_xml(text: str) -> str:
    """Escape a text; what XML cannot hold at all is left out."""
    return escape(
        "".join(c for c in text if c in "\t\n" or ord(c) >= 32 and c not in "\ufffe\uffff")
    )


__all__ = ["Box", "draw_boxes", "to_json", "to_mermaid", "to_svg"]
