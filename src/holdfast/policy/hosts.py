"""Host names: one spelling for each, and patterns over them.

Everything that compares hosts (rules of the gate, the lists of network.yaml, the HTTP
client) goes through here, so that two spellings of one host can never be judged apart (SSRF).
"""

from __future__ import annotations

import functools
import re
import unicodedata

_LONGEST_NAME = 253
# The dots that IDNA takes for a full stop.
_DOTS = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})


@functools.cache
def _compile_label() -> re.Pattern[str]:
    return re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


@functools.cache
def _compile_quad() -> re.Pattern[str]:
    return re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")


@functools.cache
def _compile_number() -> re.Pattern[str]:
    return re.compile(r"[0-9]+|0x[0-9a-f]*")


@functools.cache
def _compile_six() -> re.Pattern[str]:
    return re.compile(r"[0-9a-f:.]*:[0-9a-f:.]*(?:%[0-9a-z._~-]+)?")


@functools.cache
def _compile_ported() -> re.Pattern[str]:
    return re.compile(r"(\[[^\]]+\]|[^:\[\]]+):(\*|[1-9][0-9]{0,4})")


class BadHost(ValueError):
    """The text is no host, or one whose meaning depends on who reads it."""


@functools.lru_cache(maxsize=4_096)
def normalize_host(host: str) -> str:
    """Return the one spelling of a host: lower case, ASCII, no final dot, no brackets.

    Raises:
        BadHost: it is empty, too long, has characters that no host has, or is a number
            in disguise (`2130706433`, `0x7f.1`, `0177.0.0.1`), which some programs take
            for an address and others for a name.
    """
    text = unicodedata.normalize("NFKC", host.translate(_DOTS)).lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if _compile_six().fullmatch(text):
        return text
    text = text.removesuffix(".")
    if not text.isascii():
        text = _to_ascii(text)
    if _compile_number().fullmatch(text.rpartition(".")[2]):
        if _compile_quad().fullmatch(text):
            return text
        raise BadHost("it is an address in an unusual spelling")
    if len(text) > _LONGEST_NAME or not all(map(_compile_label().fullmatch, text.split("."))):
        raise BadHost("it is no host name")
    return text


@functools.lru_cache(maxsize=4_096)
def split_port(pattern: str) -> tuple[str, str]:
    """Return the host and the port of `host:port`, `host:*` or `[address]:port`; else no port.

    Raises:
        BadHost: there is no such port.
    """
    found = _compile_ported().fullmatch(pattern)
    if found is None:
        return pattern, ""
    if found[2] != "*" and int(found[2]) > 65_535:
        raise BadHost("it has no such port")
    return found[1], found[2]


def join_port(host: str, port: int) -> str:
    """Return a host with a port, as rules and targets name both."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_every_port(host: str) -> str:
    """Return the rule for a host, or an address, at whatever port was configured with it."""
    return f"[{host}]:*" if ":" in host else f"{host}:*"


def _to_ascii(name: str) -> str:
    """Spell a name as browsers and HTTP clients do (IDNA 2008): `faß.de` is not `fass.de`.

    Python's own codec is of 2003 and says it is. A name that only the older rules allow is
    refused, since programs do not agree about it.
    """
    import idna  # noqa: PLC0415 - its tables, for names that few requests have

    try:
        return idna.encode(name, uts46=True, transitional=False).decode("ascii").lower()
    except UnicodeError as error:
        raise BadHost("it is no host name") from error


@functools.lru_cache(maxsize=4_096)
def render_host_source(pattern: str) -> str:
    """Return a regular expression for normalised hosts.

    `*` stands for any text; `*.example.org` covers every host below example.org and
    example.org itself.

    Raises:
        BadHost: the pattern can never be met, because it is no host even without its stars.
    """
    text = unicodedata.normalize("NFKC", pattern.translate(_DOTS)).lower().removesuffix(".")
    if set(text) <= {"*", "."}:
        if text in ("*", "**"):
            return ".*"
        raise BadHost("it is no host name")
    head = ""
    if text.startswith(("*.", "**.")):
        head, text = r"(?:.*\.)?", text.partition(".")[2]
    if "*" not in text:
        return head + re.escape(normalize_host(text))
    if not text.isascii() or not re.fullmatch(r"[a-z0-9_.:*-]+", text):
        raise BadHost("it is no host name")
    return head + re.sub(r"(?:\\\*)+", ".*", re.escape(text))
