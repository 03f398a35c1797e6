"""The header Idempotency-Key: which key a request has, and what is answered again."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from holdfast.errors import RequestInvalid
from holdfast.operations import OWNER, Caller
from holdfast.runtime import Runtime
from holdfast.server.endpoints import HttpEndpoint
from holdfast.server.http import ServerResponse
from holdfast.server.problems import ProblemRaised

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class Idempotency:
    """Looks keys up before an operation is performed, and keeps the answer after it."""

    async def accept(
        self,
        runtime: Runtime,
        caller: Caller,
        endpoint: HttpEndpoint,
        *,
        key: str,
        values: dict[str, Any],
    ) -> tuple[dict[str, Any], ServerResponse | None]:
        """Return the arguments to perform with, or the answer that was given before.

        Raises:
            RequestInvalid: it is no key.
            IdempotencyKeyReused: it was used for another request.
            ProblemRaised: nobody knows what became of the first request (409).
        """
        if caller is not OWNER:
            await endpoint.operation.admit(runtime, caller, (), values)
        starts_run = "run_id" in endpoint.fields and "run_id" not in endpoint.parameters
        if starts_run and values.get("run_id"):
            raise RequestInvalid(detail="give a run_id or an Idempotency-Key, not both")
        name = key_of(caller, endpoint.name, key)
        known, is_first = await runtime.idempotency.accept(
            name,
            operation=endpoint.name,
            asked=msgspec.to_builtins(values, str_keys=True),
            starts_run=starts_run,
        )
        if known.run_id:
            return values | {"run_id": known.run_id}, None
        if is_first:
            return values, None
        if not known.status:
            raise ProblemRaised(
                409,
                "request.in_doubt",
                "the first request with this key has not been answered: it is under way, or a "
                "crash came between; look at what is there, then take a new key",
            )
        headers = (("idempotency-replayed", "true"),)
        return values, ServerResponse(known.status, known.body.encode(), known.media_type, headers)

    async def keep(
        self,
        runtime: Runtime,
        caller: Caller,
        endpoint: HttpEndpoint,
        *,
        key: str,
        response: ServerResponse,
    ) -> None:
        """Keep the answer, where it does not follow from the run that was started."""
        if "run_id" in endpoint.fields and "run_id" not in endpoint.parameters:
            return
        if endpoint.route.is_secret:
            return
        await runtime.idempotency.keep_answer(
            key_of(caller, endpoint.name, key),
            status=response.status,
            body=response.body,
            media_type=response.media_type,
            owner=caller.subject,
        )


def key_of(caller: Caller, operation: str, key: str) -> str:
    """Return the digest under which a key of a caller is kept; others cannot meet it.

    Raises:
        RequestInvalid: it is no key.
    """
    if not _KEY.fullmatch(key):
        raise RequestInvalid(detail="an Idempotency-Key has 1 to 255 visible characters")
    told = "\n".join((caller.tenant, caller.subject, operation, key))
    return hashlib.sha256(told.encode()).hexdigest()


__all__ = ["Idempotency", "key_of"]
