"""Models: which one answers, made resilient, and what its answers cost."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError, UsageError
from holdfast.messages import Message
from holdfast.providers import (
    Accountant,
    BreakerModel,
    CircuitBreakers,
    FallbackModel,
    Model,
    ModelInfo,
    ProviderRegistry,
    Resolution,
    RetryingModel,
    make_registry,
    note_event,
    resolve_model,
)
from holdfast.settings import load_settings

if TYPE_CHECKING:
    from holdfast.providers import RateLimiter
    from holdfast.runtime.plugin_service import PluginService
    from holdfast.settings import Settings

_log = logging.getLogger("holdfast.models")
_announced: set[str] = set()
Charge: TypeAlias = Callable[[Message], Message]
"""Writes what an answer cost into it."""


class ReadyModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked, and the sentence that says why it is this one."""

    model: Model
    charge: Charge
    notice: str = ""
    was_asked_for: bool = False
    """Whether it was named, rather than found."""


class ModelService:
    """Opens models, each once."""

    def __init__(self, settings: Settings, base_dir: Path, plugins: PluginService) -> None:
        """Find models as the settings and plugins say; nothing is opened yet."""
        self._settings = settings
        self._plugins = plugins
        self._base_dir = base_dir
        self._registry: ProviderRegistry | None = None
        self._ready: dict[str, ReadyModel] = {}
        self._once = asyncio.Lock()
        self._accountant: Accountant | None = None
        self._breakers: CircuitBreakers | None = None
        self.rate_limiter: RateLimiter | None = None
        """Rules that every model opened from now on keeps to, such as calls per minute."""
        self.fallback_models: tuple[str, ...] = ()
        """Models to ask in this order when the wanted one fails; each step is journalled."""

    async def ready(self, wanted: str | Model = "") -> ReadyModel:
        """Return the model of that name, or the one that the settings and this machine give.

        A model is opened once per client, retried when it fails in passing, and left alone
        for a while when its endpoint fails too often. A model object is used as it is.

        Raises:
            NotFound, LLMAuthError, MissingExtra, UsageError: see `providers.create_model`.
        """
        if not isinstance(wanted, str):
            return ReadyModel(
                model=wanted, charge=_report_unknown if wanted.info.is_llm else _drop_price
            )
        name, known = wanted or self._settings.model.name or "", self._ready
        if name not in known:
            # Runs that begin together would each look for a server, and each ask its model
            # how it calls tools.
            async with self._once:
                if name not in known:
                    known[name] = await self._open(name)
        return known[name]

    async def _open(self, name: str) -> ReadyModel:
        provider, colon, rest = name.partition(":")
        if colon and provider in self._plugins.models:
            made = self._plugins.models[provider](rest)
            if not hasattr(made, "stream") or not hasattr(made, "info"):
                raise UsageError(detail=f"The plugin of the provider {provider!r} made no model.")
            return ReadyModel(
                model=made,
                charge=_report_unknown if made.info.is_llm else _drop_price,
                notice=f"{name} answers, by a plugin.",
                was_asked_for=True,
            )
        first = await resolve_model(self.registry, name)
        chain = [first]
        if first.model.info.is_llm:
            chain += [await resolve_model(self.registry, other) for other in self.fallback_models]
        models = [self._make_resilient(resolution) for resolution in chain]
        return ReadyModel(
            model=FallbackModel(models, on_event=note_event) if chain[1:] else models[0],
            charge=self._charge_by_provider(chain) if chain[1:] else self._charge_for(first),
            notice=first.notice,
            was_asked_for=first.source == "config",
        )

    def announce(self, ready: ReadyModel, *, is_told: bool = False) -> None:
        """Say which model answers, and why: once per process, by the logger `holdfast.models`.

        One that nobody asked for is a warning, which Python shows unless told otherwise. With
        `is_told` whoever asked has the sentence, and says it.
        """
        if ready.notice in _announced:
            return
        _announced.add(ready.notice)
        if not is_told:
            _log.log(logging.INFO if ready.was_asked_for else logging.WARNING, ready.notice)

    async def open(self, wanted: str | Model) -> tuple[Model, Charge]:
        """Return a model, and what writes the cost of its answers."""
        ready = await self.ready(wanted)
        return ready.model, ready.charge

    async def open_sibling(self, info: ModelInfo, wanted: str) -> tuple[Model, Charge] | None:
        """Return another model of the provider that answers, `None` if it lists no such one.

        A short name, such as `opus`, is the first listed model that has it as a part.
        """
        prefix, colon, name = wanted.partition(":")
        if not colon or prefix != info.provider:
            name = wanted
        provider = await self.registry.find_provider(info.provider)
        if provider is None or not provider.is_http or not info.is_llm:
            return None
        try:
            listed = await self.registry.list_models(provider)
            found = [one for one in listed if one == name or name in re.split(r"[-_.:/]", one)]
            found.sort(key=lambda one: one != name)
            return await self.open(f"{provider.name}:{found[0]}") if found else None
        except HoldfastError as error:
            _log.warning("The model %r cannot be used: %s", wanted, error)
            return None

    @property
    def registry(self) -> ProviderRegistry:
        """The providers that are configured; made when first asked for."""
        if self._registry is None:
            # Keys come from the environment and the secrets files, all else from our settings.
            loaded = replace(load_settings(), settings=self._settings)
            self._registry = make_registry(loaded, state_dir=self._base_dir)
            self._registry.offered = tuple(self._plugins.providers.values())
        return self._registry

    async def close(self) -> None:
        """Give back connections to models."""
        ready, self._ready = self._ready, {}
        for one in ready.values():
            await one.model.close()
        registry, self._registry = self._registry, None
        if registry is not None:
            await registry.close()

    def _make_resilient(self, resolution: Resolution) -> Model:
        guarded: Model = resolution.model
        if resolution.model.info.is_llm:
            if self._breakers is None:
                self._breakers = CircuitBreakers()
            place = str(resolution.provider.base_url or resolution.provider.name)
            guarded = BreakerModel(resolution.model, self._breakers.of(place))
        if self.rate_limiter is not None:
            from holdfast.providers import RateLimitedModel  # noqa: PLC0415 - 0.1 s

            guarded = RateLimitedModel(
                guarded, self.rate_limiter, tenant=self._settings.tenant, on_event=note_event
            )
        if not resolution.model.info.is_llm:
            # It cannot fail by itself, so there is nothing to try again.
            return guarded
        return RetryingModel(guarded, on_event=note_event)

    def _charge_by_provider(self, chain: Sequence[Resolution]) -> Charge:
        """Charge each answer as the provider that gave it does, whichever that was."""
        charges = {found.model.info.provider: self._charge_for(found) for found in chain}
        return lambda message: charges.get(message.provider, _report_unknown)(message)

    def _charge_for(self, resolution: Resolution) -> Charge:
        if resolution.provider.is_local or not resolution.model.info.is_llm:
            return _drop_price
        if self._accountant is None:
            self._accountant = Accountant()
        accountant, api_url = self._accountant, str(resolution.provider.base_url or "")

        def charge(message: Message) -> Message:
            found = accountant.charge(message, api_url=api_url)
            cost = found.cost_usd
            if cost is None:
                metadata = {**message.metadata, "cost": "unknown"}
                return msgspec.structs.replace(message, metadata=metadata)
            return msgspec.structs.replace(message, cost_usd=float(cost))

        return charge


def _report_unknown(message: Message) -> Message:
    """Say that it is not known what a model object's answer cost, so that budgets can refuse."""
    return msgspec.structs.replace(message, metadata={**message.metadata, "cost": "unknown"})


def _drop_price(message: Message) -> Message:
    return message
