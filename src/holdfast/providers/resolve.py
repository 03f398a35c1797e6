"""Which model answers when no caller said so: a fixed order, told in one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMError, NotFound, UsageError
from holdfast.providers.config import ProviderConfig
from holdfast.providers.model import Model
from holdfast.providers.presets import OFFLINE
from holdfast.providers.probe import Candidate, LocalServer, chat_models, find_local_servers
from holdfast.providers.registry import ProviderRegistry
from holdfast.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.settings import LoadedSettings

_PROVIDER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
Source: TypeAlias = Literal["config", "openai", "anthropic", "local", "offline"]
"""Which step of the order decided."""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The model that will answer, and why it is this one."""

    model: Model
    provider: ProviderConfig
    name: str
    """The model's full name, `provider:model`."""
    source: Source
    notice: str
    """What was chosen, why, and how to change it; for the terminal, once per run."""


def make_registry(
    loaded: LoadedSettings, *, state_dir: Path | None = None, clock: Clock = SYSTEM
) -> ProviderRegistry:
    """Return the registry that the settings describe; keys are looked up when needed.

    `state_dir` says where it is kept, if not where the settings say.
    """
    given = loaded.settings.model
    overrides: dict[str, str] = {}
    if given.openai_base_url:
        overrides["openai"] = str(given.openai_base_url)
    if given.anthropic_base_url:
        overrides["anthropic"] = str(given.anthropic_base_url)

    def look_up(variable: str) -> str:
        secret = loaded.secret(variable)
        return secret.get_secret_value() if secret is not None else ""

    return ProviderRegistry(
        state_dir or loaded.settings.storage.state_dir,
        look_up,
        overrides=overrides,
        default=given.provider or "",
        force_chat=given.force_chat_completions,
        clock=clock,
    )


async def create_model(reference: str, *, registry: ProviderRegistry | None = None) -> Model:
    """Return the model that `provider:model` names; a bare name means the default provider.

    Nothing is sent to the provider, except that a server without a default model is asked
    which models it has.

    Raises:
        NotFound: there is no such provider; the hint names the nearest.
        LLMAuthError: the provider's key is not set; the hint names its variable.
        MissingExtra: the provider needs a package that is not installed.
        UsageError: no model is named, and none can be chosen.
    """
    if registry is None:
        registry = make_registry(load_settings())
    return (await resolve_model(registry, reference)).model


async def resolve_model(
    registry: ProviderRegistry,
    reference: str = "",
    *,
    candidates: tuple[Candidate, ...] | None = None,
) -> Resolution:
    """Choose the model: what was asked for, else what is there.

    The order: `reference` or a chosen default provider; OpenAI (or `OPENAI_BASE_URL`);
    Anthropic; a server on this machine; the offline model. A model that was asked for by
    name is never replaced by the offline model.

    Raises:
        NotFound, LLMAuthError, MissingExtra, UsageError: see `create_model`.
        LLMError: the chosen server had to be asked for its models and cannot be reached.
    """
    provider, name = await _find_named(registry, reference.strip())
    if provider is not None:
        if name == reference.strip():
            await _check_listed(registry, provider, name)
        return await _resolve_chosen(registry, provider, name, "config", "")
    found = await registry.get_default_provider()
    if found.name in ("openai", "anthropic"):
        await _check_listed(registry, found, name)
    if found.name == "openai":
        why = "OPENAI_BASE_URL is set" if not found.is_key_required else "OPENAI_API_KEY is set"
        return await _resolve_chosen(registry, found, name, "openai", why)
    if found.name == "anthropic":
        return await _resolve_chosen(registry, found, name, "anthropic", "ANTHROPIC_API_KEY is set")
    servers = await find_local_servers(candidates)
    if servers:
        return await _make_local(registry, servers, name)
    if name:
        await _refuse_misspelt(registry, name)
        raise UsageError(detail=_explain_unserved(name))
    return _resolve_offline(registry, found)


async def _find_named(
    registry: ProviderRegistry, reference: str
) -> tuple[ProviderConfig | None, str]:
    """Split a reference; no provider means that the order decides."""
    prefix, colon, rest = reference.partition(":")
    if reference == OFFLINE:
        return await registry.get_provider(OFFLINE), ""
    if colon:
        known = await registry.find_provider(prefix)
        if known is not None:
            return known, rest
    chosen = registry.chosen_default
    if chosen:
        return await registry.get_provider(chosen), reference
    if colon:
        # Model names may hold a colon themselves (`qwen3:8b`), but only local ones do.
        default = await registry.get_default_provider()
        if not default.is_local and default.is_key_required:
            await registry.get_provider(prefix)
    return None, reference


async def _check_listed(registry: ProviderRegistry, provider: ProviderConfig, name: str) -> None:
    """Refuse `nosuch:model`, rather than send it to the provider that would serve a bare name.

    Names of models may hold a colon themselves (`qwen3:8b`): a server that lists it has it.

    Raises:
        NotFound: what stands before the colon is no provider.
    """
    prefix, colon, _ = name.partition(":")
    if not colon or not _PROVIDER.fullmatch(prefix):
        return
    listed: Collection[str] = ()
    with contextlib.suppress(LLMError, UsageError):
        listed = await registry.list_models(provider)
    # A server of this machine that does not answer cannot be asked; its own error says more.
    if name not in listed and not (provider.is_local and not listed):
        await registry.get_provider(prefix)


async def _refuse_misspelt(registry: ProviderRegistry, name: str) -> None:
    """Raise NotFound if what stands before the colon is nearly the name of a provider."""
    prefix, colon, _ = name.partition(":")
    if not colon:
        return
    try:
        await registry.get_provider(prefix)
    except NotFound as error:
        if error.context["nearest"]:
            raise


async def _resolve_chosen(
    registry: ProviderRegistry, provider: ProviderConfig, name: str, source: Source, why: str
) -> Resolution:
    if provider.api == OFFLINE:
        return _resolve_asked_offline(registry, provider)
    model = name or provider.default_model
    note = ""
    if not model and provider.is_http:
        listed = chat_models(list(await registry.list_models(provider)))
        if not listed:
            raise UsageError(
                detail=_explain_no_list(provider.name, registry.endpoint(provider).shown_url)
            )
        model, note = listed[0], f" It is the first of {len(listed)} that the server lists."
    opened = registry.open_model(provider, model)
    full = f"{provider.name}:{model}"
    cautions = provider.cautions(has_key=registry.has_key(provider))
    reason = f"because {why}" if why else "as asked for"
    change = (_CHANGE,) if why or note else ()
    notice = " ".join([f"Using {full}, {reason}.{note}", *cautions, *change])
    return Resolution(model=opened, provider=provider, name=full, source=source, notice=notice)


_CHANGE = "Choose another with --model or AGENT_MODEL."


async def _make_local(
    registry: ProviderRegistry, servers: list[LocalServer], name: str
) -> Resolution:
    having = [server for server in servers if name in server.models]
    if ":" in name and not having and _PROVIDER.fullmatch(name.partition(":")[0]):
        await registry.get_provider(name.partition(":")[0])
    server = having[0] if having else servers[0]
    preset = await registry.get_provider(server.provider)
    provider = preset.model_copy(update={"base_url": server.base_url})
    model = name or server.models[0]
    opened = registry.open_model(provider, model)
    full = f"{server.provider}:{model}"
    missing = f" The server does not list {name!r}." if name and not having else ""
    return Resolution(
        model=opened,
        provider=provider,
        name=full,
        source="local",
        notice=f"Using {full}, because no key is set and {server.provider} answers on "
        f"{server.base_url}.{missing} {_CHANGE}",
    )


def _resolve_offline(registry: ProviderRegistry, provider: ProviderConfig) -> Resolution:
    from holdfast.providers.offline import HOW_TO_CONFIGURE  # noqa: PLC0415 - loads that model

    return Resolution(
        model=registry.open_model(provider, OFFLINE),
        provider=provider,
        name=OFFLINE,
        source="offline",
        notice="Using the built-in offline model, which follows fixed rules and is NOT a language "
        f"model: no key is set and no model server answers on this machine.\n{HOW_TO_CONFIGURE}",
    )


def _explain_unserved(name: str) -> str:
    prefix, colon, _ = name.partition(":")
    if colon and _PROVIDER.fullmatch(prefix):
        said = f"There is no provider {prefix!r} (`holdfast providers list` shows all), and none "
        said += f"is configured that could serve a model of the name {name!r}: set "
    else:
        said = f"No provider is configured that could serve {name!r}. Name one, as in "
        said += f"openai:{name}, or set "
    keys = "OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENAI_BASE_URL"
    return f"{said}{keys}, or start LM Studio, Ollama or llama.cpp."


def _explain_no_list(name: str, address: str) -> str:
    said = f"{name} lists no model at {address}; name one, as in {name}:<model>"
    if urlsplit(address).path.strip("/"):
        return f"{said}."
    return f"{said}, or correct the address: most servers want /v1 at its end."


def _resolve_asked_offline(registry: ProviderRegistry, provider: ProviderConfig) -> Resolution:
    return Resolution(
        model=registry.open_model(provider, OFFLINE),
        provider=provider,
        name=OFFLINE,
        source="config",
        notice="Using the built-in offline model, as asked for. It follows fixed rules and is NOT "
        f"a language model. {_CHANGE}",
    )
