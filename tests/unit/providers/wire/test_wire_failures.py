"""Status, headers and body become one error, with the time to wait and without secrets."""

from __future__ import annotations

import time

import msgspec
import pytest
from wire_kit import KEY, answer

from holdfast.errors import (
    LLMAuthError,
    LLMBadRequest,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMError,
    LLMNotFound,
    LLMOverloaded,
    LLMQuotaExhausted,
    LLMRateLimited,
)
from holdfast.providers.wire import Endpoint, Secret, WireModel
from holdfast.providers.wire.codec import request_id
from holdfast.providers.wire.failures import make_refusal, retry_after_s
from holdfast.testing import FakeClock
from holdfast.testing.fake_server import Failure, FakeServer

CLOCK = FakeClock(1_700_000_000.0)
ENDPOINT = Endpoint(provider="p", base_url="http://u:hunter22@h/v1?key=qs-value", key=Secret(KEY))


def error_of(status: int, body: object, headers: dict[str, str] | None = None) -> LLMError:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return make_refusal(ENDPOINT, "m", status=status, headers=headers or {}, body=data, clock=CLOCK)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, LLMBadRequest),
        (401, LLMAuthError),
        (402, LLMQuotaExhausted),
        (403, LLMAuthError),
        (404, LLMNotFound),
        (405, LLMNotFound),
        (408, LLMOverloaded),
        (409, LLMOverloaded),
        (413, LLMContextTooLong),
        (418, LLMBadRequest),
        (422, LLMBadRequest),
        (429, LLMRateLimited),
        (500, LLMOverloaded),
        (501, LLMNotFound),
        (502, LLMOverloaded),
        (503, LLMOverloaded),
        (504, LLMOverloaded),
        (529, LLMOverloaded),
    ],
)
async def test_each_status_is_its_own_kind_of_error_on_every_wire(
    model: WireModel, server: FakeServer, status: int, kind: type[LLMError]
) -> None:
    server.answers.append(Failure(status=status, headers={"Retry-After": "7"}))
    with pytest.raises(kind) as caught:
        await answer(model)
    assert type(caught.value) is kind
    assert caught.value.context["status"] == status
    assert caught.value.context["request_id"] == "req_head"
    assert caught.value.context["retry_after_s"] == 7.0


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, LLMContextTooLong),
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 208310 tokens > 200000 maximum",
                },
            },
            LLMContextTooLong,
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "type": "exceed_context_size_error",
                    "message": "the request exceeds the available context size",
                }
            },
            LLMContextTooLong,
        ),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens."},
            LLMContextTooLong,
        ),
        (429, {"error": {"code": "insufficient_quota", "message": "x"}}, LLMQuotaExhausted),
        (
            400,
            {
                "error": {
                    "type": "invalid_request_error",
                    "message": "Your credit balance is too low to access the API.",
                }
            },
            LLMQuotaExhausted,
        ),
        (
            429,
            {
                "error": {
                    "type": "rate_limit_error",
                    "message": "x",
                    "details": {"error_code": "enforced_spend_limit_reached"},
                }
            },
            LLMQuotaExhausted,
        ),
        (
            429,
            [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}],
            LLMRateLimited,
        ),
        (429, {"error": {"message": "tokens per min: context window"}}, LLMRateLimited),
        (400, {"error": {"code": "content_filter", "message": "x"}}, LLMContentFiltered),
        (400, {"error": "Unexpected endpoint or method. (POST /v1/x)"}, LLMNotFound),
        (500, {"error": {"message": "context deadline: window"}}, LLMOverloaded),
        (400, {"detail": [{"msg": "field required"}]}, LLMBadRequest),
        (502, b"<html><head><title>502 Bad Gateway</title></head></html>", LLMOverloaded),
        (500, b"\xff\xfe", LLMOverloaded),
        (500, b"", LLMOverloaded),
        (400, b"[]", LLMBadRequest),
        (400, b"[" * 100_000, LLMBadRequest),
    ],
    ids=range(18),
)
def test_codes_and_words_tell_more_than_the_status(
    status: int, body: object, kind: type[LLMError]
) -> None:
    error = error_of(status, body)
    assert type(error) is kind
    assert str(error) and "unknown" not in str(error)


def test_an_empty_account_is_not_worth_a_retry() -> None:
    body = {"error": {"code": "insufficient_quota", "message": "x"}}
    assert not error_of(429, body, {"Retry-After": "1"}).is_retryable
    assert error_of(429, {"error": {"message": "x"}}).is_retryable


def test_no_secret_of_the_endpoint_is_in_an_error() -> None:
    login = "dTpodW50ZXIyMg=="
    text = f"bad {KEY} at http://u:hunter22@h/?key=qs-value with {login}"
    more = " and sk-proj-aaaaaaaaaaaaaaaaaaaa \x1b[31m"
    error = error_of(401, {"error": {"message": text + more, "code": KEY}})
    shown = str(error) + error.hint + str(error.to_dict()) + repr(error)
    for secret in (KEY, "hunter22", "qs-value", login, "sk-proj", "\x1b"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "30", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        (
            {
                "retry-after": "Tue, 14 Nov 2023 22:14:20 GMT",
                "date": "Tue, 14 Nov 2023 22:14:10 GMT",
            },
            10.0,
        ),
        ({"retry-after": "Tue, 14 Nov 2000 22:14:20 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_the_time_to_wait_is_read_in_all_its_forms(
    headers: dict[str, str], expected: float | None
) -> None:
    assert retry_after_s(headers, CLOCK) == expected


def test_a_date_without_zone_means_gmt_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-9")
    time.tzset()
    try:
        assert retry_after_s({"retry-after": "Tue Nov 14 22:14:20 2023"}, CLOCK) == 60.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_request_id_is_found_and_tamed() -> None:
    assert request_id({"request-id": "req_1", "x-request-id": "req_2"}, "") == "req_1"
    assert request_id({"x-request-id": "a\x1b[31mb" + "c" * 500}, "")[:2] == "a "
    assert len(request_id({"x-request-id": "c" * 500}, "")) == 128
    assert request_id({}, "") == ""
    assert request_id({"request-id": "req_sk-1"}, "sk-1") == ""


def test_a_refusal_does_not_hand_our_key_on_as_an_id() -> None:
    key = ENDPOINT.key.reveal()
    error = error_of(500, {"request_id": key}, {"x-request-id": f"req_{key}"})
    assert key and key not in repr(error.context)


async def test_the_request_id_of_the_body_counts_where_no_header_has_one() -> None:
    error = error_of(529, {"type": "error", "error": {"type": "x"}, "request_id": "req_b"})
    assert error.context["request_id"] == "req_b"
