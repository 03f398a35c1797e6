"""Print results: a table or fields for people, JSON for programs.

All commands print through `emit` (or `say` for a sentence), so that `-o`, `--json`,
`--no-color` and NO_COLOR hold everywhere. Text that comes from elsewhere is made
harmless first: it cannot move the cursor, recolour or reorder what is on the screen.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from os import PathLike
from typing import IO, Any, Final

import click

from holdfast.cli.frame import Invocation
from holdfast.settings import is_color_unwanted

__all__ = ["emit", "make_printable", "paint", "say"]

# Controls except tab and newline, and the marks that reorder text.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
_GAP: Final = "  "


def make_printable(text: str) -> str:
    """The text with every control character shown as an escape instead of obeyed."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def has_color(invocation: Invocation, stream: IO[str]) -> bool:
    """Whether colours are welcome: a terminal, no --no-color, no NO_COLOR, not dumb."""
    return stream.isatty() and not invocation.no_color and not is_color_unwanted()


def paint(text: str, color: str, invocation: Invocation, *, stream: IO[str] | None = None) -> str:
    """The text in a colour, or plain without one and where colours are not welcome."""
    if color and has_color(invocation, stream or sys.stdout):
        return click.style(text, fg=color)
    return text


def say(text: str, *, err: bool = False, color: str = "") -> None:
    """Print a sentence for people, made harmless; silent when the output is JSON."""
    invocation = _find_invocation()
    if invocation.is_text:
        shown, stream = make_printable(text), sys.stderr if err else sys.stdout
        click.echo(paint(shown, color, invocation, stream=stream), err=err)


def emit(
    result: Mapping[str, object] | Iterable[Mapping[str, object]],
    *,
    columns: Sequence[str] = (),
    style: Callable[[str, str], str | None] | None = None,
) -> None:
    """Print one object or many rows in the form that the call asked for.

    text: an object as `key  value` lines, rows as a table of `columns` (all keys of the
    first row if none are named): fitted to the terminal, or plain and never cut when
    piped. json: the whole result, with all keys. stream-json: one line per row.
    `style(column, cell)` may name a colour for a cell.
    """
    invocation = _find_invocation()
    if invocation.is_text:
        if isinstance(result, Mapping):
            rows = [{"key": key, "value": value} for key, value in result.items()]
            _print_table(rows, ["key", "value"], invocation, style, has_header=False)
        else:
            listed = list(result)
            names = list(columns) or (list(listed[0]) if listed else [])
            _print_table(listed, names, invocation, style, has_header=True)
    elif invocation.output == "stream-json":
        for row in [result] if isinstance(result, Mapping) else result:
            click.echo(_to_json(row))
    else:
        whole = result if isinstance(result, Mapping) else list(result)
        click.echo(_to_json(whole, indent=2))


def _find_invocation() -> Invocation:
    context = click.get_current_context(silent=True)
    found = context.find_object(Invocation) if context else None
    return found or Invocation()


def _to_json(value: object, *, indent: int | None = None) -> str:
    is_ascii = not (sys.stdout.encoding or "ascii").lower().startswith("utf")
    return json.dumps(value, indent=indent, ensure_ascii=is_ascii, default=_simplify)


def _simplify(value: Any) -> object:  # noqa: ANN401 - whatever a command printed
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset | tuple):
        return sorted(value, key=str) if not isinstance(value, tuple) else list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "__struct_fields__"):
        built: object = importlib.import_module("msgspec").to_builtins(value)
        return built
    return str(value)


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return ", ".join(_format_cell(item) for item in value)
    if isinstance(value, Mapping):
        return _to_json(value)
    return make_printable(str(value))


def _print_table(
    rows: list[Any] | list[dict[str, object]],
    names: list[str],
    invocation: Invocation,
    style: Callable[[str, str], str | None] | None,
    *,
    has_header: bool,
) -> None:
    cells = [[_format_cell(row.get(name)) for name in names] for row in rows]
    if sys.stdout.isatty():
        _print_rich(cells, names, invocation, style, has_header=has_header)
        return
    lines = [[name.upper() for name in names], *cells] if has_header else cells
    flat = [[cell.replace("\n", " ").replace("\t", " ") for cell in line] for line in lines]
    widths = [max((len(line[place]) for line in flat), default=0) for place in range(len(names))]
    for line in flat:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(_GAP.join(padded).rstrip())


def _print_rich(
    cells: list[list[str]],
    names: list[str],
    invocation: Invocation,
    style: Callable[[str, str], str | None] | None,
    *,
    has_header: bool,
) -> None:
    """Draw the table with rich, which is loaded only here."""
    tables = importlib.import_module("rich.table")
    texts = importlib.import_module("rich.text")
    console = importlib.import_module("rich.console").Console(
        file=sys.stdout, no_color=not has_color(invocation, sys.stdout), highlight=False
    )
    table = tables.Table(box=None, show_header=has_header, pad_edge=False, header_style="bold")
    for place, name in enumerate(names):
        table.add_column(name.upper(), overflow="fold", no_wrap=place == 0 and len(names) > 1)
    for line in cells:
        painted = [
            texts.Text(cell, style=(style(name, cell) or "") if style else "")
            for name, cell in zip(names, line, strict=True)
        ]
        table.add_row(*painted)
    console.print(table)
