"""What all processes of a sandbox use together: limits of single processes do not add up."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

_KIB = 1024
_COUNTED = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_MOST_PROCESSES = 10_000


class Usage(NamedTuple):
    """Memory that is held now, and bytes that were ever written to disks."""

    memory_bytes: int
    written_bytes: int


def measure_usage(pid: int) -> Usage:
    """Return what a process and all below it use; blocks for a moment.

    The kernel adds what a process wrote to its parent's account when it is gone, so that nothing
    is forgotten as long as `pid` lives. Memory that is shared counts for each that maps it.
    """
    memory = written = 0
    todo, seen = [pid], 0
    while todo and seen < _MOST_PROCESSES:
        one, seen = todo.pop(), seen + 1
        # A process that ends meanwhile is counted with its parent's next time.
        with suppress(OSError, ValueError):
            todo += _list_children(one)
            memory += _read_memory(one)
            written += _read_written(one)
    return Usage(memory, written)


def _list_children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
            found += map(int, file.read().split())
    return found


def _read_memory(pid: int) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:
        lines = [line.split() for line in file if line.startswith(_COUNTED)]
    return _KIB * sum(int(line[1]) for line in lines)


def _read_written(pid: int) -> int:
    with suppress(PermissionError), open(f"/proc/{pid}/io", "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(b"write_bytes:"))
    return 0


__all__ = ["Usage", "measure_usage"]
