"""Providers and models: which there are, and which one answers."""

from __future__ import annotations

from holdfast.operations.caller import Caller
from holdfast.operations.operation import local, operation
from holdfast.providers import Model, ProviderInfo, ProviderRegistry
from holdfast.runtime import ReadyModel, Runtime


@operation("providers:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[ProviderInfo]:
    """Return the providers that are configured; keys are not among it."""
    found = await runtime.models.registry.list_providers()
    return [ProviderInfo.of(one) for one in found]


@local("name the model in the request of a run")
async def model(runtime: Runtime, /, wanted: str | Model = "") -> ReadyModel:
    """Return the model of that name, or the one that the settings and this machine give.

    A model is opened once per client, retried when it fails in passing, and left alone
    for a while when its endpoint fails too often. A model object is used as it is.

    Raises:
        NotFound, LLMAuthError, MissingExtra, UsageError: see `providers.create_model`.
    """
    ready = await runtime.models.ready(wanted)
    runtime.models.announce(ready, is_told=True)
    return ready


@local("configure providers in the settings there")
async def registry(runtime: Runtime, /) -> ProviderRegistry:
    """Return the registry of providers, to add or remove some while this runs."""
    return runtime.models.registry
