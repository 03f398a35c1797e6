"""Whatever runs together, in whatever order, never overshoots a shared budget."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BudgetExceeded
from holdfast.journal import Journal, MemoryStore, SqliteStore
from holdfast.policy.budgets import NOTHING, Amount, Budget, BudgetLedger, Reservation
from holdfast.policy.shared_budget import TENANTS, SharedBudget
from holdfast.turns import LeaseKeeper

amounts = st.builds(
    Amount,
    cost_pico_usd=st.integers(0, 5) | st.integers(0, 3 * 10**12),
    tokens=st.integers(0, 40),
    calls=st.integers(0, 2),
    tool_calls=st.integers(0, 2),
)
limits = st.builds(
    Budget,
    max_cost_usd=st.none() | st.floats(0, 5),
    max_tokens=st.none() | st.integers(0, 100),
    max_calls=st.none() | st.integers(0, 6),
    max_tool_calls=st.none() | st.integers(0, 6),
)
steps = st.lists(
    st.tuples(st.sampled_from(("reserve", "settle", "release")), st.integers(0, 3), amounts),
    max_size=40,
)


def fits(budget: Budget, used: Amount) -> bool:
    pairs = (
        (used.tokens, budget.max_tokens),
        (used.calls, budget.max_calls),
        (used.tool_calls, budget.max_tool_calls),
        (used.cost_pico_usd, None if budget.max_cost_usd is None else budget.max_cost_usd * 10**12),
    )
    return all(limit is None or value <= limit + 0.5 for value, limit in pairs)


@given(tenant=limits, session=limits, run=limits, actions=steps)
def test_no_level_is_ever_overdrawn_and_sums_agree(
    tenant: Budget, session: Budget, run: Budget, actions: list[tuple[str, int, Amount]]
) -> None:
    ledger = BudgetLedger()
    ledger.open("tenant", tenant)
    ledger.open("session", session, parent="tenant")
    runs = [f"run {number}" for number in range(4)]
    for name in runs:
        ledger.open(name, run, parent="session")
    held: list[Reservation] = []
    spent = NOTHING
    for action, number, amount in actions:
        if action == "reserve":
            try:
                held.append(ledger.reserve(runs[number], amount))
            except BudgetExceeded as error:
                assert error.code == "budget.exceeded"
        elif held:
            reservation = held.pop(number % len(held))
            # A call never uses more than its worst case.
            actual = reservation.amount if action == "settle" else NOTHING
            ledger.settle(reservation, actual)
            ledger.settle(reservation, actual)
            spent += actual
        for name, budget in (("tenant", tenant), ("session", session)):
            assert fits(budget, ledger.spent(name) + ledger.reserved(name))
            assert ledger.spent(name) == spent
            assert ledger.reserved(name) == sum((each.amount for each in held), NOTHING)
        assert sum((ledger.spent(name) for name in runs), NOTHING) == spent
        assert all(fits(run, ledger.spent(name) + ledger.reserved(name)) for name in runs)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_fifty_runs_that_share_a_tenants_budget_do_not_overshoot(
    kind: str, tmp_path: Path
) -> None:
    store = (
        MemoryStore(projections=(TENANTS,))
        if kind == "memory"
        else SqliteStore(tmp_path / "journal.db", projections=(TENANTS,))
    )
    async with Journal(store) as journal:
        budget = Budget(max_tokens=100)
        # Two keepers stand for two processes: they share nothing but the journal.
        keepers = [LeaseKeeper(journal, ttl_s=30) for _ in range(2)]
        for keeper in keepers:
            await keeper.show_presence()
        shared = [SharedBudget(journal, "t", budget, owner=k.owner) for k in keepers]
        most = 0

        async def run(number: int) -> bool:
            nonlocal most
            mine = shared[number % 2]
            try:
                reservation = await mine.reserve(f"run {number}", Amount(tokens=10))
            except BudgetExceeded:
                return False
            most = max(most, (await mine.spending()).used.tokens)
            await asyncio.sleep(0)
            await mine.settle(reservation, Amount(tokens=10))
            return True

        done = await asyncio.gather(*[run(number) for number in range(50)])
        row = await shared[0].spending()
        for keeper in keepers:
            await asyncio.to_thread(keeper.close)
    assert (sum(done), row.spent.tokens, row.held) == (10, 100, {})
    assert most <= 100


async def test_what_a_dead_process_held_is_released_by_whoever_runs_short() -> None:
    async with Journal(MemoryStore(projections=(TENANTS,))) as journal:
        budget = Budget(max_tokens=10)
        dead = SharedBudget(journal, "t", budget, owner="gone")
        living = SharedBudget(journal, "t", budget, owner="here")
        await dead.reserve("run 1", Amount(tokens=8))
        reservation = await living.reserve("run 2", Amount(tokens=8))
        await living.settle(reservation, Amount(tokens=3))
        assert (await living.spending()).used == Amount(tokens=3)
        with pytest.raises(BudgetExceeded):
            await living.reserve("run 3", Amount(tokens=8))
        await living.reserve("run 3", Amount(tokens=7))
        await living.release_run("run 3")
        assert (await living.spending()).used == Amount(tokens=3)
