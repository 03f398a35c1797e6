"""What a call hands on to the runs that it starts: never more than its own run has."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.policy import OnAsk, Share
from holdfast.tools.approval_broker import Approver


def give_no_limit() -> float | None:
    """No limit of time."""
    return None


class ChildLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets that are spent from together, time that is left, and who answers.

    `shares` lead from the outermost budget to the caller's own. `skill_names` are the only
    skills that the caller may use; `None` means all.
    """

    shares: tuple[Share, ...] = ()
    seconds_left: Callable[[], float | None] = give_no_limit
    on_ask: OnAsk = "deny"
    approver: Approver | None = None
    skill_names: tuple[str, ...] | None = None
