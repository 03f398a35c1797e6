"""How one provider is reached, without any key."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Annotated, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from holdfast.errors import ConfigError
from holdfast.providers.address import is_loopback
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.model import ToolMode
from holdfast.providers.wire.endpoint import Timeouts

ProviderApi: TypeAlias = Literal[
    "auto", "chat", "responses", "anthropic", "gguf", "litellm", "offline"
]
"""How a provider is spoken to; `auto` finds out whether it has Responses or only chat."""

HTTP_APIS = frozenset({"auto", "chat", "responses", "anthropic"})

_SECRET_SHAPES = compile_on_use(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|github_pat|glpat|xox[abp])[-_][A-Za-z0-9_\-]{8,}"
    r"|\bAIza[\w-]{20,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{10,}\.|\b(?:bearer|basic)\s+\S{8,}",
    re.IGNORECASE,
)
_SECRET_NAMES = compile_on_use(
    r"auth|api[-_]?key|(?:^|[-_])key$|token|secret|passw|cookie|credential|signature", re.IGNORECASE
)
_HEADER_NAME = compile_on_use(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HIGH_ENTROPY = 3.6


def looks_like_secret(text: str) -> bool:
    """Say whether a text has the shape of a key: a known prefix, or long random letters."""
    if _SECRET_SHAPES.search(text):
        return True
    words = re.findall(r"[A-Za-z0-9+/=_-]{24,}", text)
    return any(_is_random(word) for word in words)


def _is_random(word: str) -> bool:
    has_both = bool(re.search(r"\d", word)) and bool(re.search(r"[A-Za-z]", word))
    parts = re.split(r"[-_/]", word)
    if not has_both or max(len(part) for part in parts) < 16:
        return False
    counts = Counter(word)
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
    return entropy >= _HIGH_ENTROPY


def _refuse_secret(value: str) -> str:
    if looks_like_secret(value):
        raise ValueError("looks like a key; put keys into the environment or the secrets file")
    return value


def _format_line(value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError("must be one line without control characters")
    return _refuse_secret(value.strip())


def _name_key_variable(value: str) -> str:
    if not value:
        return value
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{1,79}", value):
        raise ValueError("must be the name of a variable such as OPENAI_API_KEY, never the key")
    # A name of capitals alone could still be a key: names have underscores.
    if "_" not in value and len(value) >= 16:
        raise ValueError("looks like a key; give the name of the variable that holds it")
    return _refuse_secret(value)


Line = Annotated[str, AfterValidator(_format_line), Field(max_length=500)]
KeyVariable = Annotated[str, AfterValidator(_name_key_variable)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ProviderTimeouts(BaseModel):
    """How long each phase of a call may take, in seconds; see `wire.Timeouts`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_s: Seconds = 10.0
    first_token_s: Seconds = 120.0
    idle_s: Seconds = 60.0
    total_s: Seconds = 900.0

    def make_wire_timeouts(self) -> Timeouts:
        """Return the same limits for the wire."""
        return Timeouts(**self.model_dump())


class ProviderConfig(BaseModel):
    """One provider: where it is, what it speaks, and the name of the variable with its key.

    Frozen. Anything that has the shape of a key is refused in every field, so that a
    configuration can be stored, shown and logged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$"), AfterValidator(_refuse_secret)]
    api: ProviderApi = "auto"
    base_url: Line = ""
    key_env: KeyVariable = ""
    is_key_required: bool = False
    default_model: Line = ""
    headers: dict[str, str] = Field(default_factory=dict)
    timeouts: ProviderTimeouts = Field(default_factory=ProviderTimeouts)
    tool_modes: dict[Line, ToolMode] = Field(default_factory=dict)
    """How each model calls tools; `*` stands for all others."""
    is_local: bool = False
    """Runs on this machine or in this house: costs nothing per token."""
    context_window: Annotated[int, Field(ge=256, le=100_000_000)] | None = None
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    prompt_cache: Literal["auto", "on", "off"] = "auto"
    """Whether requests say what of them can be cached; `auto` where the vendor itself is asked."""
    reasoning_back: bool = False

    @model_validator(mode="after")
    def _check(self) -> ProviderConfig:
        if self.api in HTTP_APIS:
            _check_url(self.base_url)
        elif self.base_url:
            raise ValueError(f"base_url: a provider of the kind {self.api} has no address")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or re.search(r"[\r\n\x00]", value):
                raise ValueError("headers: a name or value is not valid")
            if _SECRET_NAMES.search(name) or looks_like_secret(value):
                raise ValueError(
                    f"headers.{name}: keys do not belong into headers; name their variable in "
                    "key_env"
                )
        return self

    @property
    def is_http(self) -> bool:
        """Whether the provider is reached over HTTP."""
        return self.api in HTTP_APIS

    def choose_tool_mode(self, model: str) -> ToolMode | None:
        """Return the tool mode that was set by hand, if any."""
        return self.tool_modes.get(model) or self.tool_modes.get("*")

    def cautions(self, *, has_key: bool) -> list[str]:
        """Return what a person should know before using this provider."""
        parts = urlsplit(self.base_url)
        if self.is_http and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            sent = "the key and everything else" if has_key else "everything"
            return [
                f"{self.name}: {parts.hostname} is reached without encryption (http); {sent} that "
                "is sent can be read on the way. Use https, or a tunnel to 127.0.0.1."
            ]
        return []


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as it is shown: where it is and what it speaks; never a key."""

    name: str
    api: ProviderApi
    base_url: str = ""
    key_env: str = ""
    is_key_required: bool = False
    default_model: str = ""
    is_local: bool = False
    context_window: int | None = None
    tool_modes: dict[str, ToolMode] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, config: ProviderConfig) -> ProviderInfo:
        """Show a configuration; headers and timeouts stay where they are configured."""
        return cls(**{name: getattr(config, name) for name in cls.__struct_fields__})


def make_config(**fields: object) -> ProviderConfig:
    """Return a configuration, or say in our own words what is wrong with it.

    Raises:
        ConfigError: a field is wrong; no value is shown, as it may be a key.
    """
    try:
        return ProviderConfig.model_validate(fields)
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False, include_input=False, include_context=False):
            place = ".".join(
                str(step) for step in problem["loc"] if not looks_like_secret(str(step))
            )
            text = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{place}: {text}" if place else text)
        detail = "\n".join(f"  - {line}" for line in lines)
        raise ConfigError(detail=detail, mistakes=lines) from None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname)
        is_sound = is_sound and (parts.port is None or parts.port > 0)
    except ValueError:
        is_sound = False
    if not is_sound or re.search(r"\s", url) or parts.fragment:
        raise ValueError("base_url: must be an address such as https://api.example.com/v1")
    if "@" in parts.netloc:
        raise ValueError("base_url: must not hold a user or password; use key_env")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET_NAMES.search(name) or looks_like_secret(value):
            raise ValueError("base_url: must not hold a key; use key_env")
