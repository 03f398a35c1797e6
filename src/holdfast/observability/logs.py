"""The log: one stream, one format, and no secret in any line.

Holdfast and other libraries log through the standard `logging`, some applications through
structlog; all of it comes out here. Only applications configure a log: the command line does,
`AsyncClient` never does, so that a library user's own set-up stays as it is. Lines go to the
standard error of the process and nowhere else.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from holdfast.clock import SYSTEM, Clock
from holdfast.observability.ecs import rename_fields, render_for_people
from holdfast.observability.logger import EVENTS_LOGGER, LogEvent, read_log_fields
from holdfast.observability.process_secrets import process_redactor
from holdfast.redaction import Redactor

if TYPE_CHECKING:
    from holdfast.settings import Settings

# What a terminal would act upon; lines of a traceback may break.
_CHATTY = ("httpx", "httpcore", "mcp", "uvicorn.error", "asyncio")
"""Libraries whose lines of level `info` are no news for an operator."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def configure_logs(
    settings: Settings,
    *,
    redactor: Redactor | None = None,
    stream: TextIO | None = None,
    clock: Clock = SYSTEM,
    has_events: bool = True,
) -> Callable[[], None]:
    """Set the log of this process up, and return what puts back how it was.

    Level and format come from the settings (`log.level`, `log.format`). Without `has_events`
    the lines of runs are left out, for programs that show them in another way. Every entry is
    redacted as a whole once it is a line: messages, fields, exceptions with their
    tracebacks, warnings, and errors that nothing caught in threads and finalizers.
    """
    known = redactor if redactor is not None else process_redactor(settings)
    before = _Before()
    form = settings.log.format
    handler = _Handler(stream if stream is not None else sys.stderr)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_bound_fields,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        partial(_add_time, clock),
    ]
    handler.setFormatter(
        _Formatter(
            form=form,
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _add_fields],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                known.log_processor,
                _Renderer(form),
                partial(_redact_last, known),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    level: int = getattr(logging, settings.log.level.upper())
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(level if level < logging.INFO else logging.WARNING)
    events = logging.getLogger(EVENTS_LOGGER)
    events.setLevel(logging.NOTSET if has_events else logging.CRITICAL + 1)
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


class _Renderer:
    """Makes a line of an entry; what comes before made it plain and redacted it."""

    def __init__(self, form: str) -> None:
        self._is_json = form == "json"

    def __call__(self, _logger: object, _method: str, entry: EventDict) -> str:
        is_ours = str(entry.get("logger", "")).startswith("holdfast")
        if self._is_json:
            return _encode(rename_fields(entry, is_ours=is_ours))
        fields = dict(entry)
        time, level = str(fields.pop("timestamp", "")), str(fields.pop("level", ""))
        logger, event = fields.pop("logger", ""), str(fields.pop("event", ""))
        trace = "".join(
            f"\n{fields.pop(name)}" for name in ("exception", "stack") if name in fields
        )
        if not is_ours:
            event = f"{logger}: {event}"
        return f"{time} {level.upper():8} {render_for_people(event, fields)}{trace}"


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Formats lines that were made from the journal by a short way: they are plain and clean."""

    def __init__(self, *, form: str, **options: Any) -> None:  # noqa: ANN401 - structlog's own
        super().__init__(**options)
        self._is_json = form == "json"
        self._render = _Renderer(form)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        said = record.msg
        if not isinstance(said, LogEvent) or not said.is_clean:
            return super().format(record)
        entry = {
            "timestamp": _format_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": said.event,
            **said.fields,
        }
        line = self._render(None, "", entry)
        return line if self._is_json else _escape(line)  # JSON holds no control character


def _encode(made: dict[str, object]) -> str:
    try:
        line = msgspec.json.encode(made, enc_hook=str).decode()
    except (UnicodeError, OverflowError, TypeError):
        # Half a character, a huge number, a key that is no text.
        return json.dumps(made, default=str, skipkeys=True)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


@lru_cache(maxsize=4)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _format_time(seconds: float) -> str:
    # Lines come in bursts: most are of the second of the one before.
    second, part = divmod(int(seconds * 1000), 1000)
    return f"{_format_second(second)}.{part:03d}+00:00"


def _add_time(clock: Clock, _logger: object, _method: str, entry: EventDict) -> EventDict:
    entry["timestamp"] = _format_time(clock.now())
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
    return _escape(redactor.text(str(line)))


def _escape(text: str) -> str:
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

    def report(event: str, error: BaseException) -> None:
        # Loaded by the caller that asked for reports; nobody else pays for them.
        reports = sys.modules.get("holdfast.observability.error_reports")
        if reports is not None:
            reports.report_error(event, {}, error)
            reports.flush_error_reports()

    def in_main(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        report("uncaught error", error)
        log.critical("uncaught error", exc_info=(kind, error, trace))

    def in_thread(caught: threading.ExceptHookArgs) -> None:
        error = caught.exc_value or caught.exc_type()
        report("uncaught error in a thread", error)
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
        self._levels = {name: logging.getLogger(name).level for name in (*_CHATTY, EVENTS_LOGGER)}
        self._hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._structlog = structlog.get_config() if structlog.is_configured() else None

    def restore(self) -> None:
        """Put everything back."""
        root = logging.getLogger()
        root.handlers = self._handlers
        root.setLevel(self._level)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks
        logging.captureWarnings(False)
        structlog.reset_defaults()
        if self._structlog is not None:
            structlog.configure(**self._structlog)


__all__ = ["configure_logs"]
