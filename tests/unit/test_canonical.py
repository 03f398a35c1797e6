"""Equal values give equal bytes, and the bytes of stored values never change."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.canonical import digest, encode_canonical_json, hash_sha256

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=8), st.randoms())
def test_the_order_of_keys_does_not_matter(value: dict[str, object], random) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert encode_canonical_json({key: value[key] for key in keys}) == encode_canonical_json(value)


@given(json_values)
def test_canonical_json_reads_back_as_the_same_value(value: object) -> None:
    assert json.loads(encode_canonical_json(value)) == value


@given(json_values)
def test_encoding_what_was_read_back_gives_the_same_bytes(value: object) -> None:
    once = encode_canonical_json(value)
    assert encode_canonical_json(msgspec.json.decode(once)) == once


@given(json_values, json_values)
def test_different_values_have_different_digests(first: object, second: object) -> None:
    same = encode_canonical_json(first) == encode_canonical_json(second)
    assert (digest(first) == digest(second)) is same


# Stored chains rest on these bytes: a change here is a change of every stored digest.
GOLDEN: list[tuple[object, bytes]] = [
    ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
    ({"z": {"y": 1, "x": 2}}, b'{"z":{"x":2,"y":1}}'),
    ("ü\u2028</\x7f\n", '"ü\u2028</\x7f\\n"'.encode()),
    (1.0, b"1.0"),
    (0.1, b"0.1"),
    (1e22, b"1e22"),
    (-0.0, b"-0.0"),
    (2**63, b"9223372036854775808"),
    (float("nan"), b"null"),
    (b"\x00\xff", b'"AP8="'),
    ((1, 2), b"[1,2]"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN, ids=lambda item: repr(item)[:30])
def test_golden_values_keep_their_bytes(value: object, expected: bytes) -> None:
    assert encode_canonical_json(value) == expected


def test_structs_keep_their_field_order() -> None:
    class Point(msgspec.Struct):
        y: int
        x: int

    assert encode_canonical_json(Point(y=1, x=2)) == b'{"y":1,"x":2}'


def test_a_digest_is_the_sha256_of_the_canonical_bytes() -> None:
    assert digest({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()
    assert hash_sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
