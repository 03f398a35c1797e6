"""Loggers of Holdfast's own rooms: the standard library's, with named fields.

Nothing is configured here and nothing is written to the standard output: where the
application has set `logging` up, lines go there, and otherwise Python's own default holds
(warnings to the standard error). `configure_logs` is for applications that want ours.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from holdfast.observability.ecs import render_for_people

EVENTS_LOGGER = "holdfast.events"
"""Lines that are made from the journal have names that begin with this one."""
_BOUND: ContextVar[Mapping[str, object]] = ContextVar(
    "holdfast_log_fields", default=MappingProxyType({})
)
# Frames between the caller of a method below and `logging`, so that `%(lineno)d` is theirs.
_OWN_FRAMES = 3
_REPORTS = "holdfast.observability.error_reports"


class LogEvent:
    """The message of a line: what happened, and named fields.

    A formatter that knows nothing of it gets `event key=value …`; one that does, such as
    that of `configure_logs`, takes the fields as they are.
    """

    __slots__ = ("event", "fields", "is_clean")

    def __init__(self, event: str, fields: Mapping[str, object], *, is_clean: bool = False) -> None:
        """Take what happened and its fields; `is_clean` says that no secret can be in them.

        That is so for what was read from the journal, which a redactor has passed before.
        """
        self.event = event
        self.fields = fields
        self.is_clean = is_clean

    def __str__(self) -> str:
        """Return the line for people."""
        return render_for_people(self.event, self.fields)


class Logger:
    """Writes lines with named fields under a name of the standard `logging`."""

    def __init__(self, name: str) -> None:
        """Take a name, such as `holdfast.memory`."""
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """Write what only a search for a fault needs."""
        self._write(logging.DEBUG, event, fields)

    def note(self, event: str, **fields: object) -> None:
        """Write what an operator may ask about later."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write that something went wrong and was got over."""
        self._write(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write that something failed, with the exception that is being handled."""
        self._write(logging.ERROR, event, fields, has_exception=True)

    def _write(
        self, level: int, event: str, fields: dict[str, object], *, has_exception: bool = False
    ) -> None:
        if has_exception and (reports := sys.modules.get(_REPORTS)) is not None:
            # Loaded by the caller that asked for reports; nobody else pays for them.
            reports.report_error(event, {**_BOUND.get(), **fields}, sys.exception())
        if self._logger.isEnabledFor(level):
            message = LogEvent(event, {**_BOUND.get(), **fields})
            self._logger.log(level, message, exc_info=has_exception, stacklevel=_OWN_FRAMES)


@contextmanager
def bind_log_fields(**fields: object) -> Iterator[None]:
    """Add fields to every line that this task, and what it starts, writes inside the block."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def read_log_fields() -> Mapping[str, object]:
    """Return the fields that are bound here and now."""
    return _BOUND.get()


__all__ = ["EVENTS_LOGGER", "LogEvent", "Logger", "bind_log_fields", "read_log_fields"]
