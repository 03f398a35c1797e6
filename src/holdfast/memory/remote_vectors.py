"""Tier 2: vectors from a provider, over the API that OpenAI made common (`/embeddings`).

Whatever fails there, no memory is lost: those that wait stay in the storage and are tried
again, and searches go by words meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    EmbeddingFailed,
    LLMConnectionError,
    LLMError,
    LLMTimeout,
    UsageError,
)
from holdfast.memory.space import VectorSpace
from holdfast.providers import (
    Endpoint,
    HttpTransport,
    estimate_tokens,
    find_failure_in_answer,
    is_transient,
    make_refusal,
    retry_after_s,
    strip_address,
)

if TYPE_CHECKING:
    from holdfast.providers import RateLimiter

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "nomic-embed-text": 768,
    "nomic-embed-text-v1.5": 768,
    "mxbai-embed-large": 1024,
    "all-minilm": 384,
    "bge-m3": 1024,
}
_TEXTS = 128
_CHARACTERS = 200_000
_TEXT_CHARACTERS = 8_000
"""Any script fits into the 8,191 tokens that OpenAI takes."""
_LONGEST_WAIT_S = 10.0
_CONNECT_S = 10.0
_TOTAL_S = 60.0


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = -1


class _EmbeddingUsage(msgspec.Struct):
    total_tokens: int = 0


class _EmbeddingAnswer(msgspec.Struct):
    data: list[_Vector]
    usage: _EmbeddingUsage | None = None


class RemoteEmbedder:
    """Asks an OpenAI-compatible server for vectors, in batches.

    Passing failures are tried again a few times; keys never reach a message or a log.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        dimension: int | None = None,
        limiter: RateLimiter | None = None,
        attempts: int = 3,
        clock: Clock = SYSTEM,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Ask this endpoint; a `dimension` other than the model's own is asked for.

        Raises:
            UsageError: it is not known how long the model's vectors are.
        """
        own = KNOWN_DIMENSIONS.get(model.removesuffix(":latest").rpartition("/")[2])
        if dimension is None and own is None:
            raise UsageError(
                detail=f"How long the vectors of {model!r} are is not known; set memory.dimensions."
            )
        self.dimension = dimension or own or 0
        self.model_id = f"{endpoint.provider}:{model}/{self.dimension}"
        self._asked_for = dimension if dimension not in (None, own) and own is not None else None
        self._endpoint = endpoint
        self._model = model
        self._limiter = limiter
        self._attempts = attempts
        self._clock = clock
        self._sleep = sleep
        self._transport = HttpTransport()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; what is beyond 8,000 characters does not count.

        Raises:
            LLMError: the server refused or could not be reached, also after some attempts.
            EmbeddingFailed: its answer does not fit the question.
            RateLimitError: a rule of ours does not allow it now.
        """
        vectors: list[list[float]] = []
        most_tokens = self._compute_most_tokens()
        for batch in _split_batches(
            [text[:_TEXT_CHARACTERS] or " " for text in texts], most_tokens
        ):
            vectors += await self._persist(batch)
        return vectors

    @property
    def space(self) -> VectorSpace:
        """How this embedder is made again: address and model, never a key."""
        from holdfast.providers import looks_like_secret  # noqa: PLC0415 - loads pydantic

        address = strip_address(self._endpoint.base_url)
        if looks_like_secret(urlsplit(address).path):
            address = ""
        return VectorSpace(
            model_id=self.model_id,
            dimension=self.dimension,
            provider=self._endpoint.provider,
            base_url=address,
            model=self._model,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _persist(self, texts: list[str]) -> list[list[float]]:
        attempt = 1
        while True:
            try:
                return await self._embed_within_rules(texts)
            except LLMError as error:
                wait_s = retry_after_s(error)
                if wait_s is None:
                    wait_s = 0.5 * 2.0 ** (attempt - 1)
                is_over = attempt >= self._attempts or wait_s > _LONGEST_WAIT_S
                if is_over or not is_transient(error):
                    raise
            await self._sleep(wait_s)
            attempt += 1

    def _compute_most_tokens(self) -> int | None:
        """The most that a rule of ours ever lets through at once."""
        rules = self._limiter.rules if self._limiter is not None else ()
        return min((one.max_tokens for one in rules if one.max_tokens is not None), default=None)

    async def _embed_within_rules(self, texts: list[str]) -> list[list[float]]:
        if self._limiter is None:
            return self._check((await self._ask(texts)).data, len(texts))
        from holdfast.providers import RateSubject  # noqa: PLC0415 - 0.1 s

        subject = RateSubject(model=f"{self._endpoint.provider}:{self._model}")
        tokens = sum(estimate_tokens(text) for text in texts)
        held = await self._limiter.acquire(subject, input_tokens=tokens, output_tokens=0)
        answer = await self._ask(texts)
        if answer.usage is not None:
            await self._limiter.settle(held, answer.usage.total_tokens)
        return self._check(answer.data, len(texts))

    async def _ask(self, texts: list[str]) -> _EmbeddingAnswer:
        """Send one request and return its answer."""
        endpoint = self._endpoint
        question: dict[str, object] = {
            "model": self._model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._asked_for is not None:
            question["dimensions"] = self._asked_for
        try:
            async with self._transport.session().post(
                endpoint.url("/embeddings"),
                data=msgspec.json.encode(question),
                headers={
                    "Content-Type": "application/json",
                    **endpoint.make_auth_headers(),
                    **endpoint.headers,
                },
                proxy=self._transport.proxy(endpoint),
                ssl=self._transport.tls(endpoint),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=_TOTAL_S, connect=_CONNECT_S),
            ) as response:
                body = await self._read_body(response)
                status, headers = response.status, response.headers
        except TimeoutError as error:
            raise LLMTimeout(
                provider=endpoint.provider, model=self._model, phase="embedding", limit_s=_TOTAL_S
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            detail = endpoint.scrub(type(error).__name__)
            raise LLMConnectionError(
                provider=endpoint.provider, url=endpoint.shown_url, detail=detail
            ) from None
        if status != 200:
            raise make_refusal(
                endpoint, self._model, status=status, headers=headers, body=body, clock=self._clock
            )
        try:
            return msgspec.json.decode(body, type=_EmbeddingAnswer)
        except (msgspec.MsgspecError, RecursionError):
            raise find_failure_in_answer(endpoint, self._model, body) from None

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._endpoint.max_response_bytes:
                raise EmbeddingFailed(model=self.model_id, detail="the answer has no end")
            chunks.append(chunk)
        return b"".join(chunks)

    def _check(self, found: list[_Vector], count: int) -> list[list[float]]:
        """Return the vectors in the order of the texts, whatever order they came in."""
        places = [one.index for one in found]
        if set(places) == {-1}:
            places = list(range(len(found)))
        if sorted(places) != list(range(count)):
            detail = f"{len(found)} vectors for {count} texts"
            raise EmbeddingFailed(model=self.model_id, detail=detail)
        by_place = dict(zip(places, found, strict=True))
        return [by_place[place].embedding for place in range(count)]


def _split_batches(texts: Sequence[str], most_tokens: int | None) -> Iterator[list[str]]:
    batch: list[str] = []
    size = tokens = 0
    for text in texts:
        more = estimate_tokens(text) if most_tokens is not None else 0
        is_full = len(batch) >= _TEXTS or size + len(text) > _CHARACTERS
        if batch and (is_full or tokens + more > (most_tokens or 0)):
            yield batch
            batch, size, tokens = [], 0, 0
        batch.append(text)
        size += len(text)
        tokens += more
    if batch:
        yield batch


__all__ = ["KNOWN_DIMENSIONS", "RemoteEmbedder"]
