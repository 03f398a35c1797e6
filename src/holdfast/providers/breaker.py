"""Leave an endpoint alone for a while after it failed too often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeAlias

import msgspec

from holdfast.circuit import Circuit, CircuitState, Outcome
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

BreakerState: TypeAlias = CircuitState


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
    """The health of one endpoint, shared by all models behind it; see `circuit`."""

    def __init__(
        self, endpoint: str, *, policy: BreakerPolicy = _POLICY, clock: Clock = SYSTEM
    ) -> None:
        """Start closed."""
        self.endpoint = endpoint
        self.policy = policy
        self._circuit = Circuit(
            failures_in_row=policy.failures_in_row,
            open_s=policy.open_s,
            failure_rate=policy.failure_rate,
            rate_calls=policy.rate_calls,
            clock=clock,
        )

    @property
    def state(self) -> BreakerState:
        """Where the circuit is now."""
        return self._circuit.state

    def enter(self, provider: str) -> int:
        """Let a call begin; return the ticket that `leave` takes.

        Raises:
            LLMCircuitOpen: the endpoint is being left alone.
        """
        ticket = self._circuit.enter()
        if ticket is None:
            raise LLMCircuitOpen(
                provider=provider,
                failures=max(self._circuit.failures, 1),
                retry_after_s=round(self._circuit.wait_s, 3),
            )
        return ticket

    def leave(self, ticket: int, outcome: Outcome) -> None:
        """Take note of how a call ended; `unknown` says nothing about the endpoint."""
        self._circuit.leave(ticket, outcome)


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
