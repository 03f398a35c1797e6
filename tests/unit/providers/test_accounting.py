from __future__ import annotations

import pytest

from holdfast.messages import Message, TextPart, TokenUsage
from holdfast.providers.accounting import Accountant, Charge, UsageLedger, UsageTotals
from holdfast.providers.model import ModelRequest
from holdfast.providers.prices import PriceList
from holdfast.testing import FakeClock

USAGE = TokenUsage(input=1_000_000, output=100_000, reasoning=100_000, cache_read=1_000_000)


@pytest.fixture(scope="module")
def prices() -> PriceList:
    return PriceList(clock=FakeClock())


def answer(**fields) -> Message:
    given = {
        "id": "msg_1",
        "session_id": "ses_1",
        "role": "assistant",
        "provider": "openai",
        "model": "gpt-4o",
        "usage": USAGE,
        "run_id": "run_1",
        "agent": "ann",
    }
    return Message(**(given | fields))


def test_a_known_model_has_its_price_with_cached_and_reasoning_tokens(prices):
    cost = prices.cost_usd(USAGE, provider="openai", model="gpt-4o")
    assert cost == pytest.approx(2.50 + 0.2 * 10 + 1.25)


def test_cache_writes_have_a_price_of_their_own(prices):
    usage = TokenUsage(cache_write=100_000)
    assert prices.cost_usd(usage, provider="anthropic", model="claude-sonnet-4-5") == 0.375


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model-9000"), ("my-own-server", "gpt-4o"), ("", "")],
)
def test_an_unknown_model_has_no_price_rather_than_none_to_pay(prices, provider, model):
    assert prices.cost_usd(USAGE, provider=provider, model=model) is None


def test_a_local_model_costs_nothing_by_its_provider_or_by_the_callers_word(prices):
    assert prices.cost_usd(USAGE, provider="ollama", model="qwen3") == 0
    assert prices.cost_usd(USAGE, provider="my-own-server", model="x", is_local=True) == 0
    assert prices.cost_usd(USAGE, provider="ollama", model="qwen3", is_local=False) is None


def test_a_provider_with_a_name_of_its_own_is_found_by_its_address(prices):
    cost = prices.cost_usd(
        USAGE, provider="work", model="gpt-4o", api_url="https://api.openai.com/v1"
    )
    assert cost == prices.cost_usd(USAGE, provider="openai", model="gpt-4o")
    assert prices.cost_usd(USAGE, provider="gemini", model="gemini-2.5-flash")


def test_prices_that_depend_on_the_size_of_a_call_are_asked_each_time(prices):
    small = prices.cost_usd(TokenUsage(input=1000), provider="gemini", model="gemini-2.5-pro")
    large = prices.cost_usd(TokenUsage(input=300_000), provider="gemini", model="gemini-2.5-pro")
    assert small is not None
    assert large is not None
    assert large > 300 * small


def test_an_answer_counts_for_its_run_agent_session_and_tenant(prices):
    books = Accountant(prices=prices)
    charge = books.record(answer(), tenant="acme")
    assert charge.cost_usd == pytest.approx(5.75)
    for scope, value in (
        ("all", ""),
        ("run", "run_1"),
        ("agent", "ann"),
        ("session", "ses_1"),
        ("tenant", "acme"),
    ):
        totals = books.ledger.of(scope, value)
        assert (totals.calls, totals.usage, totals.cost_usd) == (1, USAGE, charge.cost_usd)
    assert books.ledger.of("run", "run_2") == UsageTotals()


def test_an_answer_that_comes_twice_is_counted_once(prices):
    books = Accountant(prices=prices)
    assert books.record(answer()) == books.record(answer())
    assert books.ledger.of("all").calls == 1
    books.record(answer(id="msg_2"))
    assert books.ledger.of("all").usage == USAGE + USAGE


def test_one_unknown_price_makes_the_total_unknown_but_not_the_known_part(prices):
    books = Accountant(prices=prices)
    books.record(answer())
    books.record(answer(id="msg_2", model="no-such-model-9000"))
    totals = books.ledger.of("session", "ses_1")
    assert totals.cost_usd is None
    assert totals.known_cost_usd == pytest.approx(5.75)
    assert totals.unpriced_calls == 1


def test_usage_that_was_not_reported_is_counted_and_marked(prices):
    books = Accountant(prices=prices)
    request = ModelRequest(messages=(answer(role="user", parts=(TextPart(text="hi"),)),))
    message = answer(usage=None, parts=(TextPart(text="tiktoken is great!"),))
    charge = books.charge(message, request=request)
    assert charge.is_estimate
    assert charge.usage.output == 6
    assert charge.cost_usd is not None
    unknown = books.record(message)
    assert unknown == Charge(usage=TokenUsage(), is_estimate=True)
    assert books.ledger.of("all").estimated_calls == 1


def test_a_forgotten_session_leaves_the_totals_of_its_agent(prices):
    books = Accountant(prices=prices)
    books.record(answer())
    books.ledger.forget_session("ses_1")
    assert books.ledger.of("session", "ses_1").calls == 0
    assert books.ledger.of("agent", "ann").calls == 1


def test_a_ledger_says_whether_a_message_was_new():
    ledger = UsageLedger()
    charge = Charge(usage=USAGE)
    assert ledger.add(answer(), charge)
    assert not ledger.add(answer(), charge)
