"""Any model that LiteLLM knows, behind our `Model` protocol; needs the extra `litellm`.

LiteLLM speaks OpenAI's chat format on its Python side, so requests and answers go
through our own chat codec, and LiteLLM only carries them.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from holdfast import clock
from holdfast.canonical import JsonObject
from holdfast.errors import (
    HoldfastError,
    LLMAuthError,
    LLMBadRequest,
    LLMConnectionError,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMError,
    LLMNotFound,
    LLMOverloaded,
    LLMProtocolError,
    LLMRateLimited,
    LLMTimeout,
    MissingExtra,
)
from holdfast.ids import make_id
from holdfast.messages import Message
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire import Endpoint, KeySource, Secret, Timeouts
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import Answer, drop_cut_call
from holdfast.providers.wire.failures import retry_after_s

_BY_NAME: dict[str, type[LLMError]] = {
    "AuthenticationError": LLMAuthError,
    "PermissionDeniedError": LLMAuthError,
    "RateLimitError": LLMRateLimited,
    "ContextWindowExceededError": LLMContextTooLong,
    "ContentPolicyViolationError": LLMContentFiltered,
    "Timeout": LLMTimeout,
    "APIConnectionError": LLMConnectionError,
    "ServiceUnavailableError": LLMOverloaded,
    "BadGatewayError": LLMOverloaded,
    "InternalServerError": LLMOverloaded,
    "NotFoundError": LLMNotFound,
    "BadRequestError": LLMBadRequest,
    "UnsupportedParamsError": LLMBadRequest,
    "JSONSchemaValidationError": LLMProtocolError,
}


def find_litellm() -> None:
    """Return if LiteLLM is installed; it is not imported, which would take seconds.

    Raises:
        MissingExtra: it is not installed.
    """
    if importlib.util.find_spec("litellm") is None:
        raise MissingExtra(what="LiteLLM", package="litellm", extra="litellm")


def require_litellm() -> Any:  # noqa: ANN401 - a module that is only carried
    """Return the `litellm` module, told not to fetch anything by itself.

    Raises:
        MissingExtra: it is not installed.
    """
    # On import LiteLLM downloads its price list unless this says no; ours is offline.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # noqa: TID251 - written, not read
    try:
        module: Any = importlib.import_module("litellm")
    except ImportError as error:
        raise MissingExtra(what="LiteLLM", package="litellm", extra="litellm") from error
    module.telemetry = False
    module.suppress_debug_info = True
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    return module


class LiteLLMModel:
    """One model behind `litellm.acompletion`; LiteLLM's own retries are off.

    Keys come from the variables that LiteLLM knows, or from `key`.
    """

    def __init__(
        self,
        model: str,
        *,
        key: KeySource | None = None,
        timeouts: Timeouts | None = None,
        options: JsonObject | None = None,
        time: clock.Clock = clock.SYSTEM,
    ) -> None:
        """Name the model as LiteLLM does, for example `bedrock/anthropic.claude-…`.

        `options` are further arguments of `acompletion`.

        Raises:
            MissingExtra: the extra `litellm` is not installed.
        """
        require_litellm()
        self._model = model
        self._key = key or Secret()
        self._timeouts = timeouts or Timeouts()
        self._options = dict(options or {})
        self._clock = time
        self._info = ModelInfo(provider="litellm", model=model)
        # The address is never used; it only gives the codec and the scrubber a place.
        self._endpoint = Endpoint(
            provider="litellm", base_url="http://127.0.0.1:1/v1", key=self._key
        )
        self._codec = ChatCodec(self._endpoint, self._info)
        self._counter = TokenCounter("litellm", model)

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return self._info

    def count_tokens(self, request: ModelRequest) -> int:
        """Estimate; the vocabulary depends on the vendor."""
        return self._counter.request(request).tokens

    async def close(self) -> None:
        """Nothing of ours is open."""

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask through LiteLLM, and yield the answer while it arrives."""
        module = require_litellm()
        arguments = self._format_arguments(request, deltas)
        decoder = self._codec.decoder()
        try:
            response = await module.acompletion(**arguments)
            if not deltas:
                answer = self._codec.decode(response.model_dump_json().encode())
            else:
                out: list[Delta] = []
                async for chunk in response:
                    decoder.feed([chunk.model_dump_json(exclude_none=True).encode()], out)
                    for delta in out:
                        yield delta
                    out.clear()
                answer = decoder.finish()
        except LLMError:
            raise
        except Exception as error:  # noqa: BLE001 - LiteLLM lets vendors' exceptions through
            raise self._translate(error) from None
        yield Finished(self._parse_message(answer), answer.response_id)

    def _format_arguments(self, request: ModelRequest, stream: bool) -> JsonObject:
        arguments: JsonObject = msgspec.json.decode(self._codec.encode(request, stream=stream))
        if "max_completion_tokens" in arguments:
            arguments["max_tokens"] = arguments.pop("max_completion_tokens")
        key = self._key.reveal()
        if key:
            arguments["api_key"] = key
        return {
            **arguments,
            "model": self._model,
            "timeout": self._timeouts.total_s,
            "num_retries": 0,
            "max_retries": 0,
            **self._options,
        }

    def _parse_message(self, answer: Answer) -> Message:
        return Message(
            id=make_id("msg"),
            session_id="",
            role="assistant",
            parts=drop_cut_call(answer),
            time_created=self._clock.now(),
            provider="litellm",
            model=self._model,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
        )

    def _translate(self, error: Exception) -> HoldfastError:
        """Return our error for one of LiteLLM's; no chain, as theirs holds the request."""
        lacking = re.search(r"No module named '([\w.]+)'", str(error))
        if lacking is not None:
            return MissingExtra(what="LiteLLM", package=lacking[1], extra="litellm")
        names = [cls.__name__ for cls in type(error).__mro__]
        cls = next((_BY_NAME[name] for name in names if name in _BY_NAME), LLMError)
        detail = self._endpoint.scrub(str(error))[:500]
        context: dict[str, object] = {
            "provider": "litellm",
            "model": self._model,
            "detail": detail,
            "phase": "the whole answer",
            "limit_s": self._timeouts.total_s,
            "key_env": "the variable of the vendor",
        }
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            context["status"] = status
        headers = getattr(error, "litellm_response_headers", None)
        wait_s = retry_after_s(headers, self._clock) if isinstance(headers, Mapping) else None
        if wait_s is not None:
            context["retry_after_s"] = wait_s
        return cls(**context)
