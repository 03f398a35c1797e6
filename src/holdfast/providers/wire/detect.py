"""Responses or chat: found out by the first real call, then remembered."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMError, LLMNotFound, LLMProtocolError
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire.endpoint import Endpoint, OpenAIApi
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.model import WireModel


class ApiMemory(Protocol):
    """Which API an address offers for a model; the address holds no secret."""

    def get(self, base_url: str, model: str) -> OpenAIApi | None:
        """Return what was found out, or None."""
        ...

    def set(self, base_url: str, model: str, api: OpenAIApi) -> None:
        """Remember what was found out."""
        ...


class RememberedApis:
    """What was found out in this process."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[tuple[str, str], OpenAIApi] = {}

    def get(self, base_url: str, model: str) -> OpenAIApi | None:
        """Return what was found out, or None."""
        return self._known.get((base_url, model))

    def set(self, base_url: str, model: str, api: OpenAIApi) -> None:
        """Remember what was found out."""
        self._known[base_url, model] = api


class ResponsesOrChat:
    """An OpenAI-compatible model that is asked through the better API it has.

    The first call goes to `/responses`. If the server does not know that path or that
    model there, the same request goes to `/chat/completions`, so no call is lost.
    What worked is remembered by address and model; `force_chat` settles it beforehand.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        transport: HttpTransport,
        *,
        memory: ApiMemory,
        force_chat: bool = False,
        info: ModelInfo | None = None,
        clock: Clock = SYSTEM,
        counter: TokenCounter | None = None,
    ) -> None:
        """Find out on first use; `endpoint.api` does not matter."""
        apis: tuple[OpenAIApi, ...] = ("chat", "responses")
        self._models = {
            api: WireModel(
                msgspec.structs.replace(endpoint, api=api),
                model,
                transport,
                info=info,
                clock=clock,
                counter=counter,
            )
            for api in apis
        }
        self._place = (endpoint.shown_url, model)
        self._memory = memory
        self._force_chat = force_chat

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return self._models["chat"].info

    @property
    def api(self) -> OpenAIApi | None:
        """Which API is used; None as long as it is unknown."""
        return "chat" if self._force_chat else self._memory.get(*self._place)

    def choose_api(self, api: OpenAIApi) -> WireModel:
        """Return the model as it is asked through one of the APIs, whatever was found out."""
        return self._models[api]

    def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens of a request."""
        return self._models["chat"].count_tokens(request)

    async def close(self) -> None:
        """Do nothing: connections belong to the transport."""

    def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncGenerator[Delta, None]:
        """Ask, and yield the answer while it arrives; the last item is `Finished`.

        Raises:
            LLMError: the call failed; nothing of a half answer may be used.
        """
        # Stop sequences exist in the chat API only.
        if request.stop or self.api == "chat":
            return self._models["chat"].stream(request, deltas=deltas)
        return self._choose_either(request, deltas)

    async def _choose_either(
        self, request: ModelRequest, deltas: bool
    ) -> AsyncGenerator[Delta, None]:
        is_known = self.api is not None
        is_handed = False
        try:
            async with aclosing(self._models["responses"].stream(request, deltas=deltas)) as found:
                async for delta in found:
                    if not is_known and isinstance(delta, Finished):
                        self._memory.set(*self._place, "responses")
                    is_handed = True
                    yield delta
            return
        except LLMError as error:
            if is_handed or not _lacks_responses(error):
                raise
        async with aclosing(self._models["chat"].stream(request, deltas=deltas)) as found:
            async for delta in found:
                if isinstance(delta, Finished):
                    self._memory.set(*self._place, "chat")
                yield delta


def _lacks_responses(error: LLMError) -> bool:
    if isinstance(error, LLMNotFound):
        return True
    # A web server with one page for every unknown path.
    return isinstance(error, LLMProtocolError) and "content_type" in error.context
