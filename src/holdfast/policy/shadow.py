"""Shadow mode: a candidate policy decides beside the active one and changes nothing.

The caller that decides hands over what was decided; where the candidate disagrees, the
difference is reported. A difference is told once, however often it occurs.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.policy.decision import CallRequest, Decision
from holdfast.policy.recorded_calls import CeilingOf, Change, record, replay

_MOST_TOLD = 10_000


class Shadow:
    """A candidate's ceilings, and where to tell differences.

    The report is called on the thread that decides, so it should be quick; it is never
    called twice for the same kind of difference.
    """

    def __init__(
        self, ceiling_of: CeilingOf, report: Callable[[Change], None], *, version: str = ""
    ) -> None:
        """Watch with the candidate's ceilings."""
        self.version = version
        self.judged = 0
        self.differed = 0
        self._ceiling_of = ceiling_of
        self._report = report
        self._told: set[tuple[object, ...]] = set()

    def watch(self, request: CallRequest, decision: Decision, *, agent: str = "") -> Change | None:
        """Judge what was decided once more; return the difference, if there is one."""
        self.judged += 1
        call = record(request, decision, agent=agent)
        change = next(replay([call], self._ceiling_of), None)
        if change is None:
            return None
        self.differed += 1
        key = (request, agent, change.before, change.after)
        if key not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(key)
            self._report(change)
        return change
