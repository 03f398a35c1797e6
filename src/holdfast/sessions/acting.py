"""In whose name something happens: the subject to whom sessions belong that begin meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

SUBJECT: Final = ContextVar("holdfast_subject", default="")
"""The subject in whose name this happens; empty for the owner of the state directory."""


@contextlib.contextmanager
def acting_for(subject: str) -> Iterator[None]:
    """Let sessions that begin in here, and in the tasks that are started here, be a subject's."""
    token = SUBJECT.set(subject)
    try:
        yield
    finally:
        SUBJECT.reset(token)


__all__ = ["SUBJECT", "acting_for"]
