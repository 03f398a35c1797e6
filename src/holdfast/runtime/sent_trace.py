"""What sending a trace answers; apart from what sends it, which few programs load."""

from __future__ import annotations

import msgspec


class SentTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that a receiver took."""

    run_id: str
    trace_id: str
    spans: int
    url: str


__all__ = ["SentTrace"]
