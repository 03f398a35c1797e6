"""Errors reported to a service that collects them, or to any callable.

What is reported is what the log calls an error: runs and workflows that failed, policies that are
not obeyed, requests and threads that ended with an exception. Reports are data without secrets
and without the values of variables. They are handed over by a thread of their own, so that a slow
or broken receiver neither delays nor ends a run; what does not fit the queue is counted.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from holdfast._version import __version__
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.redaction import Redactor
    from holdfast.settings import Settings

_MOST_WAITING: Final = 1_000
_MOST_FRAMES: Final = 50
_MOST_TEXT: Final = 8_000
_FLUSH_S: Final = 2.0
_IDS: Final = ("run_id", "session_id", "tenant", "agent", "trace_id", "request_id")
_log = logging.getLogger("holdfast.error_reports")


class CodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code on the way to an error."""

    file: str
    function: str
    line: int


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One error: what failed, why, where it belongs; texts are redacted."""

    event: str
    """What happened, as the log names it: `run.failed`, `request failed`, …"""
    code: str
    """The stable code of the error, or the name of a foreign exception's class."""
    message: str
    version: str = __version__
    ids: Mapping[str, str] = {}
    """`run_id`, `session_id`, `tenant`, `agent`, `trace_id`, `request_id`, as far as known."""
    frames: tuple[CodePlace, ...] = ()
    """Where it was raised, outermost first; empty for what the journal tells."""


Reporter: TypeAlias = Callable[[ErrorReport], None]


class _Receiver:
    """One callable, what redacts for it, and the thread that calls it."""

    def __init__(self, reporter: Reporter, redactor: Redactor) -> None:
        self._reporter = reporter
        self._redactor = redactor
        self._waiting: queue.Queue[ErrorReport | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._guard = threading.Lock()
        self.users = 1
        self.dropped = 0

    def put(self, report: ErrorReport) -> None:
        with self._guard:
            if self._process != os.getpid():  # a fork has the queue, and not its thread
                self._process, self._thread = os.getpid(), None
                self._waiting = queue.Queue(_MOST_WAITING)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._hand_over, name="holdfast-errors", daemon=True
                )
                self._thread.start()
        try:
            self._waiting.put_nowait(report)
        except queue.Full:
            self.dropped += 1

    def flush(self, timeout_s: float) -> None:
        """End the thread after what waits, or after a while; the next report starts a new one."""
        with self._guard:
            thread, self._thread = self._thread, None
            if thread is None or self._process != os.getpid():
                return
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        thread.join(timeout_s)

    def _hand_over(self) -> None:
        while (report := self._waiting.get()) is not None:
            try:
                self._reporter(_redact(report, self._redactor))
            except Exception as error:  # noqa: BLE001 - theirs; it must not end ours
                _log.warning("an error could not be reported: %s", type(error).__name__)


_receivers: dict[str, _Receiver] = {}
_guard = threading.Lock()


def add_error_reporter(reporter: Reporter, settings: Settings) -> Callable[[], None]:
    """Have a callable told of each error of this process; returns what ends that.

    It is called in a thread of its own, one report after the other; what it raises is logged.
    The settings say which secrets must not be in a report.
    """
    return _add(f"callable {id(reporter)}", lambda: reporter, settings)


def install_error_reporter(settings: Settings) -> Callable[[], None]:
    """Report errors as `telemetry.errors` says; returns what ends that, after a last flush.

    Several callers with the same setting share one reporter.

    Raises:
        MissingExtra: sentry-sdk is not installed (extra `sentry`).
        UsageError: there is no such function, or Sentry has no address.
    """
    chosen = settings.telemetry.errors
    if not chosen:
        return lambda: None
    if chosen == "sentry":
        from holdfast.observability.sentry import make_sentry_reporter  # noqa: PLC0415 - optional

        return _add(chosen, lambda: make_sentry_reporter(settings), settings)
    return _add(chosen, lambda: _load(chosen), settings)


def _add(name: str, make: Callable[[], Reporter], settings: Settings) -> Callable[[], None]:
    from holdfast.observability.process_secrets import process_redactor  # noqa: PLC0415 - on use

    with _guard:
        known = _receivers.get(name)
        if known is None:
            known = _receivers[name] = _Receiver(make(), process_redactor(settings))
        else:
            known.users += 1
    is_added = True

    def remove() -> None:
        nonlocal is_added
        with _guard:
            if not is_added:
                return
            is_added = False
            known.users -= 1
            if known.users == 0:
                _receivers.pop(name, None)
        known.flush(_FLUSH_S)

    return remove


def has_error_reporters() -> bool:
    """Say whether anything is told of errors, so that no report is made in vain."""
    return bool(_receivers)


def report_error(
    event: str, fields: Mapping[str, object], error: BaseException | None = None
) -> None:
    """Tell all reporters; `fields` are those of the log line, and `error` what was raised."""
    if not _receivers:
        return
    code, message = str(fields.get("error", "")), str(fields.get("detail", ""))
    frames: tuple[CodePlace, ...] = ()
    if error is not None:
        code = str(getattr(error, "code", "") or type(error).__name__)
        message = message or str(error)
        frames = tuple(
            CodePlace(file=one.filename, function=one.name, line=one.lineno or 0)
            for one in traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
        )
    report = ErrorReport(
        event=event,
        code=code or event,
        message=message[:_MOST_TEXT] or str(fields.get("reason", "")),
        ids={name: str(fields[name]) for name in _IDS if fields.get(name)},
        frames=frames,
    )
    for receiver in list(_receivers.values()):
        receiver.put(report)


def flush_error_reports(timeout_s: float = _FLUSH_S) -> None:
    """Wait until what was reported has been handed over, or for so long."""
    for receiver in list(_receivers.values()):
        receiver.flush(timeout_s)


def _redact(report: ErrorReport, redactor: Redactor) -> ErrorReport:
    return msgspec.structs.replace(
        report,
        message=redactor.text(report.message),
        code=redactor.text(report.code),
        ids={name: redactor.text(value) for name, value in report.ids.items()},
    )


def _load(name: str) -> Reporter:
    module, colon, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function) if colon else None
    except (ImportError, AttributeError) as error:
        raise UsageError(detail=f"telemetry.errors: {name!r} cannot be loaded: {error}.") from error
    if not callable(found):
        raise UsageError(
            detail=f"telemetry.errors: {name!r} is neither `sentry` nor `module:function`."
        )
    return found  # type: ignore[no-any-return]


__all__ = [
    "CodePlace",
    "ErrorReport",
    "Reporter",
    "add_error_reporter",
    "flush_error_reports",
    "has_error_reporters",
    "install_error_reporter",
    "report_error",
]
