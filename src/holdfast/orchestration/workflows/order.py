"""In which order the steps of a block run: what waits for what, and what is ready.

In a list of steps each waits for the one before it; in a parallel block none does. `needs`
says otherwise: a step that has it waits for exactly those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.orchestration.workflows.definition import WorkflowStep


def list_needs(
    steps: Sequence[WorkflowStep], *, is_parallel: bool = False
) -> dict[str, frozenset[str]]:
    """Return for every step of a block the steps that it waits for."""
    needs: dict[str, frozenset[str]] = {}
    before: str | None = None
    for step in steps:
        if step.needs is not None:
            needs[step.id] = frozenset(step.needs)
        else:
            needs[step.id] = frozenset() if before is None or is_parallel else frozenset({before})
        before = step.id
    return needs


def find_cycle(needs: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return steps that wait for one another in a circle, () if none do."""
    done: set[str] = set()
    for start in needs:
        trail: dict[str, None] = {}
        waiting: list[tuple[str, bool]] = [(start, False)]
        while waiting:
            name, is_left = waiting.pop()
            if is_left:
                del trail[name]
                done.add(name)
                continue
            if name in trail:
                circle = list(trail)
                return (*circle[circle.index(name) :], name)
            if name in done:
                continue
            trail[name] = None
            waiting.append((name, True))
            waiting += [(other, False) for other in sorted(needs.get(name, ()))]
    return ()


def list_all_before(needs: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """Return for every step everything that has certainly ended before it begins.

    The steps must not wait in a circle.
    """
    found: dict[str, frozenset[str]] = {}
    for name in list_layers(needs):
        for one in name:
            direct = [other for other in needs[one] if other in needs]
            found[one] = frozenset(direct).union(*(found[other] for other in direct))
    return found


def list_layers(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the steps in layers: each stands one below the lowest that it waits for."""
    schedule = Schedule(needs)
    found: list[list[str]] = []
    while ready := schedule.take(len(needs)):
        found.append(ready)
        for name in ready:
            schedule.end(name)
    return found


class Schedule:
    """The state of one block: which steps may begin, are under way, or have ended."""

    def __init__(self, needs: Mapping[str, Iterable[str]]) -> None:
        """Begin with nothing done; what is not part of the block is not waited for."""
        self._open = {name: {n for n in wanted if n in needs} for name, wanted in needs.items()}
        self._waiters: dict[str, list[str]] = {name: [] for name in needs}
        for name, wanted in self._open.items():
            for other in wanted:
                self._waiters[other].append(name)
        self._ready = deque(name for name, wanted in self._open.items() if not wanted)
        self._under_way: set[str] = set()
        self._left = len(self._open)

    def take(self, room: int) -> list[str]:
        """Return steps that begin now, at most so many; they are under way from here on."""
        taken = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        self._under_way.update(taken)
        return taken

    def end(self, name: str) -> None:
        """Note that a step has ended; what waited for it alone becomes ready."""
        self._under_way.remove(name)
        self._left -= 1
        for waiter in self._waiters[name]:
            self._open[waiter].discard(name)
            if not self._open[waiter]:
                self._ready.append(waiter)

    def stop(self, name: str) -> None:
        """Note that a step rests without having ended; nothing that waits for it begins."""
        self._under_way.remove(name)

    @property
    def is_over(self) -> bool:
        """Whether every step has ended."""
        return self._left == 0

    @property
    def is_stuck(self) -> bool:
        """Whether nothing is under way and nothing can begin, though steps are left."""
        return self._left > 0 and not self._ready and not self._under_way


__all__ = ["Schedule", "find_cycle", "list_all_before", "list_layers", "list_needs"]
