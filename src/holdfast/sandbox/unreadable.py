"""Find what the rules of a workspace keep from being read, so that commands do not see it."""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress

import msgspec

from holdfast.errors import SandboxFailed
from holdfast.sandbox.path_rules import PathRules

MOST = 1_000


@functools.cache
def _compile_special() -> re.Pattern[str]:
    return re.compile(r"[*?\[\]{}]")


def report_unreadable(root: str, rules: PathRules) -> list[str]:
    """Return the paths below a directory that may not be read, each without what is below it.

    Links are left out: what they lead to is found by its own name. Where only certain paths are
    allowed, a directory in which there is none of them counts as one path. Costs a walk through
    all of it unless every rule blocks one path.

    Raises:
        SandboxFailed: there are more than `MOST`; they cannot be hidden one by one.
    """
    if not rules.keeps_from_reading:
        return []
    if rules.allows_all and not any(map(_compile_special().search, rules.blocked)):
        named = [os.path.join(root, one.removeprefix("./").strip("/")) for one in rules.blocked]
        return [path for path in named if os.path.lexists(path) and not os.path.islink(path)]
    found = _walk(root, rules).found
    if len(found) > MOST:
        raise SandboxFailed(
            detail=f"the path rules keep {len(found)} paths of {root} from commands, and at most "
            f"{MOST} can be hidden; block or allow whole directories"
        )
    return found


class _Directory(msgspec.Struct):
    path: str
    relative: str
    parent: _Directory | None
    found: list[str] = msgspec.field(default_factory=list)
    has_more: bool = False
    """Whether there is something else in it, which may be read."""


def _walk(root: str, rules: PathRules) -> _Directory:
    top = _Directory(root, "", None)
    seen = [top]
    for here in seen:  # grows while we walk: parents stand before what is in them
        with suppress(OSError), os.scandir(here.path) as entries:
            for entry in entries:
                inner = _look(here, entry, rules)
                if inner is not None:
                    seen.append(inner)
    for here in reversed(seen[1:]):
        above = here.parent
        assert above is not None
        if here.found and not here.has_more and not rules.allows_all:
            above.found.append(here.path)
        else:
            above.found += here.found
            above.has_more = True
    return top


def _look(here: _Directory, entry: os.DirEntry[str], rules: PathRules) -> _Directory | None:
    """Sort one entry; return it if it is a directory to look into."""
    relative = f"{here.relative}/{entry.name}" if here.relative else entry.name
    is_directory = entry.is_dir(follow_symlinks=False)
    if entry.is_symlink():
        here.has_more = True
    elif not rules.can_read(relative, is_directory=is_directory):
        here.found.append(entry.path)
    elif is_directory:
        return _Directory(entry.path, relative, here)
    else:
        here.has_more = True
    return None


__all__ = ["MOST", "report_unreadable"]
