"""Render a Jupyter notebook as text and images."""

from __future__ import annotations

import base64
import binascii
import functools
import re

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import FilePart

_MAX_IMAGES = 8
_MAX_IMAGE_BYTES = 5 * 1024 * 1024
_MAX_OUTPUT = 4_000


@functools.cache
def _compile_ansi() -> re.Pattern[str]:
    return re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class _Output(msgspec.Struct):
    output_type: str = ""
    text: str | list[str] = ""
    data: JsonObject = {}
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class _Cell(msgspec.Struct):
    cell_type: str = "raw"
    source: str | list[str] = ""
    id: str = ""
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell]


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a notebook, and the images of its outputs."""

    text: str
    images: tuple[FilePart, ...]


def render_notebook(text: str) -> Rendered | None:
    """Return the cells with their outputs, or None if the text is no notebook."""
    try:
        notebook = msgspec.json.decode(text.encode(), type=_Notebook)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    lines: list[str] = []
    images: list[FilePart] = []
    for number, cell in enumerate(notebook.cells, start=1):
        mark = f" id={cell.id}" if cell.id else ""
        lines += [f"--- cell {number} ({cell.cell_type}){mark}", _join(cell.source)]
        for output in cell.outputs:
            lines += ["--- output", _render(output, images)]
    return Rendered(text="\n".join(lines), images=tuple(images))


def _join(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _render(output: _Output, images: list[FilePart]) -> str:
    if output.output_type == "error":
        shown = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
    elif output.output_type == "stream":
        shown = _join(output.text)
    else:
        plain = output.data.get("text/plain", "")
        shown = _join(plain if isinstance(plain, str | list) else "")
        for media_type in ("image/png", "image/jpeg"):
            image = _read_image(output.data.get(media_type), media_type)
            if image is not None and len(images) < _MAX_IMAGES:
                images.append(image)
                shown += f"\n(image {len(images)}: {media_type})"
    shown = _compile_ansi().sub("", shown).strip("\n")
    return shown if len(shown) <= _MAX_OUTPUT else f"{shown[:_MAX_OUTPUT]}… (output cut)"


def _read_image(value: object, media_type: str) -> FilePart | None:
    if isinstance(value, list):
        value = "".join(str(part) for part in value)
    if not isinstance(value, str) or len(value) > _MAX_IMAGE_BYTES * 2:
        return None
    try:
        data = base64.b64decode(value, validate=False)
    except (binascii.Error, ValueError):
        return None
    return FilePart(media_type=media_type, data=data)
