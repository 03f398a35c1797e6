"""Previews on a terminal: an image as coloured blocks, a table as a table, text as text.

Contents are foreign: nothing of them is obeyed by the terminal, and no image makes more work
than its size on the screen is worth.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import struct
import sys
import zlib

from holdfast.cli.frame import Invocation
from holdfast.cli.output import has_color, make_printable

MOST_PREVIEW_BYTES = 4 * 1024 * 1024
"""A preview looks at no more than this of a content; an image must fit whole."""
_MOST_PIXELS = 4_000_000
_MOST_LINES = 40
_MOST_COLUMNS = 12
_WIDTH = 60
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_Rgb = tuple[int, int, int]


def show_preview(invocation: Invocation, media_type: str, data: bytes) -> None:
    """Draw a preview of a content on the terminal, if there is a form for it."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "image/png" and has_color(invocation, sys.stdout):
        rows = _read_png(data)
        if rows:
            sys.stdout.write(_draw(rows))
            return
    if kind in ("text/csv", "text/tab-separated-values"):
        _show_table(data.decode(errors="replace"), "\t" if kind.endswith("values") else ",")
    elif kind == "application/json":
        _show_text(_indent_text(data.decode(errors="replace")))
    elif kind.startswith("text/") or _is_text(data):
        _show_text(data.decode(errors="replace"))
    else:
        sys.stdout.write(f"({kind or 'no known type'}: no preview; `artifacts get` writes it)\n")


# --- text and tables ------------------------------------------------------------------


def _is_text(data: bytes) -> bool:
    head = data[:4096]
    if b"\0" in head:
        return False
    try:
        head[: -3 if len(head) == 4096 else None].decode()
    except UnicodeDecodeError:
        return False
    return True


def _indent_text(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _show_text(text: str) -> None:
    lines = text.splitlines()
    for line in lines[:_MOST_LINES]:
        sys.stdout.write(make_printable(line[:500]) + "\n")
    if len(lines) > _MOST_LINES:
        sys.stdout.write(f"… {len(lines) - _MOST_LINES} more lines\n")


def _show_table(text: str, delimiter: str) -> None:
    try:
        rows = list(csv.reader(io.StringIO(text[:1_000_000]), delimiter=delimiter))
    except csv.Error:
        _show_text(text)
        return
    if not rows:
        return
    table = importlib.import_module("rich.table").Table()
    for name in rows[0][:_MOST_COLUMNS]:
        table.add_column(_shorten_cell(name))
    for row in rows[1 : _MOST_LINES + 1]:
        table.add_row(*[_shorten_cell(cell) for cell in row[: len(rows[0])][:_MOST_COLUMNS]])
    importlib.import_module("rich.console").Console().print(table)
    if len(rows) > _MOST_LINES + 1:
        sys.stdout.write(f"… {len(rows) - _MOST_LINES - 1} more rows\n")


def _shorten_cell(text: str) -> str:
    escape: str = importlib.import_module("rich.markup").escape(make_printable(text[:200]))
    return escape


# --- images ---------------------------------------------------------------------------


def _draw(rows: list[list[_Rgb]]) -> str:
    """Return an image as half blocks: two rows of pixels in each line of text."""
    height, width = len(rows), len(rows[0])
    columns = min(_WIDTH, width)
    lines = max(1, min(height, height * columns // width) // 2)
    drawn = []
    for line in range(lines):
        cells = []
        for column in range(columns):
            x = column * width // columns
            top = rows[(2 * line) * height // (2 * lines)][x]
            low = rows[(2 * line + 1) * height // (2 * lines)][x]
            cells.append(f"\x1b[38;2;{top[0]};{top[1]};{top[2]};48;2;{low[0]};{low[1]};{low[2]}m▀")
        drawn.append("".join(cells) + "\x1b[0m\n")
    return "".join(drawn)


def _read_png(data: bytes) -> list[list[_Rgb]]:
    """Return the pixels of a PNG of eight bits without interlacing; nothing for any other."""
    try:
        return _read_pixels(data)
    except (struct.error, zlib.error, IndexError, KeyError, ValueError):
        return []


def _read_pixels(data: bytes) -> list[list[_Rgb]]:
    place, packed, palette = 8, [], b""
    width = height = kind = 0
    while place + 8 <= len(data):
        length, name = struct.unpack(">I4s", data[place : place + 8])
        body = data[place + 8 : place + 8 + length]
        place += length + 12
        if name == b"IHDR":
            width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            if depth != 8 or interlaced or not 0 < width * height <= _MOST_PIXELS:
                return []
        elif name == b"PLTE":
            palette = body
        elif name == b"IDAT":
            packed.append(body)
        elif name == b"IEND":
            break
    channels = _CHANNELS[kind]
    stride = width * channels
    # Never more than the header promised, whatever was packed.
    raw = zlib.decompressobj().decompress(b"".join(packed), (stride + 1) * height)
    rows, before = [], bytes(stride)
    for number in range(height):
        start = number * (stride + 1)
        line = raw[start + 1 : start + 1 + stride]
        if len(line) < stride:
            break
        before = _undo_filter(raw[start], bytearray(line), before, channels)
        rows.append([_read_color(before, x * channels, kind, palette) for x in range(width)])
    return rows


def _read_color(row: bytes, at: int, kind: int, palette: bytes) -> _Rgb:
    if kind in (0, 4):
        return (row[at],) * 3
    if kind == 3:
        at, row = row[at] * 3, palette
    return row[at], row[at + 1], row[at + 2]


def _undo_filter(kind: int, row: bytearray, above: bytes, step: int) -> bytes:
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[i]
        elif kind == 3:
            guess = (left + above[i]) // 2
        elif kind == 4:
            guess = _predict_paeth(left, above[i], above[i - step] if i >= step else 0)
        else:
            guess = 0
        row[i] = (row[i] + guess) & 255
    return bytes(row)


def _predict_paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    near = [(abs(guess - one), number) for number, one in enumerate((left, above, corner))]
    return (left, above, corner)[min(near)[1]]


__all__ = ["MOST_PREVIEW_BYTES", "show_preview"]
