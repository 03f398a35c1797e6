"""What people and machines see of a process while it works: for now, its log.

The log is loaded when somebody sets it up; only applications do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.observability.logger import Logger
from holdfast.observability.process_secrets import process_redactor

if TYPE_CHECKING:
    from holdfast.observability.logs import configure_logs as configure_logs

__all__ = ["Logger", "configure_logs", "process_redactor"]


def __getattr__(name: str) -> object:
    if name != "configure_logs":
        raise AttributeError(f"module 'holdfast.observability' has no attribute {name!r}")
    from holdfast.observability.logs import configure_logs  # noqa: PLC0415 - see above

    globals()[name] = configure_logs
    return configure_logs
