"""How many agents may be started, how deep, and for how long."""

from __future__ import annotations

from collections import Counter, OrderedDict

import msgspec

from holdfast.errors import DelegationRefused, UsageError
from holdfast.journal import Journal
from holdfast.runs import Lineage, list_children_of

_MOST_ROOTS = 256


class DelegationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller and one whole tree of runs may start.

    `parallel` agents of one caller work at a time, at most `depth` stand above each other,
    one run starts at most `breadth`, a tree holds at most `total` beside its root, and each
    may take `time_s` seconds. Children wait for their models most of the time: `parallel`
    bounds what is kept in memory and started at once, not how busy the machine is.
    """

    parallel: int = 32
    depth: int = 4
    breadth: int = 100
    total: int = 500
    time_s: float = 3_600.0

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing run."""
        if min(self.parallel, self.depth, self.breadth, self.total) < 1 or not self.time_s > 0:
            raise UsageError(detail="Limits of delegation begin at 1, and time above 0.")


class _Tree:
    """The runs of one tree, and how many of them each run started."""

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.started_by: Counter[str] = Counter()

    def add(self, run_id: str, parent: str) -> None:
        self.runs.add(run_id)
        self.started_by[parent] += 1


class Census:
    """Counts the runs of each tree: those that the journal knows, and those about to begin.

    A run that was counted once is never counted again, so that resuming costs nothing.
    """

    def __init__(self, journal: Journal) -> None:
        """Count runs of this journal."""
        self._journal = journal
        self._trees: OrderedDict[str, _Tree] = OrderedDict()

    async def admit(
        self, above: Lineage, run_id: str, agent: str, limits: DelegationLimits
    ) -> None:
        """Let one more run begin.

        Raises:
            DelegationRefused: it would be too many, or too deep.
        """
        if above.depth + 1 > limits.depth:
            raise _make_refused(agent, "the depth of agents", "depth", limits.depth)
        starter = above.starter
        tree = await self._read_tree(starter.root)
        if run_id in tree.runs:
            return
        if len(tree.runs) >= limits.total:
            raise _make_refused(agent, "the number of agents in all", "total", limits.total)
        if tree.started_by[starter.run_id] >= limits.breadth:
            raise _make_refused(agent, "the number of agents of one run", "breadth", limits.breadth)
        tree.add(run_id, starter.run_id)

    async def _read_tree(self, root: str) -> _Tree:
        """The runs below a root."""
        if root not in self._trees:
            tree = _Tree()
            for row in await list_children_of(self._journal, "root", (root,)):
                tree.add(row.id, row.parent_run)
            self._trees.setdefault(root, tree)
            while len(self._trees) > _MOST_ROOTS:
                self._trees.popitem(last=False)
        self._trees.move_to_end(root)
        return self._trees[root]


def _make_refused(agent: str, kind: str, setting: str, limit: int) -> DelegationRefused:
    return DelegationRefused(agent=agent, kind=kind, setting=setting, limit=limit)
