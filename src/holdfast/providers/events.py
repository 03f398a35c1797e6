"""What the room reports about model calls: payloads for whoever observes or journals them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TypeAlias

import msgspec

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
PROVIDER_EVENTS: tuple[type[Payload], ...] = (
    ModelRetried,
    ModelFellBack,
    ProviderRateLimited,
)

EventObserver: TypeAlias = Callable[[ProviderEvent], None]
"""Called at once and in order; it must return quickly and must not raise."""


def ignore_event(event: ProviderEvent) -> None:
    """The observer of nobody."""


def note_event(event: ProviderEvent) -> None:
    """The observer of shared models: hands an event to whoever made the call."""
    caller = _caller.get()
    if caller is not None:
        caller.heard.append(event)


def calling_agent() -> str:
    """Return the agent that makes the call, for models that several agents share."""
    caller = _caller.get()
    return caller.agent if caller is not None else ""


class CallEvents(msgspec.Struct, eq=False):
    """Collect what happens around the model calls that an agent makes in this block."""

    agent: str = ""
    """Who makes the calls."""
    heard: list[ProviderEvent] = []
    _token: Token[CallEvents | None] | None = None

    def __enter__(self) -> list[ProviderEvent]:
        """Listen, and give what is heard while it comes."""
        self._token = _caller.set(self)
        return self.heard

    def __exit__(self, *error: object) -> None:
        """Listen no longer."""
        assert self._token is not None
        _caller.reset(self._token)


_caller: ContextVar[CallEvents | None] = ContextVar("caller_of_models", default=None)
