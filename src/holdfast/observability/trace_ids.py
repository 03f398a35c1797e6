"""Ids of traces and spans; they follow from runs, so every process makes the same ones."""

from __future__ import annotations

import hashlib


def make_trace_id(run_id: str) -> bytes:
    """Return the id of a run's trace: sixteen bytes that follow from the run."""
    return hashlib.sha256(f"holdfast-trace:{run_id}".encode()).digest()[:16]


def make_span_id(run_id: str, key: str) -> bytes:
    """Return the id of a span in a run's trace: eight bytes."""
    return hashlib.sha256(f"holdfast-span:{run_id}:{key}".encode()).digest()[:8]


__all__ = ["make_span_id", "make_trace_id"]
