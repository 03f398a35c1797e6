"""What people and machines see of a process while it works: for now, its log."""

from holdfast.observability.logs import configure_logs, process_redactor

__all__ = ["configure_logs", "process_redactor"]
