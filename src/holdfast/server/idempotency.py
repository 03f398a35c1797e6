"""The header Idempotency-Key: which key a request has, and what is answered again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import HoldfastError, RequestInDoubt, RequestInvalid, RequestUnderWay
from holdfast.operations import OWNER, REPEATABLE, Caller
from holdfast.runtime import KeptKey, Runtime
from holdfast.server.endpoints import HttpEndpoint
from holdfast.server.http import ServerResponse
from holdfast.server.problems import problem_response, status_of

Perform: TypeAlias = Callable[[dict[str, Any], bool], Awaitable[ServerResponse]]
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


_SETTLED = frozenset({400, 404, 409, 422})
"""Refusals that would be the same again, and are kept as answers; others may change by then."""


class KeyedRequest:
    """A request that came with a key."""

    def __init__(
        self, runtime: Runtime, caller: Caller, endpoint: HttpEndpoint, key: str, request_id: str
    ) -> None:
        """Take what it asks, and for whom.

        Raises:
            RequestInvalid: it is no key.
        """
        self.runtime = runtime
        self.caller = caller
        self.endpoint = endpoint
        self.name = key_of(caller, endpoint.name, key)
        self.request_id = request_id


class Idempotency:
    """Looks keys up before an operation is performed, and keeps the answer after it."""

    def __init__(self) -> None:
        """Know of no request."""
        self._under_way: set[str] = set()

    async def perform(
        self, asked: KeyedRequest, values: dict[str, Any], perform: Perform
    ) -> ServerResponse:
        """Return the answer of a request under a key: performed now, or as it was given before.

        `perform` does it, given the arguments and whether it may have been done before.

        Raises:
            RequestInvalid: it is no key.
            IdempotencyKeyReused: it was used for another request.
            RequestUnderWay: the first request with it is being answered.
            RequestInDoubt: a crash came between, and it must not be done twice.
        """
        known, is_first = await self._accept(asked, values)
        if known.run_id:
            return await perform(values | {"run_id": known.run_id}, False)
        if known.status:
            headers = (("idempotency-replayed", "true"),)
            return ServerResponse(known.status, known.body.encode(), known.media_type, headers)
        name, endpoint = asked.name, asked.endpoint
        if name in self._under_way:
            raise RequestUnderWay
        if not is_first and endpoint.name not in REPEATABLE:
            raise RequestInDoubt
        self._under_way.add(name)
        try:
            response = await _answer(asked, perform, values, is_again=not is_first)
            if not endpoint.route.is_secret:
                await asked.runtime.idempotency.keep_answer(
                    name,
                    status=response.status,
                    body=response.body,
                    media_type=response.media_type,
                    owner=asked.caller.subject,
                )
        finally:
            self._under_way.discard(name)
        return response

    async def find_run(self, asked: KeyedRequest, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a stream under a key: with the id of the run that it starts.

        Raises:
            RequestInvalid: it is no key, or the stream starts no run.
            IdempotencyKeyReused: it was used for another request.
        """
        known, _ = await self._accept(asked, values)
        return values | {"run_id": known.run_id} if known.run_id else values

    async def _accept(self, asked: KeyedRequest, values: dict[str, Any]) -> tuple[KeptKey, bool]:
        runtime, caller, endpoint = asked.runtime, asked.caller, asked.endpoint
        if caller is not OWNER:
            await endpoint.operation.admit(runtime, caller, (), values)
        starts_run = "run_id" in endpoint.fields and "run_id" not in endpoint.parameters
        if starts_run and values.get("run_id"):
            raise RequestInvalid(detail="give a run_id or an Idempotency-Key, not both")
        return await runtime.idempotency.accept(
            asked.name,
            operation=endpoint.name,
            asked=msgspec.to_builtins(values, str_keys=True),
            starts_run=starts_run,
        )


async def _answer(
    asked: KeyedRequest, perform: Perform, values: dict[str, Any], *, is_again: bool
) -> ServerResponse:
    try:
        return await perform(values, is_again)
    except HoldfastError as error:
        if status_of(error) not in _SETTLED or error.is_retryable:
            raise
        return problem_response(error, asked.request_id)


def key_of(caller: Caller, operation: str, key: str) -> str:
    """Return the digest under which a key of a caller is kept; others cannot meet it.

    Raises:
        RequestInvalid: it is no key.
    """
    if not _KEY.fullmatch(key):
        raise RequestInvalid(detail="an Idempotency-Key has 1 to 255 visible characters")
    told = "\n".join((caller.tenant, caller.subject, operation, key))
    return hashlib.sha256(told.encode()).hexdigest()


__all__ = ["Idempotency", "KeyedRequest", "key_of"]
