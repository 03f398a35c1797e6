"""Find imports that go around the door of a room, and write down those that are known.

A room's door is its `__init__.py` with what `__all__` lists. `python tests/architecture/doors.py
--update` writes door_exceptions.txt anew; the list may only become shorter.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
EXCEPTIONS = Path(__file__).with_name("door_exceptions.txt")

BETWEEN_ROOMS = "# Imports between rooms that go around a door: the file, and the module."
IN_DOCS = "# Imports in docs and examples that are not public: the file, and the name."

_FENCE = re.compile(r"^( *)```(?:python|py)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_READERS = ("README.md", "docs/**/*.md", "docs_src/**/*.py", "examples/**/*.py", "examples/**/*.md")


def render() -> str:
    """Return the list as the file should be."""
    parts = ((BETWEEN_ROOMS, around_doors()), (IN_DOCS, not_public()))
    return "\n".join(
        "".join(f"{line}\n" for line in (head, *sorted(found))) for head, found in parts
    )


def known() -> tuple[set[str], set[str]]:
    """Return both lists as they are written down."""
    rooms, _, docs = EXCEPTIONS.read_text(encoding="utf-8").partition(IN_DOCS)
    return _entries(rooms), _entries(docs)


def _entries(text: str) -> set[str]:
    return {line for line in text.splitlines() if line and not line.startswith("#")}


# --- rooms ----------------------------------------------------------------------------


@functools.cache
def around_doors() -> set[str]:
    """Return every pair of a file of the source and a module of another room that it imports."""
    found: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE).as_posix()
        own = path.partition("/")[0].removesuffix(".py")
        for module, name in imports(file.read_text(encoding="utf-8")):
            target = _module(module, name)
            room = target.split(".")[1] if "." in target else ""
            if room and room != own and not is_door(target):
                found.add(f"{path} {target}")
    return found


def is_door(module: str) -> bool:
    """Say whether other rooms may import from a module.

    That is a room itself, every room or module that the `__all__` of a room lists, and every
    module of the table of operations: each of those is the door of one namespace.
    """
    names = module.split(".")[1:]
    if len(names) == 2 and names[0] == "operations":
        return True
    return all(
        name in _listed_in(".".join(names[:depth])) for depth, name in enumerate(names) if depth
    )


def _listed_in(room: str) -> list[str]:
    listed = getattr(importlib.import_module(f"holdfast.{room}"), "__all__", ())
    home = SOURCE.joinpath(*room.split("."))
    return [name for name in listed if (home / name).is_dir() or (home / f"{name}.py").exists()]


def _module(module: str, name: str) -> str:
    """Return the module that is imported: what is named may be one itself."""
    place = SOURCE.parent.joinpath(*module.split("."), name)
    is_module = bool(name) and (place.with_suffix(".py").exists() or place.is_dir())
    return f"{module}.{name}" if is_module else module


def imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import from Holdfast, wherever it stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _is_ours(module: str) -> bool:
    return module == "holdfast" or module.startswith("holdfast.")


# --- what others read -----------------------------------------------------------------


@functools.cache
def not_public() -> set[str]:
    """Return what docs and examples import although no room offers it."""
    found: set[str] = set()
    for pattern in _READERS:
        for file in ROOT.glob(pattern):
            path = file.relative_to(ROOT).as_posix()
            for code in snippets(file):
                found |= {
                    f"{path} {module}.{name}".rstrip(".")
                    for module, name in imports(code)
                    if not is_public(module, name)
                }
    return found


def snippets(file: Path) -> Iterator[str]:
    """Yield the Python of a file: all of it, or the blocks of a page that can be read."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield text
        return
    for indent, block in _FENCE.findall(text):
        lines = [line.removeprefix(indent) for line in block.splitlines()]
        ours = [line for line in lines if line.startswith((">>> ", "... ", "$ "))]
        code = "\n".join(line[4:] for line in ours) if ours else "\n".join(lines)
        try:
            ast.parse(code)
        except SyntaxError:
            continue
        yield code


def is_public(module: str, name: str) -> bool:
    """Say whether a room offers a name."""
    if not is_door(module):
        return False
    room = importlib.import_module(module)
    if not name:
        return True
    if is_door(f"{module}.{name}") and _module(module, name) != module:
        return True
    listed = getattr(room, "__all__", None)
    if listed is not None:
        return name in listed
    return not name.startswith("_") and getattr(room, name).__module__ == module


if __name__ == "__main__":
    if "--update" in sys.argv:
        EXCEPTIONS.write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())
