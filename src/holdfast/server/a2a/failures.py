"""Errors as A2A tells them: JSON-RPC errors whose data says why, for programs."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.canonical import JsonObject
from holdfast.server.http import ServerResponse
from holdfast.server.problems import make_problem

_CODES: Final = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "VERSION_NOT_SUPPORTED": -32009,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL": -32603,
    "JSON_PARSE": -32700,
}
_KEPT: Final = frozenset({401, 403, 413, 429, 503})
"""Statuses that stand for themselves: proxies between the two need them."""
_DENIED: Final = -32090
_DOMAIN: Final = "a2a-protocol.org"


class A2aRefused(Exception):
    """A request that is refused, by the protocol's reason for it; `field` is what was wrong."""

    def __init__(self, reason: str, message: str, field: str = "") -> None:
        """Refuse a request."""
        super().__init__(message)
        self.reason = reason
        self.field = field


def make_failure(
    error: Exception, request_id: str
) -> tuple[int, JsonObject, tuple[tuple[str, str], ...]]:
    """Return the status, the JSON-RPC error and the headers that tell an error."""
    if isinstance(error, A2aRefused):
        return 200, _make(_CODES[error.reason], str(error), error.reason, error.field, _DOMAIN), ()
    problem, headers = make_problem(error, request_id)
    status = problem.status if problem.status in _KEPT else 200
    detail = f"{problem.detail} {problem.hint}".strip() or problem.title
    reason = problem.code.upper().replace(".", "_")
    if isinstance(error, errors.NotFound):
        return 200, _make(-32001, detail, "TASK_NOT_FOUND", "", _DOMAIN), ()
    if problem.status in (401, 403):
        code = _DENIED
    elif problem.status < 500:
        code = _CODES["INVALID_PARAMS"]
    else:
        code = _CODES["INTERNAL"]
    return status, _make(code, detail, reason, "", "holdfast"), headers


def make_failure_response(
    error: Exception,
    request_id: str,
    id: Any = None,  # noqa: ANN401 - JSON
) -> ServerResponse:
    """Return an error as the answer to a request."""
    status, told, headers = make_failure(error, request_id)
    body = {"jsonrpc": "2.0", "id": id, "error": told}
    return ServerResponse(status, msgspec.json.encode(body), headers=headers)


def _make(code: int, message: str, reason: str, field: str, domain: str) -> JsonObject:
    kind = "type.googleapis.com/google.rpc."
    data: list[JsonObject] = [{"@type": f"{kind}ErrorInfo", "reason": reason, "domain": domain}]
    if field:
        violation = {"field": field, "description": message}
        data.append({"@type": f"{kind}BadRequest", "fieldViolations": [violation]})
    return {"code": code, "message": message, "data": data}


__all__ = ["A2aRefused", "make_failure", "make_failure_response"]
