"""Leave a hook out for a while after it failed too often in a row."""

from __future__ import annotations

import msgspec

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


class HookBreaker:
    """Counts one hook's failures; after the pause a single call may try again."""

    def __init__(self, limits: HookLimits, clock: Clock) -> None:
        """Start closed."""
        self._limits = limits
        self._clock = clock
        self._in_row = 0
        self._open_until: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Whether the hook is left out now."""
        return self._open_until is not None and (
            self._is_probing or self._clock.monotonic() < self._open_until
        )

    def enter(self) -> bool:
        """Say whether the hook may be called now."""
        if self.is_open:
            return False
        self._is_probing = self._open_until is not None
        return True

    def succeeded(self) -> None:
        """The hook answered; it is whole again."""
        self._in_row, self._open_until, self._is_probing = 0, None, False

    def mark_abandoned(self) -> None:
        """The call was cancelled from outside; that says nothing about the hook."""
        self._is_probing = False

    def failed(self) -> bool:
        """Take note of a failure; says whether the hook is left out from now on."""
        self._in_row += 1
        was_probe, self._is_probing = self._is_probing, False
        if not was_probe and self._in_row < self._limits.failures_in_row:
            return False
        self._open_until = self._clock.monotonic() + self._limits.open_s
        return True
