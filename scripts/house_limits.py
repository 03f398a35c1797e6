"""List every file, function and class that is larger than the house likes.

A report for the writer and the reviewer, not a gate: where a limit makes a piece of
code worse, it is left, and the commit says why.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILE_LINES, FUNCTION_LINES, CLASS_METHODS = 600, 60, 25
Function = ast.FunctionDef | ast.AsyncFunctionDef


def oversize(root: Path) -> list[str]:
    """Return each breach as `path:line what size`."""
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > FILE_LINES:
            found.append(f"{path}:1 file of {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, Function) and (size := _body_lines(node)) > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno} function {node.name} of {size} lines")
            elif isinstance(node, ast.ClassDef):
                methods = sum(isinstance(child, Function) for child in node.body)
                if methods > CLASS_METHODS:
                    found.append(f"{path}:{node.lineno} class {node.name} of {methods} methods")
    return found


def _body_lines(node: Function) -> int:
    docstring = ast.get_docstring(node, clean=False)
    described = docstring.count("\n") + 1 if docstring else 0
    return (node.end_lineno or node.lineno) - node.lineno + 1 - described


if __name__ == "__main__":
    breaches = [line for root in sys.argv[1:] for line in oversize(Path(root))]
    sys.stdout.write("".join(f"{line}\n" for line in breaches) or "none\n")
    sys.exit(bool(breaches))
