"""The facts of requests over a network: what was accepted under a key, who looked inside.

A key is kept as a digest, together with the caller and the operation that it was used for.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from holdfast.journal import Event, Payload, Projection, payload, upcaster


@payload("request.accepted", is_open=True, is_inherited=False, is_of_store=True)
class RequestAccepted(Payload, frozen=True, kw_only=True):
    """A request was accepted under a key; `digest` is that of what it asked for.

    What it starts has the id `run_id`: whoever sends it again finds that run.
    """

    key: str
    digest: str
    operation: str
    run_id: str = ""


@payload(
    "request.answered",
    version=2,
    is_open=True,
    is_inherited=False,
    has_content=True,
    is_of_store=True,
)
class RequestAnswered(Payload, frozen=True, kw_only=True):
    """What such a request was answered with, to be answered again."""

    key: str
    status: int
    body: str = ""
    media_type: str = ""
    owner: str = ""
    """Whose request it was; without one it is not known."""

    def redacted(self) -> RequestAnswered:
        """Keep that there was an answer; drop what it said, and to whom."""
        return msgspec.structs.replace(self, body="", owner="")


@upcaster("request.answered", from_version=1)
def _answer_without_owner(value: dict[str, Any]) -> dict[str, Any]:
    """Of the first version it is not known whose request it was."""
    return {"owner": "", **value}


@payload("debug.used", is_open=True, is_inherited=False, is_of_store=True)
class DebugUsed(Payload, frozen=True, kw_only=True):
    """An admin looked into the running process."""

    by: str
    what: str
    request_id: str = ""


class KeptKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was used, and for what; `status` is 0 until it was answered."""

    digest: str
    operation: str
    run_id: str
    time: float
    number: int = 0
    """That of the event which accepted it."""
    status: int = 0
    body: str = ""
    media_type: str = ""


class KeptKeys(Projection[KeptKey]):
    """The idempotency keys that were used."""

    name: ClassVar[str] = "request_keys"
    version: ClassVar[int] = 2
    row_type = KeptKey
    columns: ClassVar[tuple[str, ...]] = ("time",)
    kinds: ClassVar[frozenset[str]] = frozenset({"request.accepted", "request.answered"})

    def key(self, event: Event, payload: Payload) -> str:
        """Return the digest of the key."""
        assert isinstance(payload, RequestAccepted | RequestAnswered)
        return payload.key

    def apply(self, row: KeptKey | None, event: Event, payload: Payload) -> KeptKey | None:
        """Keep the first request of a key, and its answer."""
        if isinstance(payload, RequestAccepted):
            return row or KeptKey(
                digest=payload.digest,
                operation=payload.operation,
                run_id=payload.run_id,
                time=event.time,
                number=event.session_seq,
            )
        assert isinstance(payload, RequestAnswered)
        if row is None or row.status:
            return row
        return msgspec.structs.replace(
            row, status=payload.status, body=payload.body, media_type=payload.media_type
        )


REQUEST_KEYS = KeptKeys()

__all__ = ["REQUEST_KEYS", "DebugUsed", "KeptKey", "KeptKeys", "RequestAccepted", "RequestAnswered"]
