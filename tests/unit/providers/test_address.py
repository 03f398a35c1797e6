"""Addresses that mean the same place have one spelling, and it holds no credential."""

from __future__ import annotations

import pytest

from holdfast.providers.address import strip_address


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://Host.example:443/v1/", "https://host.example/v1"),
        ("http://host.example:80", "http://host.example"),
        ("http://host.example:8080/v1", "http://host.example:8080/v1"),
        ("https://me:word@host.example/v1?key=k#there", "https://host.example/v1"),
        ("http://[::1]:11434/v1", "http://[::1]:11434/v1"),
        ("file:///etc/passwd", ""),
        ("http://host.example:99999", ""),
        ("http://", ""),
        ("", ""),
    ],
)
def test_an_address_is_spelled_in_one_way(url: str, plain: str) -> None:
    assert strip_address(url) == plain
    assert strip_address(plain) == plain
