"""The log: one stream, one format, and no secret in any line.

Holdfast and other libraries log through the standard `logging`, some applications through
structlog; all of it comes out here. Only applications configure a log: the command line does,
`AsyncClient` never does, so that a library user's own set-up stays as it is. Lines go to the
standard error of the process and nowhere else.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from holdfast.clock import SYSTEM, Clock
from holdfast.observability.logger import LogEvent, read_log_fields
from holdfast.observability.process_secrets import process_redactor
from holdfast.redaction import Redactor

if TYPE_CHECKING:
    from holdfast.settings import Settings

# What a terminal would act upon; lines of a traceback may break.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def configure_logs(
    settings: Settings,
    *,
    redactor: Redactor | None = None,
    stream: TextIO | None = None,
    clock: Clock = SYSTEM,
) -> Callable[[], None]:
    """Set the log of this process up, and return what puts back how it was.

    Level and format come from the settings (`log.level`, `log.format`). Every entry is
    redacted as a whole once it is a line: messages, fields, exceptions with their
    tracebacks, warnings, and errors that nothing caught in threads and finalizers.
    """
    known = redactor if redactor is not None else process_redactor(settings)
    before = _Before()
    handler = _Handler(stream if stream is not None else sys.stderr)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_bound_fields,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        partial(_add_time, clock),
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _add_fields],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                known.log_processor,
                *_list_renderers(settings.log.format),
                partial(_redact_last, known),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    logging.captureWarnings(True)
    _catch_the_uncaught()
    return before.restore


def _list_renderers(form: str) -> list[Processor]:
    if form == "json":
        return [structlog.processors.JSONRenderer(default=str, ensure_ascii=True)]
    return [structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)]


def _add_time(clock: Clock, _logger: object, _method: str, entry: EventDict) -> EventDict:
    entry["timestamp"] = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="milliseconds")
    return entry


def _add_fields(_logger: object, _method: str, entry: EventDict) -> EventDict:
    """Take the fields of a line of ours apart again."""
    record: logging.LogRecord = entry["_record"]
    if isinstance(record.msg, LogEvent):
        return {**entry, **record.msg.fields, "event": record.msg.event}
    return entry


def _add_bound_fields(_logger: object, _method: str, entry: EventDict) -> EventDict:
    return {**read_log_fields(), **entry}


def _redact_last(redactor: Redactor, _logger: object, _method: str, line: Any) -> str:  # noqa: ANN401 - structlog's own signature
    """Redact the finished line too: a `repr` may show what `str` did not."""
    text = redactor.text(str(line))
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines; an entry that cannot be written is told without what it holds."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Say only that, since a traceback would show the entry as it is."""
        try:
            self.stream.write(f"a log entry of {record.name} could not be written\n")
        except (OSError, ValueError):
            return


def _catch_the_uncaught() -> None:
    """Let errors that nothing caught go through the log instead of straight to the terminal."""
    log = logging.getLogger("holdfast.uncaught")

    def in_main(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        log.critical("uncaught error", exc_info=(kind, error, trace))

    def in_thread(caught: threading.ExceptHookArgs) -> None:
        error = caught.exc_value or caught.exc_type()
        log.error(
            "uncaught error in a thread", exc_info=(caught.exc_type, error, error.__traceback__)
        )

    def in_finalizer(caught: Any) -> None:  # noqa: ANN401 - a type that only exists for checkers
        error = caught.exc_value or caught.exc_type()
        log.error("error in a finalizer", exc_info=(caught.exc_type, error, error.__traceback__))

    sys.excepthook = in_main
    threading.excepthook = in_thread
    sys.unraisablehook = in_finalizer


class _Before:
    """How everything was, to put it back."""

    def __init__(self) -> None:
        root = logging.getLogger()
        self._handlers, self._level = list(root.handlers), root.level
        self._hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._structlog = structlog.get_config() if structlog.is_configured() else None

    def restore(self) -> None:
        """Put everything back."""
        root = logging.getLogger()
        root.handlers = self._handlers
        root.setLevel(self._level)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks
        logging.captureWarnings(False)
        structlog.reset_defaults()
        if self._structlog is not None:
            structlog.configure(**self._structlog)


__all__ = ["configure_logs"]
