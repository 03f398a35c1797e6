"""In whose name something happens: the subject to whom sessions belong that begin meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

_subject: Final = ContextVar("holdfast_subject", default="")


def current_subject() -> str:
    """Return the subject in whose name this happens; empty for the owner of the state directory."""
    return _subject.get()


@contextlib.contextmanager
def acting_for(subject: str) -> Iterator[None]:
    """Let sessions that begin in here, and in the tasks that are started here, be a subject's."""
    token = _subject.set(subject)
    try:
        yield
    finally:
        _subject.reset(token)


__all__ = ["acting_for", "current_subject"]
