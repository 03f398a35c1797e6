"""What a turn spends: the worst case is reserved before each call, the truth kept after it.

Four scopes stand above each other: the tenant (shared by all processes), the session, the
run, and the agent in it. Those of a run that another one started stand below the starter's,
so that all children together never spend more than their parent may. Where nothing is
limited, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from holdfast.clock import Clock
from holdfast.errors import BudgetExceeded, UsageError
from holdfast.journal import Condition, Event, Journal, RowQuery
from holdfast.messages import Message, TokenUsage, ToolPart
from holdfast.policy import (
    NO_BUDGET,
    NOTHING,
    PICO,
    Amount,
    Budget,
    BudgetLedger,
    Left,
    Reservation,
    Share,
    SharedBudget,
    choose_narrower,
    choose_stricter,
)
from holdfast.providers import Model, ModelInfo, ModelRequest
from holdfast.runs.children import list_runs_below, list_runs_below_session
from holdfast.sessions import (
    RUNS,
    SESSIONS,
    MessageCreated,
    MessagePartUpdated,
    RunParked,
    RunResumed,
    RunStarted,
    RunStatus,
    Session,
)
from holdfast.tools import NestedCallEnded, ToolStarted
from holdfast.turns import Turn

Charge: TypeAlias = Callable[[Message], Message]
"""Writes what an answer cost into it."""


def drop_cost(message: Message) -> Message:
    """Nothing is counted."""
    return message


Operator: TypeAlias = Callable[[], tuple[Budget, Budget]]
"""Says what the operator lets a run, and the agent in it, spend right now."""


def _limit_nothing() -> tuple[Budget, Budget]:
    return NO_BUDGET, NO_BUDGET


_UNLIMITED = (NO_BUDGET, NO_BUDGET, NO_BUDGET, NO_BUDGET)
_LEAST_OUTPUT = 16
"""An answer that may not have this many tokens is not worth asking for."""
_PAGE = 500
_NESTED = frozenset({NestedCallEnded.kind})
_KINDS = _NESTED | {MessageCreated.kind, RunStarted.kind, RunResumed.kind, RunParked.kind}
_CALLS = frozenset({MessageCreated.kind, ToolStarted.kind, MessagePartUpdated.kind})
_UNDER_WAY: tuple[RunStatus, ...] = ("queued", "running", "parked")


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run besides its session's and its agent's, and where sums are kept."""

    ledger: BudgetLedger = msgspec.field(default_factory=BudgetLedger)
    run: Budget = NO_BUDGET
    tenant: SharedBudget | None = None
    operator: Operator = _limit_nothing


@dataclass(frozen=True, kw_only=True)
class _Held:
    local: Reservation
    shared: str = ""


class Spending:
    """The budget of one turn."""

    def __init__(
        self,
        budgets: Budgets,
        agent: Budget,
        session: Budget,
        turn: Turn,
        clock: Clock,
        above: tuple[Share, ...] = (),
    ) -> None:
        """Made by the turn; `above` are the budgets of the caller that started the run."""
        self._above = above
        self._ledger = budgets.ledger
        tenant = budgets.tenant
        self._tenant = tenant if tenant is not None and tenant.budget.has_limits else None
        self._turn = turn
        self._clock = clock
        self._scope = f"agent of {turn.run.id}"
        self._operator = budgets.operator
        self._own = (session, budgets.run, agent)
        self.limits: tuple[Budget, ...] = self._list_current_limits()
        self._began = clock.monotonic()
        self._worked_s = 0.0

    @property
    def is_limited(self) -> bool:
        """Say whether anything is limited at any level."""
        return bool(self._above) or self.limits != _UNLIMITED

    @property
    def shares(self) -> tuple[Share, ...]:
        """The scopes that a run which this one starts spends from too, outermost first."""
        run = self._turn.run
        _, of_session, of_run, of_agent = self.limits
        session_id, run_id = run.session_id, run.id
        return (
            *self._above,
            Share(scope=f"session {session_id}", session_id=session_id, budget=of_session),
            Share(scope=f"run {run_id}", session_id=session_id, run_id=run_id, budget=of_run),
            Share(scope=self._scope, session_id=session_id, run_id=run_id, budget=of_agent),
        )

    def _list_current_limits(self) -> tuple[Budget, ...]:
        """The limits of all four scopes; the operator's hold beside those of run and agent."""
        session, run, agent = self._own
        of_run, of_agent = self._operator()
        shared = self._tenant.budget if self._tenant is not None else NO_BUDGET
        return shared, session, choose_stricter(run, of_run), choose_stricter(agent, of_agent)

    def _heed_reload(self) -> None:
        """Let limits hold that the operator has changed; what was spent stays."""
        limits = self._list_current_limits()
        if limits != self.limits:
            self.limits = limits
            self._ledger.limit(f"run {self._turn.run.id}", limits[2])
            self._ledger.limit(self._scope, limits[3])

    async def open(self, session: Session, journal: Journal, pending: int) -> None:
        """Take up what the journal says was spent; `pending` calls have not run yet."""
        async with self._ledger.opening:
            await self._open(session, journal, pending)

    async def _open(self, session: Session, journal: Journal, pending: int) -> None:
        run = self._turn.run
        spent = NOTHING
        top = await self._open_above(journal)
        if self._turn.is_resumed:
            # What began is taken up where it was, and not spent again.
            pending = min(pending, await _count_not_begun(journal, [run.id]))
            spent, self._worked_s = await _sum_spent_before(journal, self._turn, pending)
            spent += await _sum_spent_below(journal, run.id)
            if self._tenant is not None:
                await self._tenant.release_run(run.id)
        in_session = Amount(
            cost_pico_usd=round(session.total_cost * PICO),
            tokens=session.total_tokens,
            calls=session.model_calls,
            tool_calls=max(0, session.tool_calls - pending),
        )
        _, of_session, of_run, of_agent = self.limits
        if of_session.has_limits and not self._ledger.is_open(f"session {session.id}"):
            in_session += await _sum_spent_below_session(journal, session.id)
            in_session += await _sum_nested(journal, session.id)
        chain = (
            (f"session {session.id}", of_session, top, in_session),
            (f"run {run.id}", of_run, f"session {session.id}", spent),
            (self._scope, of_agent, f"run {run.id}", spent),
        )
        for scope, budget, parent, amount in chain:
            self._ledger.open(scope, budget, parent=parent, spent=amount)

    async def _open_above(self, journal: Journal) -> str:
        """Use the starter's scopes too, as they are here or as the journal knows them."""
        parent = ""
        for share in self._above:
            known = self._ledger.is_open(share.scope)
            spent = NOTHING if known else await _sum_spent_in(journal, share)
            self._ledger.open(share.scope, share.budget, parent=parent, spent=spent)
            parent = share.scope
        return parent

    def close(self) -> None:
        """Give the scopes back; reservations that are still open are released."""
        run = self._turn.run
        for scope in (self._scope, f"run {run.id}", f"session {run.session_id}"):
            self._ledger.close(scope)
        for share in reversed(self._above):
            self._ledger.close(share.scope)

    # --- model calls ------------------------------------------------------------------

    async def before_model(
        self, model: Model, request: ModelRequest, charge: Charge
    ) -> tuple[ModelRequest, _Held]:
        """Hold the worst case of a call; the output is cut to what is left, if that helps.

        Raises:
            BudgetExceeded: not even a short answer fits.
        """
        self._heed_reload()
        self._check_time()
        left = self._ledger.left(self._scope)
        if self._tenant is not None:
            left = choose_narrower(left, await self._tenant.left())
        most = request.max_output_tokens or model.info.max_output_tokens
        amount = Amount(calls=1)
        if left != Left():
            counted = model.count_tokens(request)
            price = self._make_price(model, charge) if left.cost_pico_usd is not None else None
            output = _compute_affordable(left, counted, most, price)
            cost = price(counted, output) if price is not None else 0
            amount = Amount(calls=1, tokens=counted + output, cost_pico_usd=cost)
            if output < most:
                request = msgspec.structs.replace(request, max_output_tokens=output)
        return request, await self._hold(amount)

    async def after_model(self, held: _Held, answer: Message | None) -> None:
        """Put the truth in the place of what was held; no answer costs nothing."""
        actual = NOTHING
        if answer is not None:
            tokens = answer.usage.total if answer.usage is not None else held.local.amount.tokens
            actual = Amount(calls=1, tokens=tokens, cost_pico_usd=round(answer.cost_usd * PICO))
        await self._settle(held, actual)

    @property
    def seconds_left(self) -> float | None:
        """How long the run may go on working; `None` without limit."""
        limit = self._compute_time_limit()
        return None if limit is None else max(0.0, limit - self._sum_worked())

    def compute_time_left(self) -> float | None:
        """Return `seconds_left`, for the caller that asks later."""
        return self.seconds_left

    def make_out_of_time(self) -> BudgetExceeded:
        """The error of a run that has worked too long."""
        limit = self._compute_time_limit()
        used, shown = f"{self._sum_worked():.1f} s", f"{limit} s"
        return BudgetExceeded(kind="time", scope=f"run {self._turn.run.id}", used=used, limit=shown)

    # --- tool calls -------------------------------------------------------------------

    async def spend_tool_call(self) -> None:
        """Count a tool call that is about to begin.

        Raises:
            BudgetExceeded: it does not fit; nothing has happened.
        """
        self._heed_reload()
        self._check_time()
        amount = Amount(tool_calls=1)
        await self._settle(await self._hold(amount), amount)

    # --- inside -----------------------------------------------------------------------

    async def _hold(self, amount: Amount) -> _Held:
        local = self._ledger.reserve(self._scope, amount)
        if self._tenant is None:
            return _Held(local=local)
        try:
            shared = await self._tenant.reserve(self._turn.run.id, amount)
        except BaseException:
            self._ledger.release(local)
            raise
        return _Held(local=local, shared=shared)

    async def _settle(self, held: _Held, actual: Amount) -> None:
        self._ledger.settle(held.local, actual)
        if self._tenant is not None and held.shared:
            await self._tenant.settle(held.shared, actual)

    def _make_price(self, model: Model, charge: Charge) -> Callable[[int, int], int] | None:
        """Return the price of so many tokens in and out, from whichever model is the dearest.

        Raises:
            BudgetExceeded: it is not known, and a limit in dollars does not accept that.
        """
        infos = (model.info, *model.info.fallbacks)
        levels = (*self.limits, *[share.budget for share in self._above])
        limited = [budget for budget in levels if budget.max_cost_usd is not None]

        def price(tokens_in: int, tokens_out: int) -> int:
            usage = TokenUsage(input=tokens_in, output=tokens_out)
            return round(max(_charge(info, charge, usage).cost_usd for info in infos) * PICO)

        probes = [_charge(info, charge, TokenUsage(input=1)) for info in infos]
        is_known = all(probe.metadata.get("cost") != "unknown" for probe in probes)
        is_uncounted = charge is drop_cost and model.info.is_llm
        if is_known and not is_uncounted:
            return price
        if all(budget.on_unknown_price == "ignore" for budget in limited):
            return None
        names = ", ".join(f"{info.provider}:{info.model}" for info in infos)
        raise BudgetExceeded(
            kind="cost",
            scope=f"run {self._turn.run.id}",
            # The way out is not more money: so it stands where the cause is told.
            used=f'an unknown part (no price is known for {names}; on_unknown_price="ignore" '
            "leaves it to the other limits)",
            limit=f"${min(budget.max_cost_usd or 0.0 for budget in limited)}",
        )

    def _check_time(self) -> None:
        left = self.seconds_left
        if left is not None and left <= 0:
            raise self.make_out_of_time()

    def _compute_time_limit(self) -> float | None:
        """The shortest of all limits: no run works longer than its starter may."""
        levels = (*self.limits, *[share.budget for share in self._above])
        return min((b.max_wall_s for b in levels if b.max_wall_s is not None), default=None)

    def _sum_worked(self) -> float:
        return self._worked_s + self._clock.monotonic() - self._began


def read_session_budget(session: Session) -> Budget:
    """Return the budget in a session's metadata (`budget`), if it has one.

    Raises:
        UsageError: what stands there is no budget.
    """
    found = session.metadata.get("budget")
    if found is None:
        return NO_BUDGET
    try:
        return msgspec.convert(found, Budget)
    except (msgspec.ValidationError, ValueError) as error:
        detail = f"The budget of session {session.id} cannot be read: {error}"
        raise UsageError(detail=detail) from error


def _charge(info: ModelInfo, charge: Charge, usage: TokenUsage) -> Message:
    return charge(
        Message(
            id="",
            session_id="",
            role="assistant",
            provider=info.provider,
            model=info.model,
            usage=usage,
        )
    )


def _compute_affordable(
    left: Left, counted: int, most: int, price: Callable[[int, int], int] | None
) -> int:
    """Return how many tokens of output fit; too many, if not even a short answer does."""
    output = most
    if left.tokens is not None:
        output = min(output, left.tokens - counted)
    if left.cost_pico_usd is not None and price is not None and output > 0:
        # Prices grow with the output; look for the largest that fits.
        low, high = 0, output
        while low < high:
            middle = (low + high + 1) // 2
            if price(counted, middle) <= left.cost_pico_usd:
                low = middle
            else:
                high = middle - 1
        output = low
    # What does not fit is asked for in full, so that the reservation says which limit holds.
    return output if output >= min(_LEAST_OUTPUT, most) else most


async def _sum_spent_before(journal: Journal, turn: Turn, pending: int) -> tuple[Amount, float]:
    """Return what a run spent before it was interrupted, and how long it worked."""
    events = await _list_events(journal, turn.session_id, turn.run.id, turn.run.queued_at)
    return _subtract_pending(_sum_spent_by(events), pending), _measure_worked(events)


def _subtract_pending(spent: Amount, pending: int) -> Amount:
    """Take off tool calls that were asked for and have not run."""
    return msgspec.structs.replace(spent, tool_calls=max(0, spent.tool_calls - pending))


async def _list_events(
    journal: Journal,
    session_id: str,
    run_id: str,
    after: int,
    kinds: frozenset[str] = _KINDS,
) -> list[Event]:
    events: list[Event] = []
    while page := await journal.read(session_id, after=after, limit=_PAGE, kinds=kinds):
        events += [event for event in page if event.run_id == run_id]
        after = page[-1].session_seq
    return events


async def _sum_spent_below(journal: Journal, run_id: str) -> Amount:
    """Return what all runs spent that a run started, directly or through others."""
    spent, children = NOTHING, await list_runs_below(journal, run_id)
    for child in children:
        events = await _list_events(journal, child.session_id, child.id, child.queued_at)
        spent += _sum_spent_by(events)
    return _subtract_pending(
        spent, await _count_not_begun(journal, [child.id for child in children])
    )


async def _sum_spent_below_session(journal: Journal, session_id: str) -> Amount:
    """Return what was spent in all sessions that were started from one."""
    rows = await list_runs_below_session(journal, session_id)
    spent = NOTHING
    for one in {row.session_id for row in rows} - {session_id}:
        spent += await _sum_spent_in_session(journal, one)
    return _subtract_pending(spent, await _count_not_begun(journal, [row.id for row in rows]))


async def _count_not_begun(journal: Journal, run_ids: Sequence[str]) -> int:
    """Count the calls of runs that were asked for and did not begin: they wait for a person."""
    if not run_ids:
        return 0
    count = 0
    where = (Condition("id", "in", tuple(run_ids)), Condition("status", "in", _UNDER_WAY))
    for found in await journal.rows(RowQuery(projection=RUNS, where=where, limit=len(run_ids))):
        run, waiting = found.row, set[str]()
        for event in await _list_events(journal, run.session_id, run.id, run.queued_at, _CALLS):
            fact = event.decode()
            if isinstance(fact, MessageCreated):
                waiting |= {part.call_id for part in fact.message.tool_calls if _is_open(part)}
            elif isinstance(fact, ToolStarted):
                waiting.discard(fact.intent.call_id)
            elif isinstance(fact, MessagePartUpdated) and isinstance(fact.part, ToolPart):
                waiting -= set() if _is_open(fact.part) else {fact.part.call_id}
        count += len(waiting)
    return count


def _is_open(part: ToolPart) -> bool:
    return part.state == "pending"


async def _sum_spent_in_session(journal: Journal, session_id: str) -> Amount:
    session = await journal.row(SESSIONS, session_id, session_id)
    if session is None:
        return NOTHING
    return Amount(
        cost_pico_usd=round(session.total_cost * PICO),
        tokens=session.total_tokens,
        calls=session.model_calls,
        tool_calls=session.tool_calls,
    ) + await _sum_nested(journal, session_id)


async def _sum_nested(journal: Journal, session_id: str) -> Amount:
    """Return the calls that other calls of a session made, such as a batch's.

    The session itself counts only what its messages ask for.
    """
    count, after = 0, 0
    while page := await journal.read(session_id, after=after, limit=_PAGE, kinds=_NESTED):
        count, after = count + len(page), page[-1].session_seq
    return Amount(tool_calls=count)


async def _sum_spent_in(journal: Journal, share: Share) -> Amount:
    """Return what the journal says was spent in a scope, and below it."""
    if not share.run_id:
        own = await _sum_spent_in_session(journal, share.session_id)
        return own + await _sum_spent_below_session(journal, share.session_id)
    query = RowQuery(projection=RUNS, where=(Condition("id", "=", share.run_id),), limit=1)
    spent = await _sum_spent_below(journal, share.run_id)
    for found in await journal.rows(query):
        run = found.row
        spent += _sum_spent_by(await _list_events(journal, run.session_id, run.id, run.queued_at))
    return spent


def _sum_spent_by(events: Sequence[Event]) -> Amount:
    spent = NOTHING
    for event in events:
        if event.kind in _NESTED:
            spent += Amount(tool_calls=1)
            continue
        fact = event.decode()
        if isinstance(fact, MessageCreated) and fact.message.role == "assistant":
            message = fact.message
            spent += Amount(
                cost_pico_usd=round(message.cost_usd * PICO),
                tokens=message.usage.total if message.usage else 0,
                calls=1,
                tool_calls=len(message.tool_calls),
            )
    return spent


def _measure_worked(events: Sequence[Event]) -> float:
    """Add up the times between a beginning and the last thing that happened before the next."""
    total, begun, last = 0.0, None, 0.0
    for event in events:
        if event.kind in (RunStarted.kind, RunResumed.kind):
            total += last - begun if begun is not None else 0.0
            begun = event.time
        last = event.time
    return total
