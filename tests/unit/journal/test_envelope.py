"""Payloads are stored only if they can be read again."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal import Payload, decode_payload, encode_payload, encode_redacted, payload
from holdfast.journal.envelope import decode_redacted, is_bare
from holdfast.testing._store_samples import Note


@payload("unit.sample", is_open=True)
class Sample(Payload, frozen=True, kw_only=True):
    text: str = ""
    number: int | float = 0
    anything: Any = None


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        Sample(text="\ud800"),
        Sample(number=math.nan),
        Sample(anything=object()),
        Sample(anything={1.5: object()}),
        Sample(anything=nested(100_000)),
        Sample(text=5),  # type: ignore[arg-type]
    ],
    ids=["surrogate", "nan", "object", "keys", "deep", "wrong type"],
)
def test_what_cannot_be_read_again_is_refused(value: Sample) -> None:
    with pytest.raises(UsageError) as caught:
        encode_payload(value)
    assert caught.value.code == "usage.invalid"


def test_what_is_stored_is_read_again() -> None:
    value = Sample(text="null \x00 🙂", number=1.5, anything={"a": [None, True]})
    assert decode_payload("unit.sample", 1, encode_payload(value)) == value
    assert decode_redacted("unit.sample", encode_redacted(value)) == value


@pytest.mark.parametrize("data", [b"", b"[]", b'{"text": 1}', b"\xff", b"[" * 100_000])
def test_bytes_that_are_not_what_the_kind_promises_are_damage(data: bytes) -> None:
    with pytest.raises(StorageDamaged) as caught:
        decode_payload("unit.sample", 1, data)
    assert caught.value.code == "storage.damaged"
    with pytest.raises(StorageDamaged):
        decode_redacted("unit.sample", data)


def test_a_redaction_holds_nothing_beyond_what_is_left() -> None:
    assert is_bare(Note.kind, encode_redacted(Note(text="[removed]")))
    assert not is_bare(Note.kind, encode_redacted(Note(text="content")))
    hidden = b'{"version":1,"left":{"text":"[removed]","more":"content"}}'
    assert not is_bare(Note.kind, hidden)


def test_a_kind_without_content_has_nothing_to_redact() -> None:
    with pytest.raises(UsageError):
        Sample().redacted()
