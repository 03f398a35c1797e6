"""What a forked process must not keep of the files that the other one has open.

A fork copies descriptors, and with them the locks on what they refer to: a child that merely lives
on would keep a lock that its parent has died with, or hold a file that its parent has closed. So
whatever holds such a lock is told in the child, before anything else runs there.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class LeftBehind(Protocol):
    """Something that belongs to the process that made it."""

    def leave_to_parent(self) -> None:
        """Let go of it in a forked child, without a word that the parent would notice."""
        ...


_known: weakref.WeakSet[LeftBehind] = weakref.WeakSet()


def tell_after_fork(one: LeftBehind) -> None:
    """Have `leave_to_parent` called in every process that is forked from now on."""
    _known.add(one)


def _leave_all() -> None:
    for one in tuple(_known):
        one.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all)
