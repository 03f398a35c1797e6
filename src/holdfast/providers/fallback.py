"""Ask the next model when one cannot answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.errors import (
    HoldfastError,
    LLMAuthError,
    LLMContextTooLong,
    LLMError,
    LLMQuotaExhausted,
    RateLimitError,
    UsageError,
)
from holdfast.providers.events import EventObserver, ModelFellBack, ignore_event
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelInfo,
    ModelRequest,
    OpenedStream,
    Restarted,
)


def may_fall_back(error: HoldfastError, failed: ModelInfo, other: ModelInfo) -> bool:
    """Say whether `other` may answer where `failed` could not.

    Yes after everything that is about the endpoint: it cannot be reached, is too slow,
    overloaded, rate limited, sends nonsense, has an open circuit, refuses its key, or has
    no credit left for us.
    A request too long goes to a model with a larger window only. No after a refused
    request or a withheld answer: these are about the request, and asking around for
    a caller who lets it pass is not for us to decide. Our own rate rules count only
    when they are about that one model.
    """
    if isinstance(error, LLMContextTooLong):
        return other.context_window > failed.context_window
    if isinstance(error, RateLimitError):
        return error.context.get("scope") == "model"
    if isinstance(error, LLMAuthError | LLMQuotaExhausted):
        return True
    return isinstance(error, LLMError) and error.is_retryable


class FallbackModel:
    """Several models as one: each call goes to the first that can answer it.

    The order is the preference, and every call begins at the top. Each step down is
    reported with its reason. A subscriber to deltas gets `Restarted` first when
    there is half a text to drop; only `Finished` may be acted on, so nothing was done
    twice. When no model is left, the last error is raised. `info` and `count_tokens` are
    those of the first model; `info.fallbacks` names the others.
    """

    def __init__(self, models: Sequence[Model], *, on_event: EventObserver = ignore_event) -> None:
        """Take the models in order of preference."""
        if not models:
            raise UsageError(detail="A fallback model needs at least one model.")
        self.models = tuple(models)
        self._on_event = on_event
        others = tuple(model.info for model in models[1:])
        self._info = msgspec.structs.replace(models[0].info, fallbacks=others)

    @property
    def info(self) -> ModelInfo:
        """What is known about the first model, and about those that may answer for it."""
        return self._info

    def count_tokens(self, request: ModelRequest) -> int:
        """Count as the first model counts."""
        return self.models[0].count_tokens(request)

    async def close(self) -> None:
        """Close all models, also when one of them cannot be closed."""
        failures: list[Exception] = []
        for model in self.models:
            try:
                await model.close()
            except Exception as error:  # noqa: BLE001  # raised below, after the others
                failures.append(error)
        if failures:
            raise failures[0]

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask the models in turn until one answers."""
        place = 0
        is_shown = is_finished = False
        while True:
            model = self.models[place]
            try:
                async with OpenedStream(model, request, deltas) as stream:
                    async for delta in stream:
                        is_shown, is_finished = True, isinstance(delta, Finished)
                        yield delta
                return
            except (LLMError, RateLimitError) as error:
                following = None if is_finished else self._take_next(place, error)
                if following is None:
                    raise
                place, failure = following, error
            info = self.models[place].info
            self._on_event(
                ModelFellBack(
                    from_provider=model.info.provider,
                    from_model=model.info.model,
                    to_provider=info.provider,
                    to_model=info.model,
                    error_code=failure.code,
                    reason=str(failure),
                )
            )
            if is_shown and deltas:
                yield Restarted(failure.code, info.provider, info.model)
            is_shown = False

    def _take_next(self, place: int, error: HoldfastError) -> int | None:
        failed = self.models[place].info
        for index in range(place + 1, len(self.models)):
            if may_fall_back(error, failed, self.models[index].info):
                return index
        return None
