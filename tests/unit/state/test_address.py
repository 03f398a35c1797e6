"""Addresses: what they mean, and what is refused before anything happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.state import SCOPES, StateAddress, StateScope, check_key, parse_address


def test_an_address_is_a_scope_an_id_and_a_key() -> None:
    assert parse_address("user/language") == StateAddress("user", "", "language")
    assert parse_address("user:ann/a/b") == StateAddress("user", "ann", "a/b")
    assert parse_address("agent:workflow:x/k") == StateAddress("agent", "workflow:x", "k")
    assert parse_address("global/", may_be_prefix=True) == StateAddress("global", "", "")
    assert parse_address("global", may_be_prefix=True) == StateAddress("global", "", "")
    for text in ("user/language", "user:ann/a/b"):
        assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user",
        "user/",
        "language",
        "User/x",
        "user:/x",
        "user: ann/x",
        "user:a\nb/x",
        "user/a\x00b",
        "user/\x1frun\x1fr\x1fx",
        "user/" + "k" * 513,
        "user:" + "i" * 201 + "/k",
        "user/\ud800",
        "/x",
        "nobody/x",
        None,
        7,
    ],
)
def test_what_is_no_address_is_refused(text: object) -> None:
    with pytest.raises(UsageError):
        parse_address(text)  # type: ignore[arg-type]


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        parsed = parse_address(text, may_be_prefix=True)
    except UsageError:
        return
    assert parsed.kind in SCOPES
    if parsed.key:
        assert check_key(parsed.key) == parsed.key


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20), st.sampled_from(SCOPES))
def test_two_scopes_never_share_a_home(one: str, other: str, kind: str) -> None:
    first = StateScope(kind, one, "t", "ses_1")  # type: ignore[arg-type]
    second = StateScope(kind, other, "t", "ses_1")  # type: ignore[arg-type]
    assert ((first.chain, first.prefix) == (second.chain, second.prefix)) == (one == other)


@pytest.mark.parametrize("key", ["", None, 3, b"x", "a\nb", "\x7f"])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(UsageError):
        check_key(key)
