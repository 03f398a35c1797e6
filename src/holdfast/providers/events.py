"""What the room reports about model calls: payloads for observers and journals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.journal import Payload, payload


@payload("model.retried")
class ModelRetried(Payload, frozen=True, kw_only=True):
    """A model call failed and is tried again after `wait_s`; `attempt` is the coming one."""

    provider: str
    model: str
    attempt: int
    wait_s: float
    error_code: str
    reason: str


@payload("model.fallback")
class ModelFellBack(Payload, frozen=True, kw_only=True):
    """A model was given up for this call; the next one of the list is asked instead."""

    from_provider: str
    from_model: str
    to_provider: str
    to_model: str
    error_code: str
    reason: str


@payload("provider.rate_limited")
class ProviderRateLimited(Payload, frozen=True, kw_only=True):
    """A call was slowed down or refused.

    `rule` names our own rule; it is empty when the provider itself said so.
    """

    provider: str
    model: str
    rule: str = ""
    wait_s: float = 0.0
    is_refused: bool = False


ProviderEvent: TypeAlias = ModelRetried | ModelFellBack | ProviderRateLimited

EventObserver: TypeAlias = Callable[[ProviderEvent], None]
"""Called at once and in order; it must return quickly and must not raise."""


def ignore_event(event: ProviderEvent) -> None:
    """An observer of nothing."""
