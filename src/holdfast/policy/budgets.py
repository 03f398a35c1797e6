"""Budgets: what may be spent, reserved before it is spent.

A tree of scopes (tenant, session, run, sub-agent), each with limits of its own. Before a
call its worst case is reserved at every level, all or nothing; afterwards the true amount
takes its place. What runs together therefore cannot overshoot together.

Nothing is stored here. What a session or a run has spent follows from its messages; only
what several processes share is kept as facts of its own (`shared_budget`).
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Literal, TypeAlias, TypeVar

import msgspec

from holdfast.errors import BudgetExceeded, UsageError

PICO = 10**12
_COUNTS = ("max_tokens", "max_calls", "max_tool_calls")
_LIMITS = ("max_cost_usd", "max_wall_s", *_COUNTS)
Kind: TypeAlias = Literal["cost", "token", "call", "tool call", "time"]


class Budget(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Limits of one scope; what is left out is without limit.

    `max_wall_s` limits how long each run works, without the time for which it is parked.
    Where the price of a model is not known, a limit in dollars refuses the call, unless
    `on_unknown_price` leaves it to the other limits.
    """

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    max_tool_calls: int | None = None
    max_wall_s: float | None = None
    on_unknown_price: Literal["refuse", "ignore"] = "refuse"

    def __post_init__(self) -> None:
        """Refuse limits that are no numbers from nought on, or endless; they would be mistakes."""
        for name in _LIMITS:
            value = getattr(self, name)
            if value is None:
                continue
            kinds = (int,) if name in _COUNTS else (int, float)
            if type(value) not in kinds or not 0 <= value < math.inf:
                told = f"A budget's {name} cannot be {value!r:.80}"
                raise UsageError(detail=f"{told}; what has no limit is left out.")

    @property
    def has_limits(self) -> bool:
        """Say whether anything is limited."""
        return self != NO_BUDGET


NO_BUDGET = Budget()


def choose_stricter(one: Budget, other: Budget) -> Budget:
    """Return the budget that keeps both: of each limit the smaller one.

    A price that is not known refuses if either of them limits dollars and refuses then.
    """
    if one == other == NO_BUDGET:
        return NO_BUDGET
    refuses = any(
        budget.max_cost_usd is not None and budget.on_unknown_price == "refuse"
        for budget in (one, other)
    )
    has_cost = one.max_cost_usd is not None or other.max_cost_usd is not None
    return Budget(
        max_cost_usd=_choose_smaller(one.max_cost_usd, other.max_cost_usd),
        max_tokens=_choose_smaller(one.max_tokens, other.max_tokens),
        max_calls=_choose_smaller(one.max_calls, other.max_calls),
        max_tool_calls=_choose_smaller(one.max_tool_calls, other.max_tool_calls),
        max_wall_s=_choose_smaller(one.max_wall_s, other.max_wall_s),
        on_unknown_price="refuse" if refuses or not has_cost else "ignore",
    )


class Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scope whose budget a run below it spends from too.

    Without a `run_id` it is the whole session's; what was spent in it follows from the ids.
    """

    scope: str
    session_id: str
    run_id: str = ""
    budget: Budget = NO_BUDGET


class Amount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is or may be spent; money in whole millionths of a millionth of a dollar."""

    cost_pico_usd: int = 0
    tokens: int = 0
    calls: int = 0
    tool_calls: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(
            cost_pico_usd=self.cost_pico_usd + other.cost_pico_usd,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
            tool_calls=self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: Amount) -> Amount:
        """Return the difference."""
        return Amount(
            cost_pico_usd=self.cost_pico_usd - other.cost_pico_usd,
            tokens=self.tokens - other.tokens,
            calls=self.calls - other.calls,
            tool_calls=self.tool_calls - other.tool_calls,
        )


NOTHING = Amount()


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """How much more may be reserved now; `None` is without limit."""

    cost_pico_usd: int | None = None
    tokens: int | None = None


def check(scope: str, budget: Budget, used: Amount, more: Amount) -> None:
    """Refuse an amount that does not fit on top of what is used.

    Raises:
        BudgetExceeded: it names the scope and the limit.
    """
    limits: tuple[tuple[Kind, int, int, int | None], ...] = (
        ("cost", used.cost_pico_usd, more.cost_pico_usd, _to_pico(budget.max_cost_usd)),
        ("token", used.tokens, more.tokens, budget.max_tokens),
        ("call", used.calls, more.calls, budget.max_calls),
        ("tool call", used.tool_calls, more.tool_calls, budget.max_tool_calls),
    )
    for kind, spent, wanted, limit in limits:
        if limit is not None and wanted > 0 and spent + wanted > limit:
            is_money = kind == "cost"
            raise BudgetExceeded(
                kind=kind,
                scope=scope,
                used=f"${spent / PICO:.6f}" if is_money else spent,
                limit=f"${limit / PICO:.6f}" if is_money else limit,
            )


def compute_remaining(budget: Budget, used: Amount) -> Left:
    """Return what is left of the limits that a model call can be cut to."""
    cost, tokens = _to_pico(budget.max_cost_usd), budget.max_tokens
    return Left(
        cost_pico_usd=None if cost is None else max(0, cost - used.cost_pico_usd),
        tokens=None if tokens is None else max(0, tokens - used.tokens),
    )


def choose_narrower(one: Left, other: Left) -> Left:
    """Return the smaller of two rests."""
    return Left(
        cost_pico_usd=_choose_smaller(one.cost_pico_usd, other.cost_pico_usd),
        tokens=_choose_smaller(one.tokens, other.tokens),
    )


class _Node(msgspec.Struct, kw_only=True):
    budget: Budget
    parent: str
    spent: Amount
    reserved: Amount = NOTHING
    users: int = 1


class Reservation(msgspec.Struct, kw_only=True):
    """An amount that is held at every level until it is settled or released."""

    scope: str
    amount: Amount
    is_open: bool = msgspec.field(default=True)


class BudgetLedger:
    """The scopes that are in use in this process, and what is spent and reserved in each.

    Every operation is atomic: it takes effect at all levels or at none, the caller that calls it
    from whichever thread or task.
    """

    def __init__(self) -> None:
        """Start with no scope."""
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.Lock()
        self.opening = asyncio.Lock()
        """Held from looking up what was spent in a scope until the scope is open, so that
        no run begins and ends in between unseen."""

    def open(
        self, scope: str, budget: Budget, *, parent: str = "", spent: Amount = NOTHING
    ) -> None:
        """Use a scope; `spent` is what the journal knows, if no run here uses the scope yet.

        Opening a scope that is in use sets its limits anew and leaves alone what it spent.
        """
        with self._lock:
            if parent and parent not in self._nodes:
                raise UsageError(detail=f"The budget scope {parent} is not open.")
            node = self._nodes.get(scope)
            if node is None:
                self._nodes[scope] = _Node(budget=budget, parent=parent, spent=spent)
            else:
                node.budget = budget
                node.users += 1

    def limit(self, scope: str, budget: Budget) -> None:
        """Set the limits of a scope in use anew; what it spent and holds stays."""
        with self._lock:
            self._read_chain(scope)[0][1].budget = budget

    def is_open(self, scope: str) -> bool:
        """Say whether a run uses a scope now, so that its sums are known here."""
        with self._lock:
            return scope in self._nodes

    def close(self, scope: str) -> None:
        """Give a scope back; what was reserved for it alone is released with it."""
        with self._lock:
            node = self._nodes.get(scope)
            if node is None:
                return
            node.users -= 1
            if node.users <= 0:
                held = node.reserved
                for above in self._read_chain(node.parent) if node.parent else ():
                    above[1].reserved -= held
                del self._nodes[scope]

    def reserve(self, scope: str, amount: Amount) -> Reservation:
        """Hold an amount at every level up from a scope.

        Raises:
            BudgetExceeded: it does not fit at some level; nothing is held.
        """
        with self._lock:
            chain = self._read_chain(scope)
            for name, node in chain:
                check(name, node.budget, node.spent + node.reserved, amount)
            for _, node in chain:
                node.reserved += amount
        return Reservation(scope=scope, amount=amount)

    def settle(self, reservation: Reservation, actual: Amount) -> None:
        """Replace a reservation by what was really spent; a second time does nothing."""
        with self._lock:
            if not reservation.is_open:
                return
            reservation.is_open = False
            for _, node in self._read_chain(reservation.scope):
                node.reserved -= reservation.amount
                node.spent += actual

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back unspent; a second time does nothing."""
        self.settle(reservation, NOTHING)

    def left(self, scope: str) -> Left:
        """Return how much more could be reserved at every level up from a scope."""
        with self._lock:
            rest = Left()
            for _, node in self._read_chain(scope):
                rest = choose_narrower(
                    rest, compute_remaining(node.budget, node.spent + node.reserved)
                )
            return rest

    def spent(self, scope: str) -> Amount:
        """Return what was spent in a scope."""
        with self._lock:
            return self._read_chain(scope)[0][1].spent

    def reserved(self, scope: str) -> Amount:
        """Return what is held in a scope."""
        with self._lock:
            return self._read_chain(scope)[0][1].reserved

    def _read_chain(self, scope: str) -> list[tuple[str, _Node]]:
        chain: list[tuple[str, _Node]] = []
        while scope:
            node = self._nodes.get(scope)
            if node is None:
                raise UsageError(detail=f"The budget scope {scope} is not open.")
            chain.append((scope, node))
            scope = node.parent
        return chain


def _to_pico(usd: float | None) -> int | None:
    return None if usd is None else round(usd * PICO)


N = TypeVar("N", int, float)


def _choose_smaller(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


__all__ = [
    "NOTHING",
    "NO_BUDGET",
    "PICO",
    "Amount",
    "Budget",
    "BudgetLedger",
    "Left",
    "Reservation",
    "Share",
    "check",
    "choose_narrower",
    "choose_stricter",
    "compute_remaining",
]
