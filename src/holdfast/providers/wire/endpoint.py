"""Where a model is reached: address, API, key, time limits."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Literal, NoReturn, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.providers.lazy_patterns import compile_on_use

Api: TypeAlias = Literal["chat", "responses", "anthropic"]
"""Which of the three wire APIs an endpoint speaks."""

OpenAIApi: TypeAlias = Literal["chat", "responses"]
"""The two of them that OpenAI has."""

QuietMode: TypeAlias = Literal["body", "stream"]

_HIDDEN = "***"
_KEY_SHAPES = compile_on_use(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][A-Za-z0-9_*.\-]{6,}|\bAIza[\w\-*]{10,}"
)
_SHORTEST_SECRET = 4
_HEADER_NAME = compile_on_use(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CACHING_HOSTS = ("api.openai.com", "api.anthropic.com", ".openai.azure.com")
_FRAMING = ("content-length", "expect", "transfer-encoding", "upgrade")
"""Headers that say where a request ends, or ask for another one; they are not for users."""


class KeySource(Protocol):
    """Something that can give a key; asked once per request, so that keys may rotate."""

    def reveal(self) -> str:
        """Return the key in clear; empty when there is none."""
        ...


class Secret:
    """A text that is never shown by accident.

    `repr`, `str`, `format`, pickling and msgspec never give it away; `reveal` does.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        """Keep the value."""
        self._value = value

    def reveal(self) -> str:
        """Return the value in clear."""
        return self._value

    def __bool__(self) -> bool:
        """Say whether there is a value at all."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Show that there is a secret, not which."""
        return f"Secret({_HIDDEN if self._value else ''})"

    def __eq__(self, other: object) -> bool:
        """Compare without telling by the time it takes."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        """Hash like the value."""
        return hash(self._value)

    def __copy__(self) -> Secret:
        """Return itself: it never changes."""
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        """Return itself: it never changes."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError("a Secret cannot be pickled")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each phase of a call may take, in seconds.

    `first_token_s` runs from the sent request to the first piece of the answer,
    `idle_s` between two arrivals after that, `total_s` over everything. Of an answer that
    comes as one body the head must come within `first_token_s`, the rest within `total_s`;
    when the head does not, the next attempt asks for a stream, which shows whether the
    model is slow or dead.
    """

    connect_s: float = 10.0
    first_token_s: float = 120.0
    idle_s: float = 60.0
    total_s: float = 900.0

    def __post_init__(self) -> None:
        """Refuse limits that would never let an answer through."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (0 < value < float("inf")):
                raise ConfigError(detail=f"timeouts.{name} must be a positive number of seconds.")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's address and how to speak to it; its `repr` shows no secret."""

    provider: str
    base_url: str
    """Without the last step: `https://api.openai.com/v1`, `https://api.anthropic.com/v1`."""
    api: Api = "chat"
    key: KeySource = msgspec.field(default_factory=Secret)
    key_env: str = ""
    """Name of the variable that holds the key, for the hint of an error."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Sent with every request, over our own ones; the values count as secret."""
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    verify_tls: bool = True
    ca_file: str = ""
    """Certificates to trust instead of the system's."""
    max_response_bytes: int = 64 * 1024 * 1024
    max_event_bytes: int = 16 * 1024 * 1024
    quiet: QuietMode = "body"
    """How to ask when no subscriber listens: one body (cheaper), or a stream all the same."""
    reasoning_back: bool = False
    """Chat API: send `reasoning_content` of earlier turns back (DeepSeek, gpt-oss servers)."""
    prompt_cache: Literal["auto", "on", "off"] = "auto"
    """Whether requests say what of them can be cached; `auto` where the vendor itself is asked,
    since servers that only speak its API may refuse fields that they do not know."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """Chat API: older compatible servers only know `max_tokens`."""

    @property
    def marks_cache(self) -> bool:
        """Whether requests say what of them can be cached."""
        if self.prompt_cache != "auto":
            return self.prompt_cache == "on"
        return (urlsplit(self.base_url).hostname or "").endswith(_CACHING_HOSTS)

    def __post_init__(self) -> None:
        """Refuse an address or header that cannot be meant.

        Raises:
            ConfigError: not http(s), no host, a broken header, or two credentials.
        """
        try:
            parts = urlsplit(self.base_url)
            has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            has_host = False
        if not has_host or parts.scheme not in ("http", "https") or parts.fragment:
            raise ConfigError(detail=f"The base URL of {self.provider!r} is no http(s) address.")
        if re.search(r"[\s\x00-\x1f\x7f]", self.base_url):
            raise ConfigError(detail=f"The base URL of {self.provider!r} holds a blank.")
        for name, value in self.headers.items():
            is_header = _HEADER_NAME.fullmatch(name) and name.lower() not in _FRAMING
            if not is_header or re.search(r"[\r\n\x00]", value):
                raise ConfigError(detail=f"The header {name!r} of {self.provider!r} is not valid.")

    def url(self, path: str) -> str:
        """Return the address of one API method, without user and password."""
        parts = urlsplit(self.base_url)
        netloc = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/") + path, parts.query, ""))

    @property
    def shown_url(self) -> str:
        """The address as it may be shown: no user, no password, no query value."""
        parts = urlsplit(self.base_url)
        query = "&".join(f"{name}={_HIDDEN}" for name, _ in parse_qsl(parts.query, True))
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))

    def make_auth_headers(self) -> dict[str, str]:
        """Return the headers that prove who we are; the only place where the key is in clear."""
        key = self.key.reveal()
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(detail=f"The key of {self.provider!r} cannot go into a header.")
        if key and self.api == "anthropic":
            return {"x-api-key": key, **self._make_url_auth()}
        if key:
            return {"Authorization": f"Bearer {key}"}
        return self._make_url_auth()

    def scrub(self, text: str) -> str:
        """Return `text` without this endpoint's secrets and without anything shaped like a key."""
        for secret in self._list_secrets():
            text = text.replace(secret, _HIDDEN)
        return _KEY_SHAPES.sub(_HIDDEN, text)

    def _make_url_auth(self) -> dict[str, str]:
        parts = urlsplit(self.base_url)
        if "@" not in parts.netloc or parts.username is None:
            return {}
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": "Basic " + b64encode(login.encode()).decode()}

    def _list_secrets(self) -> list[str]:
        parts = urlsplit(self.base_url)
        found = {self.key.reveal(), *self.headers.values()}
        found.update(value.partition(" ")[2] for value in self._make_url_auth().values())
        found.update((parts.password or "", unquote(parts.password or "")))
        found.update(value for _, value in parse_qsl(parts.query))
        # Longest first, so that no secret is left over as the rest of another one.
        return sorted((s for s in found if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)

    def __repr__(self) -> str:
        """Show the place, not the secrets."""
        return (
            f"Endpoint(provider={self.provider!r}, base_url={self.shown_url!r}, api={self.api!r}, "
            f"headers={sorted(self.headers)!r}, timeouts={self.timeouts!r})"
        )
