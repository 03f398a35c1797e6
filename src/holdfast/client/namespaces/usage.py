"""`client.usage`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, usage


class UsageNamespace(Surface[Mode]):
    """Tokens and dollars; metrics of the work."""

    get = usage.get
    metrics = usage.metrics
