"""Keep model calls within the rate rules: wait for a place, or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMCircuitOpen, RateLimitError, RateRuleTooSmall
from holdfast.providers.events import (
    EventObserver,
    ProviderRateLimited,
    ignore_event,
)
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    Sleep,
    find_calling_agent,
)
from holdfast.providers.rate_rules import (
    RateCharge,
    RateLimitRule,
    RateSubject,
    check_rules,
    list_charges,
)
from holdfast.providers.rate_store import RateStore, Shortage, WindowRateStore

OnExhausted: TypeAlias = Literal["wait", "refuse"]
_NAP_S = 1.0
"""The longest sleep at a time: a settled call may make room earlier than foreseen."""
_BREATH_S = 0.001


class RateReservation(msgspec.Struct, frozen=True, kw_only=True):
    """What was charged for one call, to be settled when it is known what it used."""

    charges: tuple[RateCharge, ...]
    at: float
    waited_s: float = 0.0


class _Ticket:
    """A call that waits, and the window for which it waits."""

    __slots__ = ("blocked_on", "keys", "ready_at", "shortage")

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.blocked_on = ""
        self.ready_at = 0.0
        self.shortage: Shortage | None = None


class RateLimiter:
    """Admits calls within the rules; all rules are checked before any is charged.

    Who waits for a window is served before those who come later and need the same
    one; calls that need other windows pass by.
    """

    def __init__(
        self,
        rules: Iterable[RateLimitRule],
        *,
        on_exhausted: OnExhausted = "wait",
        max_wait_s: float = 60.0,
        store: RateStore | None = None,
        clock: Clock = SYSTEM,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Enforce `rules`, with their histories in `store` (memory unless told otherwise).

        Raises:
            ConfigError: two rules have one name.
        """
        self.rules = check_rules(rules)
        self.on_exhausted: OnExhausted = on_exhausted
        self.max_wait_s = max_wait_s
        self._store: RateStore = store if store is not None else WindowRateStore(clock=clock)
        self._clock = clock
        self._sleep = sleep
        self._waiting: list[_Ticket] = []

    @property
    def counts_tokens(self) -> bool:
        """Whether any rule needs to know how many tokens a call uses."""
        return any(rule.max_tokens is not None for rule in self.rules)

    async def acquire(
        self,
        subject: RateSubject,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        on_short: Callable[[Shortage, bool], None] | None = None,
    ) -> RateReservation:
        """Charge one call and its expected tokens to every rule, waiting if that is the choice.

        `on_short` is told once when a rule stands in the way, and whether that refuses
        the call. A task cancelled while it waits has charged nothing.

        Raises:
            RateLimitError: a rule is exhausted, and the choice is to refuse or the wait
                would be longer than `max_wait_s`.
            RateRuleTooSmall: the input alone is more than a rule ever allows.
        """
        self._check_size(input_tokens)
        charges = list_charges(self.rules, subject, input_tokens + output_tokens)
        ticket = _Ticket(frozenset(charge.key for charge in charges))
        begun = self._clock.monotonic()
        try:
            while True:
                shortage = self._look_ahead(ticket) or await self._store.charge(charges)
                now = self._clock.monotonic()
                if not isinstance(shortage, Shortage):
                    return RateReservation(charges=charges, at=shortage, waited_s=now - begun)
                is_too_long = now - begun + shortage.wait_s > self.max_wait_s
                is_refused = self.on_exhausted == "refuse" or is_too_long
                if on_short is not None and (is_refused or ticket.shortage is None):
                    on_short(shortage, is_refused)
                if is_refused:
                    raise _make_refusal(shortage)
                if ticket.shortage is None:
                    self._waiting.append(ticket)
                ticket.shortage = shortage
                ticket.blocked_on = shortage.charge.key
                ticket.ready_at = now + shortage.wait_s
                await self._sleep(min(max(shortage.wait_s, _BREATH_S), _NAP_S))
        finally:
            if ticket.shortage is not None:
                self._waiting.remove(ticket)

    async def settle(self, reservation: RateReservation, tokens: int) -> None:
        """Replace the expected tokens of a call by those that it used."""
        for charge in reservation.charges:
            if charge.unit == "tokens":
                await self._store.correct(
                    charge, at=reservation.at, difference=tokens - charge.amount
                )

    async def release(self, reservation: RateReservation) -> None:
        """Give everything back: the call was never sent."""
        for charge in reservation.charges:
            await self._store.correct(charge, at=reservation.at, difference=-charge.amount)

    async def close(self) -> None:
        """Give back the connections of the store; what it holds stays there."""
        await self._store.close()

    def _check_size(self, input_tokens: int) -> None:
        for rule in self.rules:
            if rule.max_tokens is not None and input_tokens > rule.max_tokens:
                raise RateRuleTooSmall(
                    rule=rule.name, limit=rule.max_tokens, unit="tokens", needed=input_tokens
                )

    def _look_ahead(self, ticket: _Ticket) -> Shortage | None:
        """Return what an earlier call waits for, if this one needs the same window."""
        for other in self._waiting:
            if other is ticket:
                return None
            if other.blocked_on in ticket.keys and other.shortage is not None:
                left = max(other.ready_at - self._clock.monotonic(), _BREATH_S)
                return Shortage(charge=other.shortage.charge, wait_s=left)
        return None


def _make_refusal(shortage: Shortage) -> RateLimitError:
    charge = shortage.charge
    return RateLimitError(
        rule=charge.rule.name,
        unit=charge.unit,
        retry_after_s=round(shortage.wait_s, 3),
        scope=charge.rule.scope,
    )


class RateLimitedModel(ModelWrapper):
    """A model whose calls keep to the rate rules of the caller that makes them.

    Put it inside `RetryingModel`, so that every attempt counts as the call it is.
    Expected tokens are the counted input plus `request.max_output_tokens` (or
    `expected_output_tokens`); the answer's own figures replace them. A call that
    failed keeps its expectation, because it is not known what it used.
    """

    def __init__(
        self,
        inner: Model,
        limiter: RateLimiter,
        *,
        agent: str = "",
        tenant: str = "",
        expected_output_tokens: int = 1_000,
        on_event: EventObserver = ignore_event,
    ) -> None:
        """Wrap a model for one agent and tenant; wrappers are cheap, limiters are shared.

        Without an agent, each call counts for the one that makes it (`find_calling_agent`).
        """
        super().__init__(inner)
        self._limiter = limiter
        info = inner.info
        self._subject = RateSubject(
            model=f"{info.provider}:{info.model}", agent=agent, tenant=tenant
        )
        self._expected_output_tokens = expected_output_tokens
        self._on_event = on_event

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask when the rules allow it.

        Raises:
            RateLimitError: the rules do not allow it; nothing was sent.
        """
        held = await self._reserve(request)
        try:
            async with OpenedStream(self.inner, request, deltas) as stream:
                async for delta in stream:
                    if isinstance(delta, Finished) and delta.message.usage is not None:
                        await self._limiter.settle(held, delta.message.usage.total)
                    yield delta
        except LLMCircuitOpen:
            await self._limiter.release(held)
            raise

    async def _reserve(self, request: ModelRequest) -> RateReservation:
        subject = self._subject
        if not subject.agent:
            subject = msgspec.structs.replace(subject, agent=find_calling_agent())
        if not self._limiter.counts_tokens:
            return await self._limiter.acquire(subject, on_short=self._report)
        return await self._limiter.acquire(
            subject,
            input_tokens=self.inner.count_tokens(request),
            output_tokens=request.max_output_tokens or self._expected_output_tokens,
            on_short=self._report,
        )

    def _report(self, shortage: Shortage, is_refused: bool) -> None:
        info = self.inner.info
        self._on_event(
            ProviderRateLimited(
                provider=info.provider,
                model=info.model,
                rule=shortage.charge.rule.name,
                wait_s=shortage.wait_s,
                is_refused=is_refused,
            )
        )
