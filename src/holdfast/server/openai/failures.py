"""Errors in the form of OpenAI: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast import errors
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError
from holdfast.server.http import ServerResponse
from holdfast.server.problems import ProblemRaised, make_problem

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_CODES: Final = {"auth.required": "invalid_api_key", "budget.exceeded": "insufficient_quota"}


class BadRequest(ProblemRaised):
    """A request that OpenAI would refuse too, with the parameter that is wrong."""

    def __init__(self, message: str, param: str = "", code: str = "", status: int = 400) -> None:
        """Refuse a request."""
        super().__init__(status, code, message)
        self.param = param


def make_failure(
    error: Exception, request_id: str
) -> tuple[int, JsonObject, tuple[tuple[str, str], ...]]:
    """Return the status, the body and the headers that tell an error.

    Stock clients try again on 408, 409, 429 and from 500 on, which would run an agent twice:
    `x-should-retry` says when that is of use.
    """
    if isinstance(error, BadRequest):
        told = _make(str(error), error.status, error.param or None, error.code or None)
        return error.status, told, ()
    if isinstance(error, errors.RunFailed):
        inner = error.error if isinstance(error.error, HoldfastError) else error
        if isinstance(inner, errors.BudgetExceeded):
            told = _make(str(inner), 429, None, "insufficient_quota")
            return 429, told, (("x-should-retry", "false"),)
        error = inner
    if isinstance(error, errors.NotFound) and error.context.get("kind") == "agent":
        name = error.context.get("value")
        told = _make(f"there is no agent {name!r:.80}", 404, "model", "model_not_found")
        return 404, told, (("x-should-retry", "false"),)
    problem, headers = make_problem(error, request_id)
    status = problem.status
    is_wrong = isinstance(error, HoldfastError | ProblemRaised) and status == 422
    status = 400 if is_wrong else status
    code = _CODES.get(problem.code, problem.code)
    if isinstance(error, errors.Unauthenticated):
        code = "invalid_api_key"
    detail = problem.detail if not problem.hint else f"{problem.detail} {problem.hint}"
    is_retryable = "true" if problem.is_retryable else "false"
    return status, _make(detail, status, None, code), (*headers, ("x-should-retry", is_retryable))


def make_failure_response(error: Exception, request_id: str) -> ServerResponse:
    """Return an error as the answer to a request."""
    status, body, headers = make_failure(error, request_id)
    return ServerResponse(status, msgspec.json.encode(body), headers=headers)


def _make(message: str, status: int, param: str | None, code: str | None) -> JsonObject:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if code == "insufficient_quota":
        kind = "insufficient_quota"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


__all__ = ["BadRequest", "make_failure", "make_failure_response"]
