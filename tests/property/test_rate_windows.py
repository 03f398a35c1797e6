from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import RateLimitError
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule, RateSubject
from holdfast.testing import FakeClock

rules = st.lists(
    st.builds(
        lambda calls, tokens, window: (calls, tokens, window),
        st.integers(1, 6),
        st.integers(10, 60),
        st.integers(1, 30),
    ),
    min_size=1,
    max_size=3,
)
steps = st.lists(
    st.tuples(st.floats(0, 12, allow_nan=False), st.integers(1, 25), st.integers(0, 40)),
    min_size=1,
    max_size=40,
)


@given(rules, steps, st.sampled_from(["wait", "refuse"]))
@settings(max_examples=100, deadline=None)
def test_no_window_ever_holds_more_than_its_rule(shapes, steps, choice):
    """Whenever calls come: never more than max_calls, nor reserved tokens, in any window."""
    clock = FakeClock(start=0.0)
    made = [
        RateLimitRule(name=str(n), max_calls=calls, max_tokens=tokens, window_seconds=window)
        for n, (calls, tokens, window) in enumerate(shapes)
    ]
    limits = RateLimiter(made, on_exhausted=choice, max_wait_s=1000, clock=clock, sleep=clock.sleep)
    admitted: list[tuple[float, int]] = []

    async def run() -> None:
        for pause, tokens, used in steps:
            clock.advance(pause)
            wanted = min([tokens, *(rule.max_tokens or 0 for rule in made)])
            try:
                held = await limits.acquire(RateSubject(), input_tokens=wanted)
            except RateLimitError:
                assert choice == "refuse"
                continue
            # Settled at once, never above the estimate: the bound then holds for tokens too.
            final = min(used, wanted)
            await limits.settle(held, final)
            admitted.append((clock.monotonic(), final))

    asyncio.run(run())
    for rule in made:
        for start, _ in admitted:
            inside = [
                tokens
                for moment, tokens in admitted
                if start <= moment and moment < start + rule.window_seconds
            ]
            assert len(inside) <= (rule.max_calls or 0)
            assert sum(inside) <= (rule.max_tokens or 0)


@given(rules, steps)
@settings(max_examples=50, deadline=None)
def test_a_refused_call_leaves_every_history_as_it_was(shapes, steps):
    """With all rules at once exactly those calls pass that fit every rule by itself."""
    clock = FakeClock(start=0.0)
    made = [
        RateLimitRule(name=str(n), max_calls=calls, window_seconds=window)
        for n, (calls, _, window) in enumerate(shapes)
    ]
    limits = RateLimiter(made, on_exhausted="refuse", clock=clock)
    admitted: list[float] = []

    async def run() -> None:
        for pause, _, _ in steps:
            clock.advance(pause)
            now = clock.monotonic()
            fits = all(
                sum(moment + rule.window_seconds > now for moment in admitted)
                < (rule.max_calls or 0)
                for rule in made
            )
            try:
                await limits.acquire(RateSubject())
            except RateLimitError:
                assert not fits
                continue
            assert fits
            admitted.append(now)

    asyncio.run(run())
