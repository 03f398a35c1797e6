"""Tokens and dollars per run, agent, session, model and tenant: each answer counted once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from holdfast.messages import Message, TokenUsage
from holdfast.providers.model import ModelRequest
from holdfast.providers.prices import PriceList
from holdfast.providers.tokens import TokenCounter

LedgerScope: TypeAlias = Literal["all", "run", "agent", "session", "model", "tenant", "day"]
PICO = 10**12
"""Sums of money are whole millionths of a millionth of a dollar."""


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer used and cost.

    `cost_pico_usd` is nothing when the price is not known. `is_estimate` says that the
    provider reported no usage and the tokens were counted here.
    """

    usage: TokenUsage
    cost_pico_usd: int | None = None
    is_estimate: bool = False

    @property
    def cost_usd(self) -> float | None:
        """The price in US dollars, or nothing when it is not known."""
        return None if self.cost_pico_usd is None else self.cost_pico_usd / PICO


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sum of many charges.

    `unpriced_calls` are missing in the cost, `estimated_calls` were counted here. Sums
    are whole numbers, so they do not depend on the order of the calls.
    """

    calls: int = 0
    usage: TokenUsage = TokenUsage()
    cost_pico_usd: int = 0
    unpriced_calls: int = 0
    estimated_calls: int = 0

    @property
    def known_cost_usd(self) -> float:
        """What the calls with a known price cost."""
        return self.cost_pico_usd / PICO

    @property
    def cost_usd(self) -> float | None:
        """What all calls cost, or nothing as soon as the price of one is not known."""
        return None if self.unpriced_calls else self.cost_pico_usd / PICO

    def plus(self, charge: Charge) -> UsageTotals:
        """Return the totals with one more charge."""
        return UsageTotals(
            calls=self.calls + 1,
            usage=self.usage + charge.usage,
            cost_pico_usd=self.cost_pico_usd + (charge.cost_pico_usd or 0),
            unpriced_calls=self.unpriced_calls + (charge.cost_pico_usd is None),
            estimated_calls=self.estimated_calls + charge.is_estimate,
        )


_NOTHING = UsageTotals()


class UsageLedger:
    """Folds charges into totals; a message that comes again changes nothing.

    A projection: the journal can rebuild it at any time. Ids of counted messages are
    kept per session until the session is forgotten.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._totals: dict[tuple[LedgerScope, str], UsageTotals] = {}
        self._counted: dict[str, set[str]] = {}

    def add(self, message: Message, charge: Charge, *, tenant: str = "") -> bool:
        """Count an answer wherever it belongs; say whether it was new."""
        counted = self._counted.setdefault(message.session_id, set())
        if message.id in counted:
            return False
        counted.add(message.id)
        for place in _list_places(message, tenant):
            self._totals[place] = self._totals.get(place, _NOTHING).plus(charge)
        return True

    def of(self, scope: LedgerScope, value: str = "") -> UsageTotals:
        """Return the totals of a run, an agent, a session, a tenant, or of all."""
        return self._totals.get((scope, value), _NOTHING)

    def read_all_of(self, scope: LedgerScope) -> dict[str, UsageTotals]:
        """Return the totals of all runs, agents, sessions, models, tenants or days, by name."""
        return {value: totals for (kind, value), totals in self._totals.items() if kind == scope}

    def forget_session(self, session_id: str) -> None:
        """Drop what is kept to recognise a session's messages, and its own totals.

        The totals of its agents and its tenant stay. Its messages must not come again.
        """
        self._counted.pop(session_id, None)
        self._totals.pop(("session", session_id), None)


class Accountant:
    """Turns answers into charges, and keeps the ledger.

    Usage comes from the provider; when it reported none and the request is at hand, it
    is counted here and marked as an estimate.
    """

    def __init__(
        self, *, prices: PriceList | None = None, ledger: UsageLedger | None = None
    ) -> None:
        """Use a price list and a ledger of its own unless they are given."""
        self.prices = prices if prices is not None else PriceList()
        self.ledger = ledger if ledger is not None else UsageLedger()
        self._counters: dict[tuple[str, str], TokenCounter] = {}

    def charge(
        self,
        message: Message,
        *,
        request: ModelRequest | None = None,
        is_local: bool | None = None,
        api_url: str = "",
    ) -> Charge:
        """Say what an answer used and cost; the ledger is not touched."""
        usage, is_estimate = message.usage, False
        if usage is None:
            if request is None:
                return Charge(usage=TokenUsage(), is_estimate=True)
            counter = self.counter(message.provider, message.model)
            usage, is_estimate = counter.usage(request, message), True
        cost = self.prices.cost_pico_usd(
            usage,
            provider=message.provider,
            model=message.model,
            api_url=api_url,
            is_local=is_local,
        )
        return Charge(usage=usage, cost_pico_usd=cost, is_estimate=is_estimate)

    def record(
        self,
        message: Message,
        *,
        tenant: str = "",
        request: ModelRequest | None = None,
        is_local: bool | None = None,
        api_url: str = "",
    ) -> Charge:
        """Charge an answer and count it once in the ledger."""
        charge = self.charge(message, request=request, is_local=is_local, api_url=api_url)
        self.ledger.add(message, charge, tenant=tenant)
        return charge

    def counter(self, provider: str, model: str) -> TokenCounter:
        """Return the token counter of a model, always the same one."""
        place = (provider, model)
        counter = self._counters.get(place)
        if counter is None:
            counter = self._counters[place] = TokenCounter(provider, model)
        return counter


def _list_places(message: Message, tenant: str) -> Iterator[tuple[LedgerScope, str]]:
    yield ("all", "")
    yield ("session", message.session_id)
    if message.run_id:
        yield ("run", message.run_id)
    if message.agent:
        yield ("agent", message.agent)
    if message.model:
        yield ("model", f"{message.provider}:{message.model}")
    yield ("day", datetime.fromtimestamp(message.time_created, UTC).date().isoformat())
    if tenant:
        yield ("tenant", tenant)
