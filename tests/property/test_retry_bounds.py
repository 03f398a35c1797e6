from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LLMError, LLMOverloaded, LLMRateLimited
from holdfast.messages import Message, TextPart
from holdfast.providers.events import ModelRetried, ProviderEvent
from holdfast.providers.model import ModelRequest
from holdfast.providers.retry import RetryingModel, RetryPolicy
from holdfast.testing import Answer, FakeClock, FunctionModel

REQUEST = ModelRequest(
    messages=(Message(id="m", session_id="s", role="user", parts=(TextPart(text="hi"),)),)
)
seconds = st.floats(min_value=0, max_value=300)
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 8),
    total_s=seconds,
    wait_initial_s=st.floats(0, 5),
    wait_max_s=st.floats(0, 60),
    wait_jitter_s=st.floats(0, 5),
    wait_base=st.floats(1, 4),
)
failures = st.lists(
    st.tuples(seconds, st.one_of(st.none(), st.floats(-5, 400))), min_size=0, max_size=12
)


@given(policies, failures, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_attempts_and_time_stay_within_the_policy(policy, failures, random):
    """Whatever fails however slowly: bounded attempts, bounded start, waits obeyed."""
    clock = FakeClock()
    begun = clock.monotonic()
    starts: list[float] = []
    ends: list[float] = []
    events: list[ProviderEvent] = []

    def answer(request: ModelRequest) -> Answer:
        starts.append(clock.monotonic())
        number = len(starts) - 1
        if number >= len(failures):
            return "fine"
        took, asked = failures[number]
        clock.advance(took)
        ends.append(clock.monotonic())
        if asked is None:
            return LLMOverloaded(provider="p", detail="busy")
        return LLMRateLimited(provider="p", detail="slow", retry_after_s=asked)

    model = RetryingModel(
        FunctionModel(answer),
        policy=policy,
        on_event=events.append,
        clock=clock,
        sleep=clock.sleep,
        jitter=random.uniform,
    )

    async def run() -> bool:
        try:
            async for _ in model.stream(REQUEST):
                continue
        except LLMError:
            return False
        return True

    is_fine = asyncio.run(run())
    assert 1 <= len(starts) <= policy.attempts
    assert all(start - begun <= policy.total_s + 1e-6 for start in starts[1:])
    for number, start in enumerate(starts[1:]):
        asked = failures[number][1]
        assert start - ends[number] >= (asked or 0) - 1e-6
        assert start - ends[number] <= max(policy.wait_max_s, asked or 0) + 1e-6
    assert sum(isinstance(event, ModelRetried) for event in events) == len(starts) - 1
    assert is_fine == (len(starts) > len(failures))
