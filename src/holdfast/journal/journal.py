"""The journal: the one way in which facts are kept and read."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import ChainBroken, UsageError
from holdfast.journal.envelope import (
    NO_ORIGIN,
    Batch,
    Draft,
    Encoded,
    Event,
    Origin,
    Payload,
    decode_payload,
    digest_payload,
    encode_payload,
    encode_redacted,
)
from holdfast.journal.events import EventsRedacted
from holdfast.journal.projection import KeyedRow, Projection, RowQuery
from holdfast.journal.store import AppendRequest, Head, HeldSession, LeaseWish, Store
from holdfast.redaction import Redactor

Row = TypeVar("Row", bound=msgspec.Struct)
StoredObserver: TypeAlias = Callable[[Sequence[Draft], Sequence[Event], float], None]
"""Told of facts that this process has stored, in the task that stored them, and how many seconds
that took; it must return quickly and must not raise."""
_FEED_WAIT_S = 30.0
_PAGE = 500


class Journal:
    """An append-only log of everything that happened, and the only truth.

    Promises: a batch is stored whole or not at all; a session's events are numbered without
    gaps and chained by hash; a writer whose lease moved on is refused by the store itself.
    """

    def __init__(
        self, store: Store, *, clock: Clock = SYSTEM, redactor: Redactor | None = None
    ) -> None:
        """Use a store; `open` it before anything else.

        With a redactor, no secret that it finds reaches the store.
        """
        self.store = store
        self.clock = clock
        self.redactor = redactor
        self.on_stored: StoredObserver | None = None

    async def open(self) -> Journal:
        """Open the store and return the journal."""
        await self.store.open()
        return self

    async def close(self) -> None:
        """Finish what was accepted and close the store."""
        await self.store.close()

    async def __aenter__(self) -> Journal:
        """Open on entering."""
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Close on leaving."""
        await self.close()

    async def append(  # noqa: PLR0913 - each is a condition of the one append
        self,
        session_id: str,
        payloads: Sequence[Payload] | Batch,
        *,
        epoch: int | None = None,
        after: int | None = None,
        origin: Origin = NO_ORIGIN,
        must_be_new: bool = False,
        release: bool = False,
        is_synced: bool = False,
        held: HeldSession | None = None,
    ) -> tuple[Event, ...]:
        """Add facts to the end of a session and return them as events.

        All become durable together or not at all. Once this returns they survive the end of
        the process (durability `process`) or a power cut (durability `power`); if it raises
        anything but `CancelledError`, none of them exists.

        Without an `epoch` only open kinds are taken: facts that any process may add, such as a
        turn put into the queue. `release` gives the lease back with the last fact. `is_synced`
        puts the facts on the disk before this returns, as kinds that declare it always do.
        Facts may be fit for the store already (`batch`), with origins and times of their own.
        With `held` they are only stored while that session is held under that epoch: what a run
        writes outside its own session.

        Raises:
            LeaseLost: another process owns the session now, or the one `held`; stop writing.
            StaleWriter: another writer appended since `after`; re-read, then decide again.
            UsageError: a payload cannot be stored, or needs a lease.
        """
        batch = payloads if isinstance(payloads, Batch) else self.batch(payloads, origin)
        if not batch.drafts:
            raise UsageError(detail="Nothing to append.")
        if epoch is None:
            _require_open(batch.drafts)
            if release:
                raise UsageError(detail="Only the holder of a lease can give it back.")
        for draft in batch.drafts:
            is_synced = is_synced or draft.value.is_synced
        return await self._store(
            AppendRequest(
                session_id=session_id,
                drafts=batch.drafts,
                epoch=epoch,
                after=after,
                must_be_new=must_be_new,
                release=release,
                is_synced=is_synced,
                held=held,
            )
        )

    async def begin(
        self,
        session_id: str,
        payloads: Sequence[Payload] | Batch,
        *,
        owner: str,
        ttl_s: float,
        after: int,
        origin: Origin = NO_ORIGIN,
        must_be_new: bool = False,
    ) -> tuple[Event, ...]:
        """Take a session's lease for an owner and add facts under it, in one transaction.

        The events carry the epoch of the new lease. With `must_be_new` they begin the session.

        Raises:
            AlreadyExists: the session must be new, but is not.
            SessionBusy: another owner holds the lease; nothing was stored.
            StaleWriter: another writer appended since `after`; nothing was stored.
            NotFound: there is no such session.
            UsageError: a payload cannot be stored.
        """
        batch = payloads if isinstance(payloads, Batch) else self.batch(payloads, origin)
        is_synced = False
        for draft in batch.drafts:
            is_synced = is_synced or draft.value.is_synced
        return await self._store(
            AppendRequest(
                session_id=session_id,
                drafts=batch.drafts,
                epoch=None,
                after=after,
                must_be_new=must_be_new,
                acquire=LeaseWish(owner=owner, ttl_s=ttl_s),
                is_synced=is_synced,
            )
        )

    def draft(self, value: Payload, origin: Origin = NO_ORIGIN) -> Draft:
        """Encode a payload as it will be stored, without secrets."""
        return self.batch((value,), origin).drafts[0]

    def encode(self, value: Payload, origin: Origin = NO_ORIGIN) -> Encoded:
        """Encode a payload that is stored later, with the time of now.

        Raises:
            UsageError: it cannot be stored.
        """
        # A whole second must not be hashed as an integer and read back as a float.
        return Encoded(value, encode_payload(value), float(self.clock.now()), origin)

    def batch(self, facts: Sequence[Payload | Encoded], origin: Origin = NO_ORIGIN) -> Batch:
        """Make facts that are stored together fit for the store: encoded, without secrets.

        They are looked through together, which takes hardly longer than for one. The origin is
        that of those that are not encoded yet.

        Raises:
            UsageError: one of them cannot be stored.
        """
        encoded, given = [], []
        for fact in facts:
            one = fact if isinstance(fact, Encoded) else self.encode(fact, origin)
            encoded.append(one)
            given.append(one.payload)
        kept = given if self.redactor is None else self.redactor.render_json_texts(given)
        drafts = []
        for one, payload in zip(encoded, kept, strict=True):
            value = one.value
            if payload is not one.payload:
                # Projections are made from the value, so it must be as clean as the bytes.
                value = decode_payload(value.kind, value.schema_version, payload)
            draft = Draft(
                kind=value.kind,
                version=value.schema_version,
                time=one.time,
                origin=one.origin,
                payload=payload,
                payload_digest=hashlib.sha256(payload).hexdigest(),
                value=value,
            )
            drafts.append(draft)
        return Batch(tuple(drafts), kept is not given)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: frozenset[str] | None = None,
    ) -> list[Event]:
        """Return the events of one session after a number, in order."""
        return await self.store.read(session_id, after=after, limit=limit, kinds=kinds)

    async def read_all(self, session_id: str, *, up_to: int | None = None) -> list[Event]:
        """Return the whole chain of a session, or its beginning up to a number."""
        events: list[Event] = []
        after = 0
        while page := await self.store.read(session_id, after=after, limit=_PAGE):
            events += page
            if up_to is not None and events[-1].session_seq >= up_to:
                return [event for event in events if event.session_seq <= up_to]
            if events[-1].session_seq <= after:
                raise ChainBroken(
                    session_id=session_id, session_seq=after, detail="the numbers go back"
                )
            after = events[-1].session_seq
        return events

    async def subscribe(
        self,
        *,
        after: int | None = None,
        patterns: str | Sequence[str] = ("*",),
        session_id: str = "",
        until: Callable[[Event], bool] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they are stored, here or in another process, in order of `seq`.

        Starts after the given `seq` (0: from the beginning; `None`: from now on) and never
        skips or repeats one. Patterns are exact kinds, `prefix*` or `*`. Ends after the
        event for which `until` holds.

        Raises:
            UsageError: a pattern means nothing.
        """
        wanted = check_patterns(patterns)
        cursor = await self.read_last_seq() if after is None else after
        while True:
            page = await self.store.feed(after=cursor, limit=_PAGE)
            for event in page:
                cursor = event.seq
                if session_id not in ("", event.session_id) or not _list_matches(event, wanted):
                    continue
                yield event
                if until is not None and until(event):
                    return
            if not page:
                await self.store.changed(cursor, _FEED_WAIT_S)

    async def read_last_seq(self) -> int:
        """Return the highest `seq` in the store, 0 when it is empty."""
        return await self.store.read_last_seq()

    async def rows(self, query: RowQuery[Row]) -> list[KeyedRow[Row]]:
        """Return rows of a projection."""
        return await self.store.rows(query)

    async def row(self, projection: Projection[Row], session_id: str, key: str) -> Row | None:
        """Return one row of a projection, `None` when there is none."""
        query = RowQuery(projection=projection, session_id=session_id, key=key, limit=1)
        found = await self.store.rows(query)
        return found[0].row if found else None

    async def head(self, session_id: str) -> Head | None:
        """Return the end of a session's chain, `None` when there is no such session."""
        found = await self.store.heads(session_id)
        return found[0] if found else None

    async def redact(self, session_id: str, numbers: Sequence[int], *, reason: str) -> int:
        """Remove the content of events for good and return how many were changed.

        Their shape and the hash chain stay; a `journal.redacted` event says what was removed
        and why. Events that are already redacted are left alone.
        """
        wanted = sorted(set(numbers))
        events: list[Event] = []
        for start in range(0, len(wanted), _PAGE):
            chunk = wanted[start : start + _PAGE]
            events += await self.store.read(session_id, seqs=chunk, limit=_PAGE)
        reduced = {
            event.session_seq: encode_redacted(event.decode().redacted())
            for event in events
            if not event.is_redacted
        }
        if reduced:
            digests = tuple(digest_payload(data) for data in reduced.values())
            fact = EventsRedacted(numbers=tuple(reduced), reason=reason, digests=digests)
            await self.store.redact(session_id, reduced, self.draft(fact))
        return len(reduced)

    async def rebuild(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Drop and rebuild all projections from the log."""
        return await self.store.rebuild(progress)

    async def _store(self, request: AppendRequest) -> tuple[Event, ...]:
        if self.on_stored is None:
            return await self.store.append(request)
        began = self.clock.boottime()
        events = await self.store.append(request)
        self.on_stored(request.drafts, events, self.clock.boottime() - began)
        return events


def _require_open(drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        if not draft.value.is_open:
            raise UsageError(detail=f"{draft.kind} can only be appended under a lease.")


def check_patterns(patterns: object) -> tuple[str, ...]:
    """Return patterns that can mean something; others would wait in silence for ever.

    Raises:
        UsageError: one means nothing.
    """
    given: tuple[object, ...] = (patterns,)
    if isinstance(patterns, Iterable) and not isinstance(patterns, str):
        given = tuple(patterns)
    checked = [one for one in given if isinstance(one, str) and one and "*" not in one[:-1]]
    if not given or len(checked) < len(given):
        raise UsageError(
            detail="A subscription needs patterns: a name, '*', or the beginning of names, "
            "such as 'tool.*'."
        )
    return tuple(checked)


def _list_matches(event: Event, patterns: Sequence[str]) -> bool:
    return any(
        event.kind == pattern or (pattern.endswith("*") and event.kind.startswith(pattern[:-1]))
        for pattern in patterns
    )
