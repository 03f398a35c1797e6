"""What a provider's refusal means: status, headers and body become one `LLMError`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from holdfast.canonical import JsonObject
from holdfast.clock import Clock
from holdfast.errors import (
    LLMAuthError,
    LLMBadRequest,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMError,
    LLMNotFound,
    LLMOverloaded,
    LLMProtocolError,
    LLMQuotaExhausted,
    LLMRateLimited,
)
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.wire.codec import LONGEST_ID, make_printable, request_id
from holdfast.providers.wire.endpoint import Endpoint

_LONGEST_DETAIL = 600

_TOO_LONG_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "request_too_large",
    "request_body_too_large_after_decoding",
    "string_above_max_length",
}
_TOO_LONG = compile_on_use(
    r"context.{0,12}(length|window|size|limit)|prompt is too long|input is too long"
    r"|too many (input )?tokens|(reduce|shorten) the (length|prompt)"
    r"|exceeds? the maximum number of",
    re.IGNORECASE,
)
_QUOTA_CODES = {
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "enforced_spend_limit_reached",
    "insufficient_balance",
    "insufficient_credits",
}
_QUOTA = compile_on_use(
    r"credit balance is too low|insufficient (balance|credits?|funds)|billing (hard )?limit",
    re.IGNORECASE,
)
_FILTER_CODES = {
    "bio_policy",
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "invalid_prompt",
    "misalignment_policy_violation",
}
_NO_SUCH_API = compile_on_use(
    r"unexpected endpoint|unknown (url|endpoint|path|route)|unknown request url|cannot post"
    r"|invalid url|no (such )?route|unsupported (endpoint|path)"
    r"|not supported (in|with|by) the .{0,20}responses|only supported in v1/chat",
    re.IGNORECASE,
)
_BY_TYPE: dict[str, int] = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "ramp_limit_exceeded": 429,
    "invalid_request_error": 400,
    "overloaded_error": 529,
    "timeout_error": 504,
    "server_error": 500,
    "api_error": 500,
}


def make_refusal(
    endpoint: Endpoint,
    model: str,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    clock: Clock,
) -> LLMError:
    """Return the error that an HTTP answer other than 200 stands for.

    `context` holds `status`, `request_id`, `provider_code` and, where the provider
    named a time, `retry_after_s`. No secret of the endpoint is in it.
    """
    found = _read(body)
    found.context["status"] = status
    given = request_id(headers, endpoint.key.reveal())
    found.context["request_id"] = given or endpoint.scrub(found.request_id)
    wait_s = retry_after_s(headers, clock)
    if wait_s is not None:
        found.context["retry_after_s"] = wait_s
    if 300 <= status < 400:
        found.detail = "it redirects elsewhere, which is not followed; set the final base URL"
    return _build(endpoint, model, status, found)


def find_failure_in_answer(endpoint: Endpoint, model: str, body: bytes) -> LLMError:
    """Return the error that an error object inside a 200 answer stands for."""
    found = _read(body)
    if not found.is_error:
        detail = "it is neither an answer nor an error of this API"
        return LLMProtocolError(provider=endpoint.provider, model=model, detail=detail)
    status = next((_BY_TYPE[code] for code in found.codes if code in _BY_TYPE), 0)
    numbers = [int(code) for code in found.codes if code.isdigit() and 400 <= int(code) < 600]
    return _build(endpoint, model, status or next(iter(numbers), 500), found)


def retry_after_s(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return how long the provider asks to wait: milliseconds, seconds or a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _read_number(headers.get(name, ""))
        if seconds is not None:
            return round(seconds * scale, 3)
    until = _parse_date(headers.get("retry-after", ""))
    if until is None:
        return None
    # The provider's own clock, when it shows it, makes ours irrelevant.
    now = _parse_date(headers.get("date", ""))
    return max(0.0, round(until - (clock.now() if now is None else now), 3))


class _Found:
    """What an error body says."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        self.is_error = True
        self.code = ""
        self.codes: list[str] = []
        self.request_id = ""
        self.context: dict[str, object] = {}


def _build(endpoint: Endpoint, model: str, status: int, found: _Found) -> LLMError:
    cls = _choose_class(status, found)
    detail = endpoint.scrub(make_printable(found.detail))[:_LONGEST_DETAIL]
    context = {
        "provider": endpoint.provider,
        "model": model,
        "detail": detail or f"HTTP status {status}",
        "status": status,
        "provider_code": endpoint.scrub(make_printable(found.code))[:LONGEST_ID],
        **found.context,
    }
    if cls is LLMAuthError:
        context["key_env"] = endpoint.key_env or "the provider's key variable"
    return cls(**context)


def _choose_class(status: int, found: _Found) -> type[LLMError]:
    codes, detail = set(found.codes), found.detail
    if codes & _QUOTA_CODES or status == 402 or (status < 500 and _QUOTA.search(detail)):
        return LLMQuotaExhausted
    if status in (401, 403):
        return LLMAuthError
    if status == 429:
        return LLMRateLimited
    if codes & _TOO_LONG_CODES or status == 413 or (status < 500 and _TOO_LONG.search(detail)):
        return LLMContextTooLong
    if codes & _FILTER_CODES:
        return LLMContentFiltered
    if status in (404, 405, 501) or _NO_SUCH_API.search(detail):
        return LLMNotFound
    # A lock or a time limit at the provider's side: the same call may succeed later.
    if status >= 500 or status in (408, 409, 425):
        return LLMOverloaded
    return LLMBadRequest


def _read(body: bytes) -> _Found:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _Found(_extract_plain_text(body))
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return _Found(_extract_plain_text(body))
    inner = data.get("error") or data.get("response", {})
    if isinstance(inner, dict) and isinstance(inner.get("error"), dict):
        inner = inner["error"]
    if isinstance(inner, str):
        found = _Found(inner)
        inner = {}
    else:
        inner = inner if isinstance(inner, dict) and inner else data
        found = _Found(_read_message(inner) or _read_message(data))
    codes = _list_codes(inner) or _list_codes(data)
    found.code = codes[0] if codes else ""
    found.codes = [code.lower() for code in codes]
    found.is_error = bool(found.detail or data.get("error"))
    rid = data.get("request_id")
    found.request_id = make_printable(rid)[:LONGEST_ID] if isinstance(rid, str) else ""
    return found


def _read_message(data: JsonObject) -> str:
    for name in ("message", "detail", "error_description", "title"):
        value = data.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list | dict) and value:
            return msgspec.json.encode(value).decode()
    return ""


def _list_codes(data: JsonObject) -> list[str]:
    details = data.get("details")
    nested = details.get("error_code") if isinstance(details, dict) else None
    values = (data.get("code"), nested, data.get("type"), data.get("status"))
    return [str(v) for v in values if isinstance(v, str | int) and not isinstance(v, bool)]


def _extract_plain_text(body: bytes) -> str:
    text = body[:4096].decode(errors="replace").strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>([^<]{1,200})", text, re.IGNORECASE)
        return f"an HTML page ({title[1].strip()})" if title else "an HTML page"
    return text


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _parse_date(text: str) -> float | None:
    if not text:
        return None
    try:
        found = parsedate_to_datetime(text)
        # The oldest of the three forms that HTTP allows names no zone, and means GMT.
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def explain_reason(error: Exception) -> str:
    """Return what became of a connection, without its address and what was sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host} is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientOSError):
        # Its own words hold the whole address.
        return f"the connection broke ({os.strerror(error.errno or 0)})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return type(error).__name__
