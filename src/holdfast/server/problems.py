"""Problems by RFC 9457: each of our errors as an answer, with its code and its hint."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from holdfast import errors
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError
from holdfast.server.http import PROBLEM, ServerResponse

_STATUS: Final[dict[type[HoldfastError], int]] = {
    errors.UsageError: 400,
    errors.ConfigError: 422,
    errors.ExpressionInvalid: 422,
    errors.InvalidImport: 422,
    errors.InvalidTransition: 409,
    errors.MissingExtra: 501,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.RequestTooLarge: 413,
    errors.IdempotencyKeyReused: 422,
    errors.Refused: 403,
    errors.Unauthenticated: 401,
    errors.TooManyTenants: 503,
    errors.ServerDraining: 503,
    errors.ApprovalExpired: 409,
    errors.RateLimitError: 429,
    errors.SessionBusy: 409,
    errors.Failed: 502,
    errors.RequestTimeout: 408,
    errors.LLMInputUnsupported: 422,
    errors.ToolInputInvalid: 422,
    errors.FileError: 422,
    errors.StorageError: 503,
    errors.StorageFull: 507,
    errors.ServerFailed: 500,
    errors.Conflict: 409,
    errors.Damaged: 500,
    HoldfastError: 500,
}


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, by RFC 9457; `code` is stable, `hint` says what to do next."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    code: str
    hint: str = ""
    is_retryable: bool = False
    request_id: str = ""
    context: JsonObject = {}


class ProblemRaised(Exception):
    """An answer that is a problem of HTTP itself, such as an unknown path."""

    def __init__(
        self, status: int, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Answer with this status and code."""
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers


def status_of(error: HoldfastError) -> int:
    """Return the status of an error: that of its nearest listed class."""
    return next(_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS)


def list_statuses() -> dict[type[HoldfastError], int]:
    """Return the status of every error, for the description of the API."""
    return {
        cls: next(_STATUS[base] for base in cls.__mro__ if base in _STATUS)
        for cls in errors.list_errors().values()
    }


def make_problem(
    error: Exception, request_id: str
) -> tuple[ProblemDetails, tuple[tuple[str, str], ...]]:
    """Return an error as a problem, and the headers that go with it.

    Of an error that nobody foresaw nothing is told but where to look for it.
    """
    headers: list[tuple[str, str]] = []
    found: dict[str, Any]
    if isinstance(error, ProblemRaised):
        status, found = error.status, {"code": error.code, "message": str(error)}
        headers += error.headers
    else:
        if not isinstance(error, HoldfastError):
            error = errors.ServerFailed(detail="an unexpected error", request_id=request_id)
        status, found = status_of(error), error.to_dict()
        if status == 401:
            headers.append(("www-authenticate", 'Bearer realm="holdfast"'))
        if error.is_retryable and status in (429, 503):
            headers.append(("retry-after", str(_read_retry_seconds(error))))
    problem = ProblemDetails(
        type=f"urn:holdfast:error:{found['code']}",
        title=_title_of(str(found["code"])),
        status=status,
        detail=str(found["message"]),
        instance=f"urn:holdfast:request:{request_id}" if request_id else "",
        code=str(found["code"]),
        hint=str(found.get("hint", "")),
        is_retryable=bool(found.get("is_retryable", False)),
        request_id=request_id,
        context=cast(JsonObject, found.get("context", {})),
    )
    return problem, tuple(headers)


def problem_response(error: Exception, request_id: str) -> ServerResponse:
    """Return the answer that tells an error."""
    problem, headers = make_problem(error, request_id)
    return ServerResponse(problem.status, msgspec.json.encode(problem), PROBLEM, headers)


def _title_of(code: str) -> str:
    cls: Any = errors.list_errors().get(code)
    doc = (cls.__doc__ or "") if cls is not None else ""
    first = doc.strip().split("\n")[0].partition(";")[0].rstrip(".")
    return first or code.replace(".", ": ").replace("_", " ")


def _read_retry_seconds(error: HoldfastError) -> int:
    wait = error.context.get("retry_after_s")
    return max(1, int(wait)) if isinstance(wait, int | float) else 1


__all__ = [
    "ProblemDetails",
    "ProblemRaised",
    "list_statuses",
    "make_problem",
    "problem_response",
    "status_of",
]
