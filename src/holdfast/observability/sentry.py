"""Errors for Sentry, and for what speaks its protocol (GlitchTip, Bugsink): extra `sentry`.

An application that has set Sentry up keeps its set-up, and our events go there. Otherwise a
client of our own is made, without Sentry's integrations: nothing is patched, no values of
variables are read, nothing but our reports is sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__
from holdfast.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from holdfast.observability.error_reports import ErrorReport, Reporter
    from holdfast.settings import Settings


def make_sentry_reporter(settings: Settings) -> Reporter:
    """Return what sends reports to Sentry.

    Raises:
        MissingExtra: sentry-sdk is not installed.
        UsageError: neither the application nor SENTRY_DSN says where.
    """
    try:
        sdk: Any = importlib.import_module("sentry_sdk")
    except ImportError as error:
        raise MissingExtra(
            what='telemetry.errors = "sentry"', package="sentry-sdk", extra="sentry"
        ) from error
    client = sdk.get_client()
    if not client.is_active():
        client = _make_client(sdk, settings)

    def report(one: ErrorReport) -> None:
        client.capture_event(make_event(one, settings.env or "production"))
        client.flush(timeout=2.0)

    return report


def make_event(report: ErrorReport, environment: str) -> dict[str, Any]:
    """Return a report as an event of Sentry: grouped by what happened and its code."""
    error: dict[str, Any] = {"type": report.code, "value": report.message}
    if report.frames:
        error["stacktrace"] = {
            "frames": [
                {
                    "filename": one.file.rpartition("/site-packages/")[2],
                    "function": one.function,
                    "lineno": one.line,
                    "in_app": "holdfast" in one.file,
                }
                for one in report.frames
            ]
        }
    return {
        "level": "error",
        "logger": "holdfast",
        "transaction": report.event,
        "release": f"holdfast@{report.version}",
        "environment": environment,
        "tags": {"code": report.code, "event": report.event, **report.ids},
        "fingerprint": ["holdfast", report.event, report.code],
        "exception": {"values": [error]},
    }


def _make_client(sdk: Any, settings: Settings) -> Any:  # noqa: ANN401 - an optional package
    dsn = settings.secrets.sentry_dsn
    if dsn is None:
        raise UsageError(detail='telemetry.errors = "sentry" needs SENTRY_DSN.')
    try:
        return sdk.Client(
            dsn=dsn.get_secret_value(),
            release=f"holdfast@{__version__}",
            default_integrations=False,
            auto_enabling_integrations=False,
            include_local_variables=False,
            auto_session_tracking=False,
            shutdown_timeout=2,
            server_name="",
        )
    except sdk.utils.BadDsn as error:
        raise UsageError(detail="SENTRY_DSN is not an address of Sentry.") from error


__all__ = ["make_event", "make_sentry_reporter"]
