"""A tenant's budget: shared by all sessions and all processes of a state directory.

Its reservations are facts of the system's chain. A reservation is appended only if no caller
else appended since the sum was read, so two processes cannot both take what is left. What a
dead process held is released by the caller that runs short.
"""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.errors import BudgetExceeded, StaleWriter
from holdfast.ids import make_id
from holdfast.journal import SYSTEM_SESSION, Event, Journal, Payload, Projection, payload
from holdfast.policy.budgets import NOTHING, Amount, Budget, Left, check, compute_remaining


@payload("budget.reserved", is_open=True, is_inherited=False, is_of_store=True)
class BudgetReserved(Payload, frozen=True, kw_only=True):
    """The worst case of a call is held for a tenant, by a living process."""

    tenant: str
    reservation_id: str
    run_id: str
    owner: str
    amount: Amount


@payload("budget.settled", is_open=True, is_inherited=False, is_of_store=True)
class BudgetSettled(Payload, frozen=True, kw_only=True):
    """A reservation is over; `actual` is what the call really spent."""

    tenant: str
    reservation_id: str
    actual: Amount = NOTHING


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One reservation that is open."""

    amount: Amount
    run_id: str
    owner: str


class TenantSpending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tenant has spent, and what is held for it right now."""

    tenant: str
    spent: Amount = NOTHING
    held: dict[str, Held] = msgspec.field(default_factory=dict)

    @property
    def used(self) -> Amount:
        """Spent and held together."""
        return sum((each.amount for each in self.held.values()), self.spent)


class TenantsTable(Projection[TenantSpending]):
    """One row per tenant."""

    name = "tenant_spending"
    version = 1
    row_type = TenantSpending
    columns = ("tenant",)
    kinds = frozenset({BudgetReserved.kind, BudgetSettled.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A tenant has one row, under its name."""
        assert isinstance(payload, BudgetReserved | BudgetSettled)
        return payload.tenant

    def apply(
        self, row: TenantSpending | None, event: Event, payload: Payload
    ) -> TenantSpending | None:
        """Fold one fact; what a process spent after it was given up for dead counts too."""
        replace = msgspec.structs.replace
        if isinstance(payload, BudgetReserved):
            row = row or TenantSpending(tenant=payload.tenant)
            held = Held(amount=payload.amount, run_id=payload.run_id, owner=payload.owner)
            return replace(row, held={**row.held, payload.reservation_id: held})
        assert isinstance(payload, BudgetSettled)
        row = row or TenantSpending(tenant=payload.tenant)
        rest = {key: each for key, each in row.held.items() if key != payload.reservation_id}
        return replace(row, spent=row.spent + payload.actual, held=rest)


TENANTS = TenantsTable()


class SharedBudget:
    """The budget of one tenant, kept in the journal.

    Promise: the sum of what is spent and held never exceeds the limits, however many
    processes reserve at once; limits may change at any time, what is spent stays.
    """

    def __init__(self, journal: Journal, tenant: str, budget: Budget, *, owner: str) -> None:
        """Limit this tenant; `owner` stands for this process."""
        self._journal = journal
        self._owner = owner
        self.tenant = tenant
        self.budget = budget
        self._turn = asyncio.Lock()

    async def spending(self) -> TenantSpending:
        """Return what is spent and held."""
        row = await self._journal.row(TENANTS, SYSTEM_SESSION, self.tenant)
        return row or TenantSpending(tenant=self.tenant)

    async def left(self) -> Left:
        """Return how much more could be reserved now."""
        return compute_remaining(self.budget, (await self.spending()).used)

    async def reserve(self, run_id: str, amount: Amount) -> str:
        """Hold an amount and return the id of the reservation.

        Raises:
            BudgetExceeded: it does not fit; nothing is held.
        """
        fact = BudgetReserved(
            tenant=self.tenant,
            reservation_id=make_id("res"),
            run_id=run_id,
            owner=self._owner,
            amount=amount,
        )
        async with self._turn:
            while True:
                # The end of the chain is read first: whatever comes later refuses the append.
                head = await self._journal.head(SYSTEM_SESSION)
                try:
                    await self._make_room(amount)
                    await self._journal.append(
                        SYSTEM_SESSION, [fact], after=head.session_seq if head else 0
                    )
                except StaleWriter:
                    continue
                return fact.reservation_id

    async def settle(self, reservation_id: str, actual: Amount) -> None:
        """Replace a reservation by what was really spent."""
        settled = BudgetSettled(tenant=self.tenant, reservation_id=reservation_id, actual=actual)
        await self._journal.append(SYSTEM_SESSION, [settled])

    async def release_run(self, run_id: str) -> None:
        """Release what a run held before it was interrupted."""
        row = await self.spending()
        await self._release([key for key, held in row.held.items() if held.run_id == run_id])

    async def _make_room(self, amount: Amount) -> None:
        row = await self.spending()
        try:
            check(f"tenant {self.tenant}", self.budget, row.used, amount)
        except BudgetExceeded:
            owners = {held.owner for held in row.held.values()} - {self._owner}
            dead = {owner for owner in owners if not await self._journal.store.is_alive(owner)}
            lost = [key for key, held in row.held.items() if held.owner in dead]
            if not lost:
                raise
            await self._release(lost)
            # The chain has grown: the append that follows is refused and all is read anew.

    async def _release(self, reservations: list[str]) -> None:
        if reservations:
            facts = [BudgetSettled(tenant=self.tenant, reservation_id=key) for key in reservations]
            await self._journal.append(SYSTEM_SESSION, facts)
