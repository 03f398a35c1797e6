"""What people see of a call: what it is about to do, and what came of it.

A command is shown as it is typed, a change as a diff; both before they happen, and after. Lines
come with the name of a colour; foreign text is made harmless where they are printed.
"""

from __future__ import annotations

import msgspec

from holdfast.messages import ToolPart

Line = tuple[str, str]
"""A line, and its colour."""

_MOST_BEFORE = 20
_MOST_OUTPUT = 12
_MOST_DIFF = 40
_WIDTH = 160
_SHORT = 100
_QUIET = "bright_black"


def is_shown_before(part: ToolPart) -> bool:
    """Say whether people want to see a call before it runs: it does more than look."""
    return "command" in part.input or _is_change(part)


def describe_before(part: ToolPart, path: str = "") -> list[Line]:
    """Return what a call is about to do: its command, or its change as a diff."""
    if isinstance(command := part.input.get("command"), str):
        first, *rest = command.splitlines() or [""]
        lines = [(f"● {_name(part, path)} $ {first}", "cyan")]
        return lines + _cut([(f"  {line}", "cyan") for line in rest], _MOST_BEFORE)
    if _is_change(part):
        lines = [(f"● {_name(part, path)} {part.input.get('file_path', '')}", "cyan")]
        return lines + _cut(_list_wanted(part), _MOST_BEFORE)
    return [(f"● {_name(part, path)} {brief_arguments(part)}", "cyan")]


def describe_after(part: ToolPart, path: str = "") -> list[Line]:
    """Return how a call ended, in a line, and the output of a command or the diff of a change."""
    is_done = part.state == "completed"
    mark, colour = ("✓", "green") if is_done else ("✗", "red")
    if "command" in part.input:
        command = str(part.input["command"]).partition("\n")[0]
        code = part.metadata.get("exit_code")
        told = f"{mark} {_name(part, path)} $ {command}"
        told += f" (exit code {code})" if code else ""
        lines = [(_shorten(told, _SHORT), colour)]
        text = part.output or part.error
        return lines if text == "[exit code 0]" else lines + _list_output(text)
    if is_done and "diff" in part.metadata:
        counts = f"+{part.metadata.get('added', 0)} -{part.metadata.get('removed', 0)}"
        lines = [(f"{mark} {_name(part, path)} {part.title} {counts}", colour)]
        if part.tool == "write" or part.metadata.get("edited_by"):
            # What was announced were the new lines; this is what they replaced.
            lines += _list_diff(str(part.metadata["diff"]))
        return lines
    told = f"{mark} {_name(part, path)} {part.title or brief_arguments(part)}"
    told += f": {part.error}" if part.error else ""
    return [(_shorten(told, _SHORT), colour)]


def color_diff(text: str) -> list[Line]:
    """Return the lines of a text, coloured as those of a diff if it is one."""
    lines = text.splitlines()
    is_diff = any(line.startswith("@@ ") for line in lines)
    return [(line, _color_of(line) if is_diff else "") for line in lines]


def brief_arguments(part: ToolPart) -> str:
    """Return the arguments of a call in one line."""
    return ", ".join(f"{key}={_flat(value)}" for key, value in part.input.items())


def _flat(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _shorten(text, 60)


def _name(part: ToolPart, path: str) -> str:
    return f"{path} {part.tool}" if path else part.tool


def _is_change(part: ToolPart) -> bool:
    return "file_path" in part.input and bool({"content", "new_string", "edits"} & set(part.input))


def _list_wanted(part: ToolPart) -> list[Line]:
    """Return what a change wants to remove and to add, by its arguments alone."""
    given = part.input
    edits = given.get("edits")
    if not isinstance(edits, list):
        edits = [given]
    lines: list[Line] = []
    for edit in edits:
        if isinstance(edit, dict):
            old = str(edit.get("old_string") or "")
            new = str(edit.get("new_string") or edit.get("content") or "")
            lines += [(f"  -{line}", "red") for line in old.splitlines()]
            lines += [(f"  +{line}", "green") for line in new.splitlines()]
    return lines


def _list_diff(text: str) -> list[Line]:
    # The names of the file stand above already.
    lines = [line for line in text.splitlines() if not line.startswith(("--- ", "+++ "))]
    return _cut([(f"  {line}", _color_of(line)) for line in lines], _MOST_DIFF)


def _color_of(line: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], _QUIET)


def _list_output(text: str) -> list[Line]:
    """Return the end of an output: there is what matters when something went wrong."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - _MOST_OUTPUT
    shown = [
        (f"  {_shorten(line, _WIDTH, is_flat=False)}", _QUIET) for line in lines[-_MOST_OUTPUT:]
    ]
    return [(f"  … {left_out} lines before", _QUIET), *shown] if left_out > 0 else shown


def _cut(lines: list[Line], most: int) -> list[Line]:
    shown = [(_shorten(text, _WIDTH, is_flat=False), colour) for text, colour in lines[:most]]
    if len(lines) > most:
        shown.append((f"  … {len(lines) - most} more lines", _QUIET))
    return shown


def _shorten(text: str, most: int, *, is_flat: bool = True) -> str:
    flat = " ".join(text.split()) if is_flat else text
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


__all__ = [
    "Line",
    "brief_arguments",
    "color_diff",
    "describe_after",
    "describe_before",
    "is_shown_before",
]
