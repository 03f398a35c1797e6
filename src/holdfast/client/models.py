"""Models: which one answers, made resilient, and what its answers cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.client.base import ClientBase
from holdfast.messages import Message
from holdfast.providers.accounting import Accountant
from holdfast.providers.breaker import BreakerModel, CircuitBreakers
from holdfast.providers.fallback import FallbackModel
from holdfast.providers.model import Model, note_event
from holdfast.providers.registry import ProviderRegistry
from holdfast.providers.resolve import Resolution, registry_from, resolve_model
from holdfast.providers.retry import RetryingModel
from holdfast.settings import load_settings

if TYPE_CHECKING:
    from holdfast.providers.rate_limits import RateLimiter

Charge: TypeAlias = Callable[[Message], Message]
"""Writes what an answer cost into it."""


@dataclass(frozen=True, kw_only=True)
class ReadyModel:
    """A model that can be asked, and the sentence that says why it is this one."""

    model: Model
    charge: Charge
    notice: str = ""


class ModelMethods(ClientBase):
    """How the client comes to its models."""

    _providers: ProviderRegistry | None = None
    _ready_models: dict[str, ReadyModel] | None = None
    _model_once: asyncio.Lock | None = None
    _accountant: Accountant | None = None
    _breakers: CircuitBreakers | None = None
    rate_limiter: RateLimiter | None = None
    """Rules that every model opened from now on keeps to, such as calls per minute."""
    fallback_models: tuple[str, ...] = ()
    """Models to ask in this order when the wanted one fails; each step is journalled."""

    async def ready_model(self, wanted: str | Model = "") -> ReadyModel:
        """Return the model of that name, or the one that the settings and this machine give.

        A model is opened once per client, retried when it fails in passing, and left alone
        for a while when its endpoint fails too often. A model object is used as it is.

        Raises:
            NotFound, LLMAuthError, MissingExtra, UsageError: see `providers.create_model`.
        """
        if not isinstance(wanted, str):
            return ReadyModel(model=wanted, charge=_unknown if wanted.info.is_llm else _free)
        name = wanted or self.settings.model.name or ""
        if self._ready_models is None:
            self._ready_models = {}
        known = self._ready_models
        if name not in known:
            if self._model_once is None:
                self._model_once = asyncio.Lock()
            # Runs that begin together would each look for a server, and each ask its model
            # how it calls tools.
            async with self._model_once:
                if name not in known:
                    known[name] = await self._opened(name)
        return known[name]

    async def _opened(self, name: str) -> ReadyModel:
        first = await resolve_model(self._provider_registry(), name)
        chain = [first]
        if first.model.info.is_llm:
            chain += [
                await resolve_model(self._provider_registry(), other)
                for other in self.fallback_models
            ]
        models = [self._resilient(resolution) for resolution in chain]
        return ReadyModel(
            model=FallbackModel(models, on_event=note_event) if chain[1:] else models[0],
            charge=self._charge_by_provider(chain) if chain[1:] else self._charge_for(first),
            notice=first.notice,
        )

    async def close(self) -> None:
        """Give back connections to models, then close the rest."""
        for ready in (self._ready_models or {}).values():
            await ready.model.close()
        self._ready_models = None
        if self._providers is not None:
            await self._providers.close()
            self._providers = None
        await super().close()

    def _provider_registry(self) -> ProviderRegistry:
        if self._providers is None:
            # Keys come from the environment and the secrets files, all else from our settings.
            loaded = replace(load_settings(), settings=self.settings)
            self._providers = registry_from(loaded, state_dir=self.base_dir)
        return self._providers

    def _resilient(self, resolution: Resolution) -> Model:
        if not resolution.model.info.is_llm:
            return resolution.model
        if self._breakers is None:
            self._breakers = CircuitBreakers()
        place = str(resolution.provider.base_url or resolution.provider.name)
        guarded: Model = BreakerModel(resolution.model, self._breakers.of(place))
        if self.rate_limiter is not None:
            from holdfast.providers.rate_limits import RateLimitedModel  # noqa: PLC0415 - 0.1 s

            guarded = RateLimitedModel(
                guarded, self.rate_limiter, tenant=self.settings.tenant, on_event=note_event
            )
        return RetryingModel(guarded, on_event=note_event)

    def _charge_by_provider(self, chain: Sequence[Resolution]) -> Charge:
        """Charge each answer as the provider that gave it does, whichever that was."""
        charges = {found.model.info.provider: self._charge_for(found) for found in chain}
        return lambda message: charges.get(message.provider, _unknown)(message)

    def _charge_for(self, resolution: Resolution) -> Charge:
        if resolution.provider.is_local or not resolution.model.info.is_llm:
            return _free
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


def _unknown(message: Message) -> Message:
    """Say that nobody knows what a model object's answer cost, so that budgets can refuse."""
    return msgspec.structs.replace(message, metadata={**message.metadata, "cost": "unknown"})


def _free(message: Message) -> Message:
    return message
