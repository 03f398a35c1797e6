"""The only source of time.

Objects that need time take a `Clock`; `SYSTEM` is the real one. Tests pass
`holdfast.testing.FakeClock` and move it by hand.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock; Python's own functions, for it is asked more often than anything."""

    now = staticmethod(time.time)
    """Seconds since the epoch (UTC)."""
    monotonic = staticmethod(time.monotonic)
    """Seconds that never go backwards."""


SYSTEM = SystemClock()
