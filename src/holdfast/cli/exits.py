"""Exit codes of the command line, and which error leads to which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from holdfast import errors


class ExitCode(IntEnum):
    """What the process tells its caller; the numbers never change."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 3
    AUTHENTICATION = 4
    WAITING = 5
    DENIED = 6
    BUDGET = 7
    INTERRUPTED = 130


_BY_CLASS: Final[dict[type[BaseException], ExitCode]] = {
    errors.ConfigError: ExitCode.CONFIGURATION,
    errors.MissingExtra: ExitCode.CONFIGURATION,
    errors.UsageError: ExitCode.USAGE,
    errors.Unauthenticated: ExitCode.AUTHENTICATION,
    errors.NotPermitted: ExitCode.AUTHENTICATION,
    errors.LLMAuthError: ExitCode.AUTHENTICATION,
    errors.McpAuthFailed: ExitCode.AUTHENTICATION,
    errors.PermissionDenied: ExitCode.DENIED,
    errors.McpUntrusted: ExitCode.DENIED,
    errors.McpHeldBack: ExitCode.DENIED,
    errors.ApprovalExpired: ExitCode.DENIED,
    errors.ArtifactDenied: ExitCode.DENIED,
    errors.LinkRefused: ExitCode.DENIED,
    errors.BudgetExceeded: ExitCode.BUDGET,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
}

_DENIAL: Final = errors.PermissionDenied.message.rpartition("{because}")[0].rpartition("}")[2]
"""What every denial says, between what and why."""


def choose_exit_code(error: BaseException) -> ExitCode:
    """The exit code of an error: that of its nearest listed class, else FAILED.

    Where nothing was done because it was not allowed, it is that of a denial.
    """
    if isinstance(error, errors.NothingDone) and _DENIAL in str(error):
        return ExitCode.DENIED
    if isinstance(error, errors.FileError) and isinstance(error.__cause__, FileNotFoundError):
        return ExitCode.USAGE
    for cls in type(error).__mro__:
        if cls in _BY_CLASS:
            return _BY_CLASS[cls]
    return ExitCode.FAILED
