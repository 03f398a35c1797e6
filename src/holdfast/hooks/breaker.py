"""Leave a hook out for a while after it failed too often in a row."""

from __future__ import annotations

import msgspec

from holdfast.circuit import Circuit
from holdfast.clock import Clock
from holdfast.errors import UsageError


class HookLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a hook may take, after how many failures in a row it is left out, how long."""

    timeout_s: float = 10.0
    failures_in_row: int = 3
    open_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if not 0 < self.timeout_s < float("inf") or not 0 < self.open_s < float("inf"):
            raise UsageError(detail="A hook needs a finite time limit and a finite pause.")
        if self.failures_in_row < 1:
            raise UsageError(detail="A hook is left out after one failure at the earliest.")


class HookBreaker(Circuit):
    """Counts one hook's failures; after the pause a single call may try again."""

    def __init__(self, limits: HookLimits, clock: Clock) -> None:
        """Start closed."""
        super().__init__(failures_in_row=limits.failures_in_row, open_s=limits.open_s, clock=clock)
