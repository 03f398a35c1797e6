"""Regular expressions of strangers, matched in a time that grows with the text alone.

Python's `re` backtracks: a bad expression, or a text made for a good one, keeps it busy for
ever (ReDoS). The engine that pydantic brings (Rust's `regex`) never does. It has no
lookaround and no back references. What is left to bound is how far counted repetitions
unfold (`(a{100}){100}` is 10,000 states, and each is a step for each character), which
`size` says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import msgspec

from holdfast.errors import UsageError

MAX_LENGTH = 2_000
MAX_SIZE = 10_000
# Making it would take 0.1 s and more, and end at the engine's own limit of memory.
MAX_COST = 25_000
SYNTAX = "no lookaround, no back references; the syntax is that of ripgrep"

_COUNT = r"\{\s*(\d{1,9})\s*(?:,\s*(\d{0,9})\s*)?\}"
_VERBOSE = r"\(\?[a-wyzA-Z]*x[a-zA-Z-]*[:)]"
_WITH_BRACES = frozenset("pPxuUb")
_UNICODE_CLASSES = frozenset("wWpP")
_UNICODE_COST = 100


class LinearPattern(msgspec.Struct, frozen=True):
    """An expression that is ready to search texts.

    `size` bounds its states, so a search costs at most `size` steps per character; `cost`
    is what making it took, in the same kind of steps.
    """

    source: str
    size: int
    cost: int
    matches: Callable[[str], bool]
    """Whether it occurs anywhere in a text."""


@functools.lru_cache(maxsize=256)
def compile_linear(source: str, *, is_case_ignored: bool = False) -> LinearPattern:
    """Make a pattern of an expression.

    Raises:
        UsageError: it is not valid here, or too large; the text says which and what helps.
    """
    if len(source) > MAX_LENGTH:
        raise UsageError(detail=f"an expression has at most {MAX_LENGTH} characters")
    if re.search(_VERBOSE, source):
        raise UsageError(detail="the flag x (verbose) is not supported; write it without blanks")
    size, cost = measure_pattern(source)
    if size > MAX_SIZE or cost > MAX_COST:
        raise UsageError(detail="its counted repetitions, as {100}, unfold too far; use * or +")
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - on use

    flagged = f"(?i){source}" if is_case_ignored else source
    try:
        made = SchemaValidator(core_schema.str_schema(pattern=flagged, regex_engine="rust-regex"))
    except SchemaError as error:
        raise UsageError(detail=_explain(str(error))) from error
    return LinearPattern(source, size, cost, made.isinstance_python)


def _explain(text: str) -> str:
    """Return the engine's own sentence, without the frames around it."""
    said = text.rpartition("error: ")[2].strip()
    if "size limit" in said:
        return "it is too large once it is compiled; use * or + instead of counted repetitions"
    return said.splitlines()[0]


def measure_pattern(source: str) -> tuple[int, int]:
    """Bound the states that an expression unfolds into, and the steps of making them.

    Quick, and right for every expression that `compile_linear` takes.
    """
    groups: list[tuple[int, int]] = [(0, 0)]  # what stands in each open group so far
    atom = (0, 0)  # the last thing, which a count would repeat
    index = 0
    while index < len(source):
        char = source[index]
        if char == "(":
            groups[-1] = _add(groups[-1], atom)
            groups.append((0, 0))
            atom = (0, 0)
            index += 1
        elif char == ")" and len(groups) > 1:
            atom = _add(groups.pop(), atom)
            index += 1
        elif char == "{" and (count := re.compile(_COUNT).match(source, index)):
            times = max(int(count[1]), int(count[2] or 0)) + (count[2] == "")
            atom = (atom[0] * times, atom[1] * times)
            index = count.end()
        elif char in "*+?|":
            index += 1
        else:
            end = _find_atom_end(source, index)
            groups[-1] = _add(groups[-1], atom)
            is_wide = any(f"\\{one}" in source[index:end] for one in _UNICODE_CLASSES)
            atom = (1, _UNICODE_COST if is_wide else 2)
            index = end
    total = atom
    for group in groups:
        total = _add(total, group)
    return total


def _add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0] + right[0], left[1] + right[1]


def _find_atom_end(source: str, start: int) -> int:
    if source[start] == "\\":
        end = start + 2
        if source[start + 1 : end] in _WITH_BRACES and source[end : end + 1] == "{":
            closed = source.find("}", end)
            return closed + 1 if closed >= 0 else len(source)
        return end
    if source[start] == "[":
        return find_class_end(source, start)
    return start + 1


def find_class_end(source: str, start: int) -> int:
    """Find the end of a class; classes nest (`[a[bc]]`), and a first `]` is a character."""
    depth, index = 0, start
    while index < len(source):
        char = source[index]
        if char == "\\":
            index += 1
        elif char == "[":
            depth += 1
            index += source[index + 1 : index + 2] == "^"
            index += source[index + 1 : index + 2] == "]"
        elif char == "]":
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    return len(source)


__all__ = [
    "MAX_COST",
    "MAX_LENGTH",
    "SYNTAX",
    "LinearPattern",
    "compile_linear",
    "find_class_end",
    "measure_pattern",
]
