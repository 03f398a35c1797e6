"""Try a model call again when it failed in passing."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    LLMCircuitOpen,
    LLMConnectionError,
    LLMError,
    LLMOverloaded,
    LLMRateLimited,
    LLMTimeout,
    UsageError,
)
from holdfast.providers.events import (
    EventObserver,
    ModelRetried,
    ProviderRateLimited,
    ignore_event,
)
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    Restarted,
    Sleep,
    iterate_layers,
)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long to try.

    At most `attempts` calls are made, and none begins later than `total_s` after the
    first; so it must be longer than a hang takes to be noticed (`Timeouts.first_token_s`).
    The wait before attempt n+1 is `wait_initial_s * wait_base ** (n-1)` plus up
    to `wait_jitter_s`, at most `wait_max_s`; when the provider named a wait itself, at
    least that long.
    """

    attempts: int = 4
    total_s: float = 300.0
    wait_initial_s: float = 0.5
    wait_max_s: float = 20.0
    wait_jitter_s: float = 1.0
    wait_base: float = 2.0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        numbers = (self.total_s, self.wait_initial_s, self.wait_max_s, self.wait_jitter_s)
        if self.attempts < 1 or self.wait_base < 1 or not math.isfinite(self.wait_base):
            raise UsageError(detail="A retry policy needs attempts >= 1 and wait_base >= 1.")
        if any(number < 0 or not math.isfinite(number) for number in numbers):
            raise UsageError(detail="The times of a retry policy are finite and not negative.")


_default = RetryPolicy()


@contextmanager
def use_retry_policy(policy: RetryPolicy) -> Iterator[None]:
    """Let models that were given no policy of their own follow this one inside the block.

    It holds for the whole process: for tests, which should not wait, and for programs that
    want other bounds everywhere.
    """
    global _default
    before, _default = _default, policy
    try:
        yield
    finally:
        _default = before


def is_transient(error: LLMError) -> bool:
    """Say whether the same call may succeed soon.

    An open circuit is not waited for: failing fast is what it is there for, and a
    fallback model may be able to answer at once.
    """
    return error.is_retryable and not isinstance(error, LLMCircuitOpen)


def is_outage(error: LLMError) -> bool:
    """Say whether nobody answers at present: it says nothing about the work that was asked for."""
    return isinstance(
        error,
        LLMConnectionError | LLMTimeout | LLMOverloaded | LLMRateLimited | LLMCircuitOpen,
    )


def retry_after_s(error: LLMError) -> float | None:
    """Return the wait that the provider asked for, if it asked for one that can be meant."""
    value = error.context.get("retry_after_s")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


class RetryingModel(ModelWrapper):
    """A model whose transient failures are retried, within the bounds of a policy.

    Only `Finished` may be acted on, and it comes last: until then no tool call was
    executed and nothing was kept, so a stream that broke half-way can begin anew.
    A subscriber to deltas gets `Restarted` first when there is half a text to drop.
    After `Finished` nothing is retried. Errors that are no passing `LLMError` (our own
    rate rules, a cancelled task, bugs) pass through untouched.

    Without a `policy` of its own the one of `use_retry_policy` holds, or the default.

    Raises:
        UsageError: the model inside already retries; two layers would multiply.
    """

    def __init__(
        self,
        inner: Model,
        *,
        policy: RetryPolicy | None = None,
        on_event: EventObserver = ignore_event,
        clock: Clock = SYSTEM,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Wrap a model that does not retry by itself."""
        if any(isinstance(layer, RetryingModel) for layer in iterate_layers(inner)):
            raise UsageError(
                detail="This model already retries; a second layer would multiply the attempts."
            )
        super().__init__(inner)
        self._own_policy = policy
        self._on_event = on_event
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    @property
    def policy(self) -> RetryPolicy:
        """The bounds that hold now."""
        return self._own_policy if self._own_policy is not None else _default

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, and ask again after a transient failure; see the class for what is promised."""
        begun = self._clock.monotonic()
        is_shown = is_finished = False
        attempt = 1
        while True:
            try:
                async with OpenedStream(self.inner, request, deltas) as opened:
                    async for delta in opened:
                        is_shown, is_finished = True, isinstance(delta, Finished)
                        yield delta
                return
            except LLMError as error:
                wait_s = None if is_finished else self._find_wait(error, attempt, begun)
                if wait_s is None:
                    raise
                attempt += 1
                self._report(attempt, wait_s, error)
                code = error.code
            if wait_s > 0:
                await self._sleep(wait_s)
            if is_shown and deltas:
                yield Restarted(code, self.inner.info.provider, self.inner.info.model)
            is_shown = False

    def _report(self, attempt: int, wait_s: float, failure: LLMError) -> None:
        info = self.inner.info
        if isinstance(failure, LLMRateLimited):
            self._on_event(
                ProviderRateLimited(provider=info.provider, model=info.model, wait_s=wait_s)
            )
        self._on_event(
            ModelRetried(
                provider=info.provider,
                model=info.model,
                attempt=attempt,
                wait_s=wait_s,
                error_code=failure.code,
                reason=str(failure),
            )
        )

    def _find_wait(self, error: LLMError, attempt: int, begun: float) -> float | None:
        """Return how long to wait for another attempt, None if there is to be none."""
        policy = self.policy
        if attempt >= policy.attempts or not is_transient(error):
            return None
        try:
            backoff_s = policy.wait_initial_s * policy.wait_base ** (attempt - 1)
        except OverflowError:
            backoff_s = policy.wait_max_s
        wait_s = min(backoff_s + self._jitter(0.0, policy.wait_jitter_s), policy.wait_max_s)
        wait_s = max(wait_s, retry_after_s(error) or 0.0)
        if self._clock.monotonic() - begun + wait_s > policy.total_s:
            return None
        return wait_s
