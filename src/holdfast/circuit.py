"""The core of every circuit breaker: what fails too often is left alone for a while.

Closed: calls pass. Open: calls are refused. Half open: one call passes as a probe, the others
are refused until it has ended; success closes the circuit, failure opens it again. Calls that
began before the circuit last changed do not count any more.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

from holdfast.clock import SYSTEM, Clock

CircuitState: TypeAlias = Literal["closed", "open", "half_open"]
Outcome: TypeAlias = Literal["success", "failure", "unknown"]


class Circuit:
    """Counts how calls end, and says whether the next one may begin.

    It opens after `failures_in_row`, or when at least `failure_rate` of the last `rate_calls`
    calls failed, and stays open for `open_s`.
    """

    def __init__(
        self,
        *,
        failures_in_row: int,
        open_s: float,
        failure_rate: float = 1.0,
        rate_calls: int = 0,
        clock: Clock = SYSTEM,
    ) -> None:
        """Start closed; without `rate_calls` only failures in a row count."""
        self._failures_in_row = failures_in_row
        self._open_s = open_s
        self._failure_rate = failure_rate
        self._rate_calls = rate_calls
        self._clock = clock
        self._recent: deque[bool] = deque(maxlen=rate_calls)
        self._open_until: float | None = None
        self._is_probing = False
        self._era = 0
        self.failures = 0
        """How many calls failed in a row."""

    @property
    def state(self) -> CircuitState:
        """Where the circuit is now."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half_open"

    @property
    def wait_s(self) -> float:
        """How long it stays open from now on."""
        if self._open_until is None:
            return 0.0
        return max(self._open_until - self._clock.monotonic(), 0.0)

    def enter(self) -> int | None:
        """Let a call begin: returns the ticket that `leave` takes, None if it may not."""
        if self._open_until is not None:
            if self._is_probing or self._clock.monotonic() < self._open_until:
                return None
            self._is_probing = True
        return self._era

    def leave(self, ticket: int, outcome: Outcome) -> None:
        """Take note of how a call ended; `unknown` tells nothing, and gives a probe back."""
        if ticket != self._era:
            return
        is_probe, self._is_probing = self._is_probing, False
        if outcome == "unknown":
            return
        is_failure = outcome == "failure"
        self._recent.append(is_failure)
        self.failures = self.failures + 1 if is_failure else 0
        if is_failure and (is_probe or self._is_too_much()):
            self._change(self._clock.monotonic() + self._open_s)
        elif is_probe:
            self._change(None)

    def _change(self, open_until: float | None) -> None:
        self._era += 1
        self._recent.clear()
        self._open_until = open_until

    def _is_too_much(self) -> bool:
        if self.failures >= self._failures_in_row:
            return True
        is_full = 0 < self._rate_calls == len(self._recent)
        return is_full and sum(self._recent) >= self._failure_rate * self._rate_calls


__all__ = ["Circuit", "CircuitState", "Outcome"]
