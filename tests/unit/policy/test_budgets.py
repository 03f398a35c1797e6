"""The ledger's scopes: opened, shared, closed, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import BudgetExceeded, UsageError
from holdfast.policy.budgets import NOTHING, Amount, Budget, BudgetLedger, Left, choose_stricter


@pytest.fixture
def ledger() -> BudgetLedger:
    made = BudgetLedger()
    made.open("session", Budget(max_tokens=100, max_cost_usd=1), spent=Amount(tokens=30))
    made.open("run", Budget(max_tokens=50), parent="session")
    return made


def test_error_names_the_scope_and_the_limit(ledger: BudgetLedger) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve("run", Amount(tokens=51))
    assert (caught.value.context["scope"], caught.value.context["limit"]) == ("run", 50)
    ledger.reserve("run", Amount(tokens=50))
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve("session", Amount(cost_pico_usd=2 * 10**12))
    assert caught.value.context["limit"] == "$1.000000"


def test_reload_changes_limits_and_keeps_what_was_spent(ledger: BudgetLedger) -> None:
    ledger.settle(ledger.reserve("run", Amount(tokens=20)), Amount(tokens=15))
    ledger.open("session", Budget(max_tokens=50), spent=NOTHING)
    assert ledger.spent("session") == Amount(tokens=45)
    assert ledger.left("run") == Left(tokens=5)
    ledger.open("session", Budget())
    assert ledger.left("run") == Left(tokens=35)


def test_new_limits_of_a_scope_in_use_keep_what_it_spent_and_holds(ledger: BudgetLedger) -> None:
    ledger.settle(ledger.reserve("run", Amount(tokens=20)), Amount(tokens=15))
    ledger.reserve("run", Amount(tokens=10))
    ledger.limit("run", Budget(max_tokens=30))
    assert (ledger.spent("run"), ledger.reserved("run")) == (Amount(tokens=15), Amount(tokens=10))
    assert ledger.left("run") == Left(tokens=5, cost_pico_usd=10**12)
    ledger.close("run")
    assert not ledger.is_open("run")  # unlike opening it again, it is used only once
    with pytest.raises(UsageError):
        ledger.limit("run", Budget())


def test_of_two_budgets_the_smaller_limits_hold_and_either_may_refuse_unknown_prices() -> None:
    lax = Budget(max_tokens=10, max_cost_usd=5, on_unknown_price="ignore")
    strict = Budget(max_tokens=20, max_cost_usd=1, on_unknown_price="refuse")
    both = choose_stricter(lax, strict)
    assert (both.max_tokens, both.max_cost_usd, both.on_unknown_price) == (10, 1, "refuse")
    assert choose_stricter(Budget(), Budget()) == Budget()


def test_limit_below_what_was_spent_refuses_and_leaves_nothing(ledger: BudgetLedger) -> None:
    ledger.open("session", Budget(max_tokens=10))
    assert ledger.left("run") == Left(tokens=0)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("run", Amount(tokens=1))


def test_closing_a_scope_releases_what_it_held_above(ledger: BudgetLedger) -> None:
    held = ledger.reserve("run", Amount(tokens=20))
    ledger.release(held)
    ledger.release(held)
    ledger.reserve("run", Amount(tokens=10))
    assert ledger.reserved("session") == Amount(tokens=10)
    ledger.close("run")
    assert ledger.reserved("session") == NOTHING
    ledger.close("run")
    ledger.close("session")
    with pytest.raises(UsageError):
        ledger.left("session")


def test_scope_that_is_used_twice_stays_until_both_have_closed_it(ledger: BudgetLedger) -> None:
    ledger.open("session", Budget())
    ledger.close("session")
    assert ledger.spent("session") == Amount(tokens=30)


def test_child_of_an_unknown_scope_is_refused(ledger: BudgetLedger) -> None:
    with pytest.raises(UsageError):
        ledger.open("child", Budget(), parent="nobody")


def test_budget_of_nan_less_than_nothing_or_endless_is_refused() -> None:
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            Budget(max_cost_usd=value)
    assert not Budget().has_limits


@pytest.mark.parametrize("value", ["5", 1.5, True, [1]])
def test_budget_of_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Budget(max_tokens=value)
    assert refused.value.code == UsageError.code
