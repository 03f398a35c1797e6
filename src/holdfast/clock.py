"""The only source of time.

Objects that need time take a `Clock`; `SYSTEM` is the real one. Tests pass
`holdfast.testing.FakeClock` and move it by hand.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, boot time for leases."""

    def now(self) -> float:
        """Seconds since the epoch (UTC); may step, forwards and backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...

    def boottime(self) -> float:
        """Seconds since this machine started, those that it slept included; never steps.

        All processes with the same `boot_id` read the same clock.
        """
        ...

    def boot_id(self) -> str:
        """Name the clock that `boottime` reads: another one after each start of the machine."""
        ...


@functools.cache
def _read_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        # A time namespace has a boot clock of its own.
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        # Where no id is to be had, a machine that has started anew shows it by its lower seconds.
        return f"host {platform.node()}"


class SystemClock:
    """The machine's clock; Python's own functions, for it is asked more often than anything."""

    now = staticmethod(time.time)
    """Seconds since the epoch (UTC)."""
    monotonic = staticmethod(time.monotonic)
    """Seconds that never go backwards."""
    boottime = staticmethod(
        functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic
    )
    """Seconds since the machine started, sleep included."""
    boot_id = staticmethod(_read_boot_id)
    """Names the boot clock; the same for all processes that share it."""


SYSTEM = SystemClock()
