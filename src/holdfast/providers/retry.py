"""Try a model call again when it failed in passing."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

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

# stamina takes 30 ms to load; it is, with the first call that has to be tried again.
if TYPE_CHECKING:
    import stamina.instrumentation


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


_POLICY = RetryPolicy()


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

    stamina counts the attempts, waits, and can be switched off or into its test mode as
    always. With a `sleep` of one's own the waiting is done there instead.

    Raises:
        UsageError: the model inside already retries; two layers would multiply.
    """

    def __init__(
        self,
        inner: Model,
        *,
        policy: RetryPolicy = _POLICY,
        on_event: EventObserver = ignore_event,
        clock: Clock = SYSTEM,
        sleep: Sleep | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Wrap a model that does not retry by itself."""
        if any(isinstance(layer, RetryingModel) for layer in iterate_layers(inner)):
            raise UsageError(
                detail="This model already retries; a second layer would multiply the attempts."
            )
        super().__init__(inner)
        self.policy = policy
        self._on_event = on_event
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, and ask again after a transient failure; see the class for what is promised."""
        begun = self._clock.monotonic()
        is_shown = is_finished = False
        # The first attempt goes without stamina: nearly all calls need no machinery.
        try:
            async with OpenedStream(self.inner, request, deltas) as first:
                async for delta in first:
                    is_shown, is_finished = True, isinstance(delta, Finished)
                    yield delta
            return
        except LLMError as error:
            if is_finished or not is_transient(error):
                raise
            failure = error
        import stamina  # noqa: PLC0415 - see above

        _keep_stamina_quiet()
        pace = _Pace(self, begun)
        async for attempt in stamina.retry_context(
            on=pace.decide,
            attempts=self.policy.attempts,
            timeout=None,
            wait_initial=self.policy.wait_initial_s,
            wait_max=self.policy.wait_max_s,
            wait_jitter=0.0,
            wait_exp_base=self.policy.wait_base,
        ):
            pace.number, pace.backoff_s = attempt.num, attempt.next_wait
            if attempt.num > 1:
                if self._sleep is not None and pace.wait_s > 0:
                    await self._sleep(pace.wait_s)
                if is_shown and deltas:
                    info = self.inner.info
                    yield Restarted(failure.code, info.provider, info.model)
                is_shown = False
                try:
                    async with OpenedStream(self.inner, request, deltas) as again:
                        async for delta in again:
                            is_shown, is_finished = True, isinstance(delta, Finished)
                            yield delta
                    return
                except LLMError as error:
                    if is_finished:
                        raise
                    failure = error
            # stamina is told of failures only; a yield inside its block would hand it
            # the closing of this generator and cancellations too.
            with attempt:
                raise failure

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

    def _wait_s(self, error: LLMError, backoff_s: float, begun: float) -> float | None:
        """Return how long to wait for another attempt, or nothing if there is no time for it."""
        policy = self.policy
        wait_s = min(backoff_s + self._jitter(0.0, policy.wait_jitter_s), policy.wait_max_s)
        wait_s = max(wait_s, retry_after_s(error) or 0.0)
        if self._clock.monotonic() - begun + wait_s > policy.total_s:
            return None
        return wait_s


def _keep_stamina_quiet() -> None:
    """Let stamina's own hooks log the retries of others; ours are events, not lines on stdout.

    Hooks that the application has set hear of all.
    """
    import stamina.instrumentation  # noqa: PLC0415 - see above

    hooks = stamina.instrumentation.get_on_retry_hooks()
    if any(_is_staminas(hook) for hook in hooks):
        stamina.instrumentation.set_on_retry_hooks(
            [_ForOthers(hook) if _is_staminas(hook) else hook for hook in hooks]
        )


def _is_staminas(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("stamina")


class _ForOthers:
    """A hook of stamina's that does not hear of our retries."""

    def __init__(self, hook: stamina.instrumentation.RetryHook) -> None:
        self._hook = hook

    def __call__(
        self, details: stamina.instrumentation.RetryDetails
    ) -> contextlib.AbstractContextManager[None] | None:
        return None if isinstance(details.caused_by, LLMError) else self._hook(details)


class _Pace:
    """Tells stamina whether there is another attempt, and how long to wait for it."""

    def __init__(self, model: RetryingModel, begun: float) -> None:
        self._model = model
        self._begun = begun
        self.number = 1
        self.backoff_s = 0.0
        self.wait_s = 0.0

    def decide(self, error: Exception) -> bool | float:
        if not isinstance(error, LLMError) or not is_transient(error):
            return False
        import stamina  # noqa: PLC0415 - see above

        # In its test mode stamina itself counts and never waits.
        is_last = not stamina.is_testing() and self.number >= self._model.policy.attempts
        wait_s = self._model._wait_s(error, self.backoff_s, self._begun)
        if is_last or wait_s is None:
            return False
        self.wait_s = 0.0 if stamina.is_testing() else wait_s
        self._model._report(self.number + 1, self.wait_s, error)
        # The caller that brought a sleep waits there; stamina then has nothing to wait for.
        return self.wait_s if self._model._sleep is None else 0.0
