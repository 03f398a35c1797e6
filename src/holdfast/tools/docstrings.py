"""Read the purpose and the argument descriptions out of a docstring.

Understands the three styles in use: Google (`Args:`), NumPy (`Parameters` underlined)
and Sphinx (`:param x:`). Whatever is not understood is left in the purpose.
"""

from __future__ import annotations

import inspect
import re

import msgspec

_GOOGLE = re.compile(
    r"^((keyword )?(args|arguments)|(other )?parameters|params):\s*$", re.IGNORECASE
)
_GOOGLE_OTHER = re.compile(
    r"^(returns?|yields?|raises|examples?|notes?|warnings?|see also|attributes|references):\s*$",
    re.IGNORECASE,
)
_GOOGLE_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")
_SPHINX_ITEM = re.compile(
    r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_SPHINX_OTHER = re.compile(r"^:\w+[^:]*:")
_NUMPY_ITEM = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_NUMPY_ARGUMENTS = ("parameters", "other parameters", "arguments")
_NUMPY_OTHER = (
    *("returns", "yields", "receives", "raises", "warns", "warnings", "see also", "notes"),
    *("references", "examples", "attributes", "methods"),
)
_UNDERLINE = re.compile(r"^-{3,}\s*$")


class Docstring(msgspec.Struct, frozen=True, kw_only=True):
    """The purpose, and a description for each argument that has one."""

    purpose: str
    arguments: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Split a docstring; an empty or missing one gives empty parts."""
    lines = inspect.cleandoc(text or "").splitlines()
    purpose: list[str] = []
    arguments: dict[str, str] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        is_underlined = index + 1 < len(lines) and _UNDERLINE.match(lines[index + 1])
        heading = line.strip().lower() if is_underlined else ""
        if _GOOGLE.match(line):
            body, index = _indent(lines, index + 1)
            arguments.update(_list_items(body, _GOOGLE_ITEM))
        elif _GOOGLE_OTHER.match(line):
            _, index = _indent(lines, index + 1)
        elif heading in _NUMPY_ARGUMENTS:
            body, index = _read_until_underlined(lines, index + 2)
            arguments.update(_list_items(body, _NUMPY_ITEM))
        elif heading in _NUMPY_OTHER:
            _, index = _read_until_underlined(lines, index + 2)
        elif found := _SPHINX_ITEM.match(line):
            body, index = _indent(lines, index + 1)
            arguments[found[1]] = _join_flow([found[2], *body])
        elif _SPHINX_OTHER.match(line):
            _, index = _indent(lines, index + 1)
        else:
            purpose.append(line)
            index += 1
    return Docstring(purpose="\n".join(purpose).strip(), arguments=arguments)


def _indent(lines: list[str], start: int) -> tuple[list[str], int]:
    """The indented block that begins at `start`, and where it ends."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return lines[start:end], end


def _read_until_underlined(lines: list[str], start: int) -> tuple[list[str], int]:
    """The lines up to the next underlined heading, and where it begins."""
    for end in range(start, len(lines) - 1):
        if lines[end].strip() and _UNDERLINE.match(lines[end + 1]):
            return lines[start:end], end
    return lines[start:], len(lines)


def _list_items(body: list[str], item: re.Pattern[str]) -> dict[str, str]:
    """The entries of a block: each starts at the block's own indentation."""
    depths = [len(line) - len(line.lstrip()) for line in body if line.strip()]
    if not depths:
        return {}
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body:
        text = line[min(depths) :]
        is_start = bool(text) and not text[0].isspace()
        match = item.match(text.rstrip()) if is_start else None
        if is_start:
            current = [match[2] if match and item.groups > 1 else ""]
            names = match[1].split(",") if match else ()
            found.update({name.strip(): current for name in names})
        else:
            current.append(text)
    return {name: _join_flow(parts) for name, parts in found.items()}


def _join_flow(parts: list[str]) -> str:
    """Join the lines of a description into one paragraph."""
    return " ".join(part.strip() for part in parts if part.strip())
