"""How a language server's program is started in the sandbox: what runs, and what it must see.

A sandbox shows the system's programs and the workspace. A server that is installed elsewhere
(in a virtual environment, in a home directory) needs its own files too, and those of what
interprets it; nothing else of the place where they are is shown.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from holdfast.sandbox import PATH, SYSTEM_PATHS

_PROGRAMS = ("bin", "libexec")
_BESIDE_PROGRAMS = ("bin", "lib", "lib64", "libexec")
_FIRST_LINE_BYTES = 512


class ServerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What is executed, the search path that it sees, and what it may read."""

    argv: tuple[str, ...]
    path: str
    readable: tuple[str, ...]


def find_server_program(program: str, arguments: tuple[str, ...]) -> ServerProgram:
    """Return how to start a program that was found at a path."""
    interpreter = _find_interpreter(program)
    argv = (*interpreter, program, *arguments)
    files = [program, *interpreter[:1]]
    # A script that an interpreter is told to run is a part of the server.
    files += [word for word in arguments if os.path.isabs(word) and os.path.isfile(word)]
    readable = dict.fromkeys(place for file in files for place in _list_places(file))
    folders = dict.fromkeys(os.path.dirname(file) for file in files[: 1 + len(interpreter[:1])])
    return ServerProgram(argv=argv, path=":".join((*folders, PATH)), readable=tuple(readable))


def _find_interpreter(program: str) -> tuple[str, ...]:
    """What the first line of a script names; the sandbox's own search path may not have it."""
    try:
        with open(program, "rb") as file:
            first = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return ()
    if not first.startswith(b"#!"):
        return ()
    words = first[2:].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word != "-S"]
        found = shutil.which(words[0]) if words else None
        return (found, *words[1:]) if found else ()
    return tuple(words)


def _list_places(file: str) -> list[str]:
    found: list[str] = []
    for path in dict.fromkeys((os.path.abspath(file), os.path.realpath(file))):
        folder = Path(path).parent
        if any(folder.is_relative_to(one) for one in SYSTEM_PATHS):
            continue
        if "node_modules" in folder.parts:
            # A module finds the ones beside it, and those in the same tree.
            top = folder.parts.index("node_modules")
            found.append(str(Path(*folder.parts[: top + 1])))
        elif folder.name not in _PROGRAMS:
            found.append(str(folder))
        elif (folder.parent / "pyvenv.cfg").is_file():
            found.append(str(folder.parent))
        else:
            beside = [folder.parent / name for name in _BESIDE_PROGRAMS]
            found += [str(one) for one in beside if one.is_dir()]
    return list(dict.fromkeys(found))


__all__ = ["ServerProgram", "find_server_program"]
