"""Idempotency keys: the same request sent again has the same effect, and the same answer.

A key is journalled before anything is done. What starts a run then gets an id that follows from
the key, so that sending it again, also after a crash at any moment, finds that run. What starts
none keeps its answer; if a crash came between the effect and the answer, nobody knows what became
of it, and that is said rather than guessed.
"""

from __future__ import annotations

import asyncio

from holdfast.canonical import digest
from holdfast.errors import IdempotencyKeyReused
from holdfast.journal import SYSTEM_SESSION, Journal
from holdfast.runtime.request_events import (
    REQUEST_KEYS,
    KeptKey,
    RequestAccepted,
    RequestAnswered,
)

_LARGEST_ANSWER = 256 * 1024
_PAGE = 500


class IdempotencyService:
    """Remembers which requests were accepted under which keys."""

    def __init__(self, journal: Journal) -> None:
        """Keep keys in this journal."""
        self._journal = journal
        self._under_way: dict[str, asyncio.Lock] = {}

    async def accept(
        self, key: str, *, operation: str, asked: object, starts_run: bool
    ) -> tuple[KeptKey, bool]:
        """Return what is kept under a key, and whether this request is the first with it.

        Raises:
            IdempotencyKeyReused: it was used for another request; nothing was done.
        """
        wanted = digest([operation, asked])
        lock = self._under_way.setdefault(key, asyncio.Lock())
        async with lock:
            known = await self.find(key)
            is_first = False
            if known is None:
                fact = RequestAccepted(
                    key=key,
                    digest=wanted,
                    operation=operation,
                    run_id=f"run_{key[:26]}" if starts_run else "",
                )
                # Another process may have been quicker: the first fact of a key is what counts.
                [event] = await self._journal.append(SYSTEM_SESSION, [fact], is_synced=True)
                known = await self.find(key)
                assert known is not None
                is_first = known.number == event.session_seq
        self._under_way.pop(key, None)
        if known.digest != wanted:
            raise IdempotencyKeyReused
        return known, is_first

    async def keep_answer(
        self, key: str, *, status: int, body: bytes, media_type: str, owner: str
    ) -> None:
        """Keep what a request was answered with; an answer that is too large is not kept."""
        if len(body) <= _LARGEST_ANSWER:
            text = body.decode("utf-8", "replace")
            fact = RequestAnswered(
                key=key, status=status, body=text, media_type=media_type, owner=owner
            )
            await self._journal.append(SYSTEM_SESSION, [fact])

    async def forget_owner(self, owner: str) -> int:
        """Remove what requests of a subject were answered with; returns how many answers.

        Answers of which it is not known whose they are go with them.
        """
        kinds = frozenset({RequestAnswered.kind})
        found: list[int] = []
        after = 0
        while page := await self._journal.store.read(
            SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds
        ):
            after = page[-1].session_seq
            for event in page:
                fact = event.decode()
                assert isinstance(fact, RequestAnswered)
                if not event.is_redacted and fact.owner in ("", owner):
                    found.append(event.session_seq)
        return await self._journal.redact(SYSTEM_SESSION, found, reason="the user was erased")

    async def find(self, key: str) -> KeptKey | None:
        """Return what is kept under a key, `None` if it was not used."""
        return await self._journal.row(REQUEST_KEYS, SYSTEM_SESSION, key)


__all__ = ["IdempotencyService"]
