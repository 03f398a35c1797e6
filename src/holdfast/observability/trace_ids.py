"""Ids of traces and spans; they follow from runs, so every process makes the same ones.

A run that was asked for within a caller's trace (the header `traceparent`, W3C Trace Context)
continues that one: its spans have the trace's id, and the root hangs below the caller's span.
"""

from __future__ import annotations

import hashlib
import re
from contextvars import ContextVar
from typing import Final

import msgspec

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1

INCOMING_TRACE: Final = ContextVar("holdfast_incoming_trace", default="")
"""The `traceparent` of the request that is being answered; runs that it starts keep it."""


class TraceParent(msgspec.Struct, frozen=True):
    """A place in a caller's trace."""

    trace_id: bytes
    span_id: bytes
    is_sampled: bool

    def format(self) -> str:
        """Return it as the header `traceparent`."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{int(self.is_sampled):02x}"


def parse_traceparent(text: str) -> TraceParent | None:
    """Return what a header `traceparent` says; `None` for what is none, as the standard asks."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    trace, span = bytes.fromhex(found[1]), bytes.fromhex(found[2])
    if not any(trace) or not any(span):
        return None
    return TraceParent(trace, span, bool(int(found[3], 16) & _SAMPLED))


def make_traceparent(run_id: str, key: str, *, root: str = "", given: str = "") -> TraceParent:
    """Return where what a run asks of others belongs: below its span `key`.

    `root` is the run at the top, `given` the `traceparent` that the run was asked for with.
    """
    top = root or run_id
    above = parse_traceparent(given)
    trace_id = above.trace_id if above is not None else make_trace_id(top)
    is_sampled = above is None or above.is_sampled
    return TraceParent(trace_id, make_span_id(top, key), is_sampled)


def make_trace_id(run_id: str) -> bytes:
    """Return the id of a run's trace: sixteen bytes that follow from the run."""
    return hashlib.sha256(f"holdfast-trace:{run_id}".encode()).digest()[:16]


def make_span_id(run_id: str, key: str) -> bytes:
    """Return the id of a span in a run's trace: eight bytes."""
    return hashlib.sha256(f"holdfast-span:{run_id}:{key}".encode()).digest()[:8]


__all__ = [
    "INCOMING_TRACE",
    "TraceParent",
    "make_span_id",
    "make_trace_id",
    "make_traceparent",
    "parse_traceparent",
]
