"""Files that run with the rights of their owner: take that right from those that came to be.

The filter of system calls keeps commands from making one. This looks again at the end, for what
came by a way that the filter does not know: a file system that sets modes by itself, a kernel
with a call that is newer than we are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

_PRIVILEGED = stat.S_ISUID | stat.S_ISGID
_MOST_FILES = 50_000
"""Of a tree; a walk takes about 5 µs for each, at the end of every turn that ran a command."""


def clear_privileged(trees: Iterable[str], *, since_ns: int) -> list[str]:
    """Take set-uid and set-gid from the files whose inode changed since then; return them.

    Directories keep theirs, which only say whose group new files get. Looks through no link, and
    at the first 50,000 files of each tree.
    """
    return [path for tree in trees for path in _clear_below(tree, since_ns)]


def _clear_below(tree: str, since_ns: int) -> Iterator[str]:
    looked = 0
    for path, _, names, here in os.fwalk(tree):
        for name in names:
            with suppress(OSError):
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
                if _is_privileged(info, since_ns) and _clear(name, here, since_ns):
                    yield f"{path}/{name}"
        looked += len(names)
        if looked > _MOST_FILES:
            return


def _clear(name: str, here: int, since_ns: int) -> bool:
    """Look and change through one descriptor: the name may mean another file by now."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        info = os.fstat(fd)
        if not _is_privileged(info, since_ns):
            return False
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(info.st_mode) & ~_PRIVILEGED)
    finally:
        os.close(fd)
    return True


def _is_privileged(info: os.stat_result, since_ns: int) -> bool:
    is_file = stat.S_ISREG(info.st_mode)
    return is_file and bool(info.st_mode & _PRIVILEGED) and info.st_ctime_ns >= since_ns


__all__ = ["clear_privileged"]
