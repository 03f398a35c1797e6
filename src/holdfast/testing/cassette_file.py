"""The cassette file: HTTP exchanges as readable YAML, without secrets."""

from __future__ import annotations

import base64
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
import yaml

from holdfast.canonical import JsonObject
from holdfast.errors import ConfigError

REMOVED = "<removed>"
_FORMAT = 1
_SHORTEST_SECRET = 6
_KEY_SHAPES = re.compile(
    rb"\b(?:sk|pk|rk|gsk|xai|hf|key|Bearer)[-_ ][A-Za-z0-9_.\-]{12,}|\bAIza[\w\-]{20,}"
)
_YAML_BREAKS = re.compile("[\\r\\x85\\u2028\\u2029\\ufeff]")
_KEPT_REQUEST = frozenset({"accept", "content-type", "anthropic-version", "anthropic-beta"})
_KEPT_RESPONSE = frozenset({"content-type", "request-id", "x-request-id", "retry-after"})
_PLAIN_REQUEST = _KEPT_REQUEST | {
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "user-agent",
}
"""Headers whose values are no secrets; the value of any other is removed everywhere."""
_KEPT_QUERY = frozenset({"api-version", "beta"})


class RecordedBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A body in its most readable form: JSON, else text, else base64."""

    json: object = None
    text: str = ""
    base64: str = ""


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is compared; headers are kept to be read, not to be compared."""

    method: str
    path: str
    headers: dict[str, str]
    body: RecordedBody

    def matches(self, other: RecordedRequest) -> bool:
        """Say whether two requests ask for the same."""
        mine = (self.method, self.path, self.body)
        return mine == (other.method, other.path, other.body)


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer in the pieces in which it came; `is_broken`: the connection was lost then."""

    status: int
    headers: dict[str, str]
    chunks: tuple[str | RecordedBody, ...] = ()
    is_broken: bool = False


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    request: RecordedRequest
    response: RecordedResponse


class CassetteFile(msgspec.Struct, frozen=True, kw_only=True):
    """All exchanges of one recording, in order."""

    holdfast_cassette: int = _FORMAT
    upstream: str
    exchanges: tuple[Exchange, ...] = ()


class Scrubber:
    """Removes secrets: given ones, those that requests carry, and what looks like a key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Know some secrets from the start."""
        self._secrets: set[str] = set()
        self.learn(secrets)

    def __repr__(self) -> str:
        """Show how many secrets are known, not which."""
        return f"Scrubber({len(self._secrets)} secrets)"

    def learn(self, values: Iterable[str]) -> None:
        """Remove these values from now on, with or without a scheme such as `Bearer`."""
        for value in values:
            for form in (value, value.partition(" ")[2]):
                if len(form) >= _SHORTEST_SECRET:
                    self._secrets.add(form)

    def learn_headers(self, headers: Mapping[str, str]) -> None:
        """Treat the value of every header that is not known to be harmless as a secret."""
        self.learn(value for name, value in headers.items() if name.lower() not in _PLAIN_REQUEST)

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets, in clear, escaped or encoded."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            for form in _list_forms(secret):
                data = data.replace(form, REMOVED.encode())
        return _KEY_SHAPES.sub(REMOVED.encode(), data)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: object) -> object:
        """Return a JSON value without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value

    def chunks(self, chunks: list[bytes]) -> list[bytes]:
        """Return an answer without secrets, in the same pieces unless one was cut in two."""
        whole = self.data(b"".join(chunks))
        pieces = [self.data(chunk) for chunk in chunks]
        return pieces if b"".join(pieces) == whole else [whole]


def _list_forms(secret: str) -> list[bytes]:
    raw = secret.encode("utf-8", "surrogatepass")
    escaped = msgspec.json.encode(secret)[1:-1] if secret.isprintable() else raw
    return [raw, escaped, quote(secret, safe="").encode(), base64.b64encode(raw)]


def record_request(
    method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, scrub: Scrubber
) -> RecordedRequest:
    """Return a request as the file keeps it; the secrets that it carries are learned first."""
    scrub.learn_headers(headers)
    pairs = parse_qsl(query, keep_blank_values=True)
    scrub.learn(value for name, value in pairs if name not in _KEPT_QUERY)
    shown = [(name, value if name in _KEPT_QUERY else REMOVED) for name, value in sorted(pairs)]
    return RecordedRequest(
        method=method,
        path=scrub.text(path) + ("?" + urlencode(shown, safe="<>") if shown else ""),
        headers=_keep(headers, _KEPT_REQUEST, scrub),
        body=_read_body(body, scrub),
    )


def record_response(
    status: int, headers: Mapping[str, str], chunks: list[bytes], is_broken: bool, scrub: Scrubber
) -> RecordedResponse:
    """Return an answer as the file keeps it."""
    return RecordedResponse(
        status=status,
        headers=_keep(headers, _KEPT_RESPONSE, scrub),
        chunks=tuple(_read_chunk(chunk) for chunk in scrub.chunks(chunks)),
        is_broken=is_broken,
    )


def read_chunk_bytes(chunk: str | RecordedBody) -> bytes:
    """Return a piece of an answer as it is sent."""
    return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk.base64)


def _keep(headers: Mapping[str, str], kept: frozenset[str], scrub: Scrubber) -> dict[str, str]:
    return {
        name.lower(): scrub.text(value)
        for name, value in sorted(headers.items())
        if name.lower() in kept
    }


def _read_chunk(data: bytes) -> str | RecordedBody:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return RecordedBody(base64=base64.b64encode(data).decode())


def _read_body(data: bytes, scrub: Scrubber) -> RecordedBody:
    try:
        return RecordedBody(json=scrub.value(msgspec.json.decode(data)))
    except msgspec.DecodeError:
        text = _read_chunk(scrub.data(data))
        return RecordedBody(text=text) if isinstance(text, str) else text


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they look."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _YAML_BREAKS.search(text):
        style = '"'  # YAML takes these for ends of lines unless they are escaped
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def save(path: Path, cassette: CassetteFile) -> None:
    """Write the file whole or not at all."""
    plain = msgspec.to_builtins(cassette)
    text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load(path: Path) -> CassetteFile:
    """Read a cassette.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    try:
        plain: JsonObject = yaml.safe_load(path.read_text(encoding="utf-8"))
        cassette = msgspec.convert(plain, CassetteFile)
    except FileNotFoundError:
        detail = f"There is no cassette {path}; record it with mode='record'."
        raise ConfigError(detail=detail) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(detail=f"The cassette {path} cannot be read: {error}") from error
    if cassette.holdfast_cassette != _FORMAT:
        raise ConfigError(detail=f"The cassette {path} has an unknown format.")
    return cassette
