"""Responses that are made in the background: asked for until they are whole.

The provider makes such an answer without a connection as well. So a lost one loses nothing,
and an answer that is no longer wanted has to be cancelled.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from urllib.parse import quote

import msgspec

from holdfast.clock import Clock
from holdfast.errors import (
    LLMBadRequest,
    LLMError,
    LLMNotFound,
    LLMProtocolError,
    LLMTimeout,
)
from holdfast.providers.model import Delta, ModelRequest, Sleep
from holdfast.providers.retry import is_transient, retry_after_s
from holdfast.providers.wire.codec import QUEUED, Answer, Codec, as_deltas
from holdfast.providers.wire.connection import WHOLE, Route
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.model import ModelCall
from holdfast.providers.wire.responses_stream import ResponsesDecoder

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 5.0
_GROWTH = 1.5
_MOST_FAILURES = 5
"""So many questions in a row may fail before the answer is given up."""

_CANCEL_S = 5.0
"""How long telling the provider that the answer is no longer wanted may take."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=+~-]{0,511}")
"""Ids that can stand in an address without leading elsewhere."""


class BackgroundAnswer(msgspec.Struct, eq=False, kw_only=True):
    """One answer in the background: streamed on while that works, else asked for now and then."""

    transport: HttpTransport
    endpoint: Endpoint
    model: str
    codec: Codec
    clock: Clock
    sleep: Sleep
    request: ModelRequest
    response_id: str
    began: float
    """When it was asked for, in the loop's time: `total_s` counts from there."""
    decoder: ResponsesDecoder | None = None
    """What has heard the beginning as a stream."""
    found: Answer | None = None
    has_failed: bool = False
    """The answer itself, not only the question for it."""

    @property
    def answer(self) -> Answer:
        """The whole answer, after `follow`."""
        assert self.found is not None
        return self.found

    async def follow(self, *, deltas: bool) -> AsyncGenerator[Delta, None]:
        """Yield what is said from here on, until there is an `answer`.

        When a stream cannot be taken up again, the rest of the text comes with the answer only.

        Raises:
            LLMError: it failed, or was not whole in time; then it was cancelled there too.
        """
        wait_s, failures = _FIRST_WAIT_S, 0
        was_heard = self.decoder is not None and self.decoder.begun
        try:
            while self.found is None:
                await self._pause(wait_s)
                wait_s = min(wait_s * _GROWTH, _LONGEST_WAIT_S)
                is_stream = self.decoder is not None
                try:
                    async with aclosing(self._ask(deltas=deltas)) as said:
                        async for delta in said:
                            was_heard = True
                            yield delta
                    failures = 0
                except LLMError as error:
                    failures += 1
                    self._check_failure(error, failures, is_stream=is_stream)
                    wait_s = max(wait_s, retry_after_s(error) or 0.0)
            for delta in as_deltas(self.found) if deltas and not was_heard else ():
                yield delta
        except BaseException:
            await self.cancel()
            raise

    async def cancel(self) -> None:
        """Tell the provider that the answer is no longer wanted; it need not hear it."""
        if self.decoder is not None:
            self.decoder.open_id = ""
        with suppress(LLMError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                call = ModelCall(self.endpoint, self.model, self.codec, self.clock)
                route = self._route("POST", "/cancel")
                try:
                    await call.open(route, b"")
                finally:
                    if call.line is not None:
                        call.line.release()

    async def _ask(self, *, deltas: bool) -> AsyncGenerator[Delta, None]:
        """Ask once: how it goes on where a stream broke, else how it stands."""
        call = ModelCall(self.endpoint, self.model, self.codec, self.clock, began=self.began)
        decoder = self.decoder
        if decoder is None:
            route = self._route("GET", "", self._describe_wishes())
            try:
                async with aclosing(call.read(route, b"", deltas=False)) as said:
                    async for _ in said:
                        pass
            except LLMError:
                self.has_failed = call.is_said
                raise
        else:
            heard = decoder.heard
            call.decoder = decoder
            place = {"stream": "true", "starting_after": str(heard), **self._describe_wishes()}
            try:
                route = self._route("GET", "", place)
                async with aclosing(call.read(route, b"", deltas=deltas)) as said:
                    async for delta in said:
                        yield delta
            except LLMError:
                self.has_failed = not decoder.open_id
                raise
            finally:
                # What stays silent when it is asked to go on will not be asked so again.
                if decoder.heard == heard:
                    self.decoder = None
        if call.whole is not None and call.whole.stop_reason != QUEUED:
            self.found = call.whole

    async def _pause(self, wait_s: float) -> None:
        limit_s = self.endpoint.timeouts.total_s
        left_s = self.began + limit_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise LLMTimeout(
                provider=self.endpoint.provider, model=self.model, phase=WHOLE, limit_s=limit_s
            )
        await self.sleep(min(wait_s, left_s))

    def _check_failure(self, error: LLMError, failures: int, *, is_stream: bool) -> None:
        """Return if it may be asked again."""
        if self.has_failed:
            raise error
        if isinstance(error, LLMNotFound | LLMBadRequest):
            if is_stream:
                self.decoder = None
                return
            # The question was refused, not the request: another API would not know it either.
            detail = f"its answer {self.response_id!r} cannot be asked for: {error}"
            raise LLMProtocolError(provider=self.endpoint.provider, detail=detail) from error
        is_late = isinstance(error, LLMTimeout) and error.context.get("phase") == WHOLE
        if is_late or failures >= _MOST_FAILURES or not is_transient(error):
            raise error

    def _describe_wishes(self) -> Mapping[str, str]:
        if not self.request.reasoning_effort:
            return {}
        return {"include[]": "reasoning.encrypted_content"}

    def _route(self, method: str, step: str, query: Mapping[str, str] | None = None) -> Route:
        if not _ID.fullmatch(self.response_id):
            detail = "the id of an answer in the background cannot stand in an address"
            raise LLMProtocolError(provider=self.endpoint.provider, detail=detail)
        path = f"{self.codec.path}/{quote(self.response_id, safe='')}{step}"
        return Route(
            self.transport, self.endpoint, path, self.codec.headers, method=method, query=query
        )
