"""Types of single settings: how text from a file or a variable becomes a value.

All of them accept what TOML gives (numbers, booleans, strings) and what variables give
(strings), and refuse everything else with a sentence that does not repeat the value.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_MAX_S: Final = 100 * 365 * 86400
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_CONTROL: Final = frozenset({*map(chr, range(0x20)), "\x7f"})


def _has_control(text: str) -> bool:
    return not _CONTROL.isdisjoint(text)


def _parse_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    raise ValueError("must be true, false, 1, 0, yes, no, on or off")


def _parse_duration(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Compared before it is converted: an integer may be too large for a float.
        return float(value) if abs(value) <= _MAX_S else float(_MAX_S + 1)
    text = value.strip().lower() if isinstance(value, str) else ""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text)
    if found is None:
        raise ValueError("must be seconds, or a number with s, m, h, d or w, such as 30d")
    return float(found[1]) * _UNIT_S.get(found[2], 1)


def _parse_none(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number or none")
    is_none = isinstance(value, str) and value.strip().lower() == "none"
    return None if is_none else value


def _parse_lines(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _check_url(value: str) -> str:
    if _has_control(value) or " " in value:
        raise ValueError("must be a URL without spaces or control characters")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL with a valid host and port") from None
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        raise ValueError("must be a URL that starts with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user or a password; keys have variables of their own")
    return value.rstrip("/")


def _check_store_url(value: str) -> str:
    if not value:
        return value
    if _has_control(value) or " " in value:
        raise ValueError("must be a URL without spaces or control characters")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("must be a URL with a valid host and port") from None
    if not parts.scheme or not value.startswith("://", len(parts.scheme)):
        raise ValueError("must be a URL, such as sqlite:///var/lib/holdfast or memory://")
    if parts.password is not None:
        raise ValueError("must not contain a password; leave it to the database's own client")
    return value


def _check_line(value: str) -> str:
    if _has_control(value) or value != value.strip():
        raise ValueError("must be one line without control characters or outer spaces")
    return value


def _check_path(value: Path) -> Path:
    if "\0" in str(value):
        raise ValueError("must not contain a NUL character")
    return value


def _check_secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if _has_control(text) or text != text.strip() or not text:
        raise ValueError("must be one line without control characters or outer spaces")
    return value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Switch = Annotated[bool, BeforeValidator(_parse_switch)]
"""true/false, 1/0, yes/no, on/off, in any case."""

Duration = Annotated[
    float, BeforeValidator(_parse_duration), Field(gt=0, le=_MAX_S, allow_inf_nan=False)
]
"""Seconds, or a number with a unit: `90`, `15m`, `30d`."""

OptionalDuration = Annotated[Duration | None, BeforeValidator(_parse_none)]
"""A duration, or `none` for without limit."""

OptionalCount = Annotated[
    Annotated[int, Field(ge=1, le=2**53)] | None,
    BeforeValidator(_parse_none),
]
"""A whole number from 1, or `none` for without limit."""

OptionalDollars = Annotated[
    Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None,
    BeforeValidator(_parse_none),
]
"""An amount in dollars, or `none` for without limit."""

Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_line)]
"""One short line of text."""

Lines = Annotated[tuple[Line, ...], BeforeValidator(_parse_lines), Field(max_length=1000)]
"""Several short lines: a list in a file, separated by commas in a variable."""

Redacted = Annotated[tuple[Literal["secrets", "personal"], ...], BeforeValidator(_parse_lines)]
"""What is redacted: `secrets`, `personal`, both, or nothing."""

Url = Annotated[str, Field(max_length=2000), AfterValidator(_check_url)]
"""An http or https address without credentials."""

StoreUrl = Annotated[str, Field(max_length=2000), AfterValidator(_check_store_url)]
"""The address of a store without a password; empty for the default."""

Directory = Annotated[Path, AfterValidator(_check_path)]
"""An absolute path once loaded: `~` is the home directory, relative paths start at the
file that names them, or at the working directory."""

Secret = Annotated[SecretStr, AfterValidator(_check_secret)]
"""A key: never printed, never in an error, never read from a configuration file."""

AnyCase = BeforeValidator(_lower)
"""Makes a choice accept any case."""
