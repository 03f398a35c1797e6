"""What people and machines see of a process while it works: its log, and the files of the audit.

The log is loaded when a caller sets it up; only applications do.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.observability.error_reports import CodePlace as CodePlace
    from holdfast.observability.error_reports import ErrorReport as ErrorReport
    from holdfast.observability.error_reports import add_error_reporter as add_error_reporter
    from holdfast.observability.error_reports import flush_error_reports as flush_error_reports
    from holdfast.observability.error_reports import has_error_reporters as has_error_reporters
    from holdfast.observability.error_reports import (
        install_error_reporter as install_error_reporter,
    )
    from holdfast.observability.error_reports import report_error as report_error
    from holdfast.observability.logger import EVENTS_LOGGER as EVENTS_LOGGER
    from holdfast.observability.logger import LogEvent as LogEvent
    from holdfast.observability.logger import Logger as Logger
    from holdfast.observability.logger import bind_log_fields as bind_log_fields
    from holdfast.observability.logger import read_log_fields as read_log_fields
    from holdfast.observability.logs import configure_logs as configure_logs
    from holdfast.observability.process_secrets import process_redactor as process_redactor
    from holdfast.observability.trace_ids import INCOMING_TRACE as INCOMING_TRACE
    from holdfast.observability.trace_ids import TraceParent as TraceParent
    from holdfast.observability.trace_ids import make_span_id as make_span_id
    from holdfast.observability.trace_ids import make_trace_id as make_trace_id
    from holdfast.observability.trace_ids import make_traceparent as make_traceparent
    from holdfast.observability.trace_ids import parse_traceparent as parse_traceparent
    from holdfast.observability.trail import AuditEntry as AuditEntry
    from holdfast.observability.trail import AuditTrail as AuditTrail
    from holdfast.observability.trail import parse_entry as parse_entry
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "error_reports": "CodePlace ErrorReport add_error_reporter flush_error_reports "
            "has_error_reporters install_error_reporter report_error",
            "logger": "EVENTS_LOGGER LogEvent Logger bind_log_fields read_log_fields",
            "logs": "configure_logs",
            "process_secrets": "process_redactor",
            "trace_ids": "INCOMING_TRACE TraceParent make_span_id make_trace_id make_traceparent "
            "parse_traceparent",
            "trail": "AuditEntry AuditTrail parse_entry",
        },
    )
