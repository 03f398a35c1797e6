"""`client.providers`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, providers


class ProviderNamespace(Surface[Mode]):
    """Providers and models."""

    list = providers.list_
    model = providers.model
    registry = providers.registry
