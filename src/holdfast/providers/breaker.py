"""Leave an endpoint alone for a while after it failed too often."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMCircuitOpen, LLMError, LLMRateLimited, UsageError
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
)

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
Outcome: TypeAlias = Literal["success", "failure", "unknown"]


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop asking, and for how long.

    The circuit opens after `failures_in_row`, or when at least `failure_rate` of the
    last `rate_calls` calls failed. It stays open for `open_s`; then one call may try.
    """

    failures_in_row: int = 5
    failure_rate: float = 0.6
    rate_calls: int = 20
    open_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.failures_in_row < 1 or self.rate_calls < 1:
            raise UsageError(detail="A breaker counts at least one call.")
        if not 0 < self.failure_rate <= 1 or not 0 < self.open_s < float("inf"):
            raise UsageError(detail="A breaker needs 0 < failure_rate <= 1 and open_s > 0.")


_POLICY = BreakerPolicy()


class CircuitBreaker:
    """The health of one endpoint, shared by all models behind it.

    Closed: calls pass. Open: calls are refused at once. Half open: one call passes as
    a probe, the others are refused until it has ended; success closes the circuit,
    failure opens it again. Calls that began before the circuit last changed do not
    count any more.
    """

    def __init__(
        self, endpoint: str, *, policy: BreakerPolicy = _POLICY, clock: Clock = SYSTEM
    ) -> None:
        """Start closed."""
        self.endpoint = endpoint
        self.policy = policy
        self._clock = clock
        self._recent: deque[bool] = deque(maxlen=policy.rate_calls)
        self._in_row = 0
        self._open_until: float | None = None
        self._is_probing = False
        self._era = 0

    @property
    def state(self) -> BreakerState:
        """Where the circuit is now."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half_open"

    def enter(self, provider: str) -> int:
        """Let a call begin; return the ticket that `leave` takes.

        Raises:
            LLMCircuitOpen: the endpoint is being left alone.
        """
        if self._open_until is not None:
            left = self._open_until - self._clock.monotonic()
            if left > 0 or self._is_probing:
                raise LLMCircuitOpen(
                    provider=provider,
                    failures=max(self._in_row, 1),
                    retry_after_s=round(max(left, 0.0), 3),
                )
            self._is_probing = True
        return self._era

    def leave(self, ticket: int, outcome: Outcome) -> None:
        """Take note of how a call ended; `unknown` says nothing about the endpoint."""
        if ticket != self._era:
            return
        is_probe, self._is_probing = self._is_probing, False
        if outcome == "unknown":
            return
        is_failure = outcome == "failure"
        self._recent.append(is_failure)
        self._in_row = self._in_row + 1 if is_failure else 0
        if is_failure and (is_probe or self._is_too_much()):
            self._era += 1
            self._recent.clear()
            self._open_until = self._clock.monotonic() + self.policy.open_s
        elif is_probe:
            self._era += 1
            self._recent.clear()
            self._open_until = None

    def _is_too_much(self) -> bool:
        if self._in_row >= self.policy.failures_in_row:
            return True
        is_full = len(self._recent) == self.policy.rate_calls
        return is_full and sum(self._recent) >= self.policy.failure_rate * self.policy.rate_calls


class CircuitBreakers:
    """One breaker per endpoint, made on first use."""

    def __init__(self, *, policy: BreakerPolicy = _POLICY, clock: Clock = SYSTEM) -> None:
        """Give every breaker the same policy and clock."""
        self._policy = policy
        self._clock = clock
        self._breakers: dict[str, CircuitBreaker] = {}

    def of(self, endpoint: str) -> CircuitBreaker:
        """Return the breaker of an endpoint, always the same one."""
        breaker = self._breakers.get(endpoint)
        if breaker is None:
            breaker = CircuitBreaker(endpoint, policy=self._policy, clock=self._clock)
            self._breakers[endpoint] = breaker
        return breaker


def make_outcome(error: LLMError) -> Outcome:
    """Say what a failed call tells about the health of its endpoint.

    A refused request shows a working endpoint. Being rate limited shows neither: it
    has its own wait, and an open circuit would punish calls that still fit.
    """
    if isinstance(error, LLMRateLimited | LLMCircuitOpen):
        return "unknown"
    return "failure" if error.is_retryable else "success"


class BreakerModel(ModelWrapper):
    """A model that is not asked while the circuit of its endpoint is open."""

    def __init__(self, inner: Model, breaker: CircuitBreaker) -> None:
        """Wrap a model; give all models of one endpoint the same breaker."""
        super().__init__(inner)
        self.breaker = breaker

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask if the circuit allows it.

        Raises:
            LLMCircuitOpen: nothing was sent.
        """
        ticket = self.breaker.enter(self.inner.info.provider)
        # A cancelled or abandoned call says nothing, but must give back the probe.
        outcome: Outcome = "unknown"
        try:
            async with OpenedStream(self.inner, request, deltas) as stream:
                async for delta in stream:
                    if isinstance(delta, Finished):
                        outcome = "success"
                    yield delta
        except LLMError as error:
            outcome = make_outcome(error)
            raise
        finally:
            self.breaker.leave(ticket, outcome)
