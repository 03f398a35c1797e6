from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import Message, TokenUsage
from holdfast.providers.accounting import Accountant
from holdfast.providers.prices import PriceList
from holdfast.testing import FakeClock

PRICES = PriceList(clock=FakeClock())
counts = st.integers(0, 500_000)
usages = st.builds(
    TokenUsage,
    input=counts,
    output=counts,
    reasoning=counts,
    cache_read=counts,
    cache_write=counts,
)


@st.composite
def deliveries(draw):
    """Answers, and an order in which they arrive, some of them several times."""
    number = draw(st.integers(1, 8))
    answers = [
        Message(
            id=f"msg_{index}",
            session_id=draw(st.sampled_from(["s1", "s2"])),
            run_id=draw(st.sampled_from(["r1", "r2"])),
            agent=draw(st.sampled_from(["a1", "a2"])),
            role="assistant",
            provider="openai",
            model=draw(st.sampled_from(["gpt-4o", "gpt-5-mini", "unknown-model"])),
            usage=draw(usages),
        )
        for index in range(number)
    ]
    arrivals = draw(st.permutations(list(range(number))))
    again = draw(st.lists(st.integers(0, number - 1), max_size=10))
    return answers, [*arrivals, *again], [*reversed(range(number)), *again]


@given(deliveries())
@settings(max_examples=100, deadline=None)
def test_every_answer_counts_once_in_any_order_and_however_often_it_comes(delivery):
    answers, first, second = delivery
    books = [Accountant(prices=PRICES), Accountant(prices=PRICES)]
    for accountant, order in zip(books, (first, second), strict=True):
        for index in order:
            accountant.record(answers[index], tenant="acme")
    for scope, values in {
        "all": [""],
        "session": ["s1", "s2"],
        "run": ["r1", "r2"],
        "agent": ["a1", "a2"],
        "tenant": ["acme"],
    }.items():
        totals = [[book.ledger.of(scope, value) for value in values] for book in books]
        assert totals[0] == totals[1]
        assert sum(total.calls for total in totals[0]) == len(answers)
        tokens = sum(total.usage.total for total in totals[0])
        assert tokens == sum(answer.usage.total for answer in answers if answer.usage)
        unpriced = sum(answer.model == "unknown-model" for answer in answers)
        assert sum(total.unpriced_calls for total in totals[0]) == unpriced


@given(usages, usages)
@settings(max_examples=100, deadline=None)
def test_the_price_of_a_sum_is_the_sum_of_the_prices(one, two):
    def price(usage: TokenUsage) -> int:
        cost = PRICES.cost_pico_usd(usage, provider="openai", model="gpt-4o")
        assert cost is not None
        return cost

    assert price(one) + price(two) == price(one + two)
