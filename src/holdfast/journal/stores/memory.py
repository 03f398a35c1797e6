"""The journal in memory: for tests, and for work that need not be kept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    AlreadyExists,
    LeaseLost,
    NotFound,
    SessionBusy,
    StaleWriter,
    UsageError,
)
from holdfast.journal.envelope import GENESIS, SYSTEM_SESSION, Draft, Event, Payload, chain_events
from holdfast.journal.projection import (
    AnyProjection,
    Condition,
    KeyedRow,
    RowQuery,
    check_query,
    group_by_kind,
)
from holdfast.journal.store import (
    BLOB_THRESHOLD,
    AppendRequest,
    Finding,
    Head,
    LeaseWish,
    MendReport,
    check_restored,
)
from holdfast.journal.stores._wakeups import Wakeups
from holdfast.journal.stores.registry import StoreKind, StoreOptions

Row = TypeVar("Row", bound=msgspec.Struct)
_Rows = dict[tuple[str, str, str], Any]


class _Stream:
    """One session: its events and its lease."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.epoch = 0
        self.owner = ""
        self.lease_until = 0.0
        self.unproved_epoch = 0

    def is_held(self, now: float) -> bool:
        return bool(self.owner) and self.lease_until > now

    def free(self) -> None:
        self.owner = ""

    def head(self, session_id: str, now: float) -> Head:
        last = self.events[-1] if self.events else None
        return Head(
            session_id=session_id,
            session_seq=last.session_seq if last else 0,
            hash=last.hash if last else GENESIS,
            epoch=self.epoch,
            owner=self.owner,
            is_held=self.is_held(now),
            unproved_epoch=self.unproved_epoch,
        )

    def take(self, wish: LeaseWish, now: float) -> None:
        if self.owner:
            self.unproved_epoch = self.epoch
        self.epoch += 1
        self.owner, self.lease_until = wish.owner, now + wish.ttl_s


class MemoryStore:
    """Keeps everything in this process; gone when the process ends."""

    def __init__(self, *, projections: Sequence[AnyProjection] = (), clock: Clock = SYSTEM) -> None:
        """Start empty."""
        self._clock = clock
        self._projections = tuple(projections)
        self._by_kind = group_by_kind(projections)
        self._streams: dict[str, _Stream] = {}
        self._rows: _Rows = {}
        self._owners: dict[str, float] = {}
        self._seq = 0
        self._wakeups = Wakeups()

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to give back; the records stay readable while the object lives."""

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch and its rows; see `Store.append`."""
        stream = self._make_writable(request)
        head = stream.head(request.session_id, self._clock.boottime())
        if request.acquire is not None:
            head = msgspec.structs.replace(head, epoch=head.epoch + 1)
        events = chain_events(request.drafts, request.session_id, head, self._seq)
        values = [draft.value for draft in request.drafts]
        # Fold first: a projection that fails must leave nothing behind.
        self._rows.update(self._fold(list(zip(events, values, strict=True))))
        self._streams.setdefault(request.session_id, stream)
        stream.events += events
        self._seq += len(events)
        if request.acquire is not None:
            stream.take(request.acquire, self._clock.boottime())
        if request.release:
            stream.free()
        self._wakeups.notify()
        return tuple(events)

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        """Store a whole session as it was elsewhere; see `Store.restore`."""
        session_id = check_restored(events)
        if session_id in self._streams:
            raise AlreadyExists(kind="session", value=session_id)
        stream = _Stream()
        stream.epoch = max(event.epoch for event in events)
        stream.events = [
            event if keeps_numbers else msgspec.structs.replace(event, seq=self._seq + number)
            for number, event in enumerate(events, 1)
        ]
        self._rows.update(self._fold(self._decode(stream.events)))
        self._streams[session_id] = stream
        self._seq = max(self._seq, stream.events[-1].seq)
        self._wakeups.notify()

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: frozenset[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> list[Event]:
        """Return events of one session in order; see `Store.read`."""
        stream = self._streams.get(session_id)
        wanted = None if seqs is None else set(seqs)
        found = [
            event
            for event in (stream.events if stream else ())
            if (event.session_seq > after if wanted is None else event.session_seq in wanted)
            and (kinds is None or event.kind in kinds)
        ]
        return found[: max(limit, 0)]

    async def feed(self, *, after: int, limit: int = 1000) -> list[Event]:
        """Return events of all sessions in the order of `seq`."""
        return [event for event in self._read_all_events() if event.seq > after][: max(limit, 0)]

    async def read_last_seq(self) -> int:
        """Return the highest `seq`, 0 when there is none."""
        return self._seq

    async def heads(self, session_id: str | None = None) -> list[Head]:
        """Return the ends of all chains, or of one."""
        now = self._clock.boottime()
        return [
            stream.head(name, now)
            for name, stream in self._streams.items()
            if session_id is None or name == session_id
        ]

    async def rows(self, query: RowQuery[Row]) -> list[KeyedRow[Row]]:
        """Return the rows of a projection that a query describes."""
        check_query(query)

        def rank(found: KeyedRow[Row]) -> tuple[Any, str]:
            return (getattr(found.row, query.order) if query.order else found.key, found.key)

        matching = [
            KeyedRow(session_id, key, row)
            for (name, session_id, key), row in self._rows.items()
            if name == query.projection.name
            and query.session_id in ("", session_id)
            and query.key in ("", key)
            and all(_holds(condition, row) for condition in query.where)
        ]
        matching.sort(key=rank, reverse=query.descending)
        if query.after is not None:
            edge = query.after
            matching = [
                found
                for found in matching
                if (rank(found) < edge if query.descending else rank(found) > edge)
            ]
        return matching[: query.limit]

    async def acquire(self, session_id: str, owner: str, ttl_s: float) -> Head | None:
        """Take the session's lease with the next epoch, or return `None` when it is held."""
        stream = self._find_existing(session_id)
        now = self._clock.boottime()
        if stream.is_held(now):
            return None
        stream.take(LeaseWish(owner=owner, ttl_s=ttl_s), now)
        return stream.head(session_id, now)

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        """Prolong leases; returns those that are lost."""
        lost = set()
        until = self._clock.boottime() + ttl_s
        self._owners[owner] = until
        for session_id, epoch in held.items():
            stream = self._streams.get(session_id)
            if stream is None or (stream.epoch, stream.owner) != (epoch, owner):
                lost.add(session_id)
            elif ttl_s > 0:
                stream.lease_until = until
            else:
                stream.free()
        return lost

    async def is_alive(self, owner: str) -> bool:
        """Say whether an owner has renewed itself in time; all live in this process."""
        return self._owners.get(owner, 0.0) > self._clock.boottime()

    async def release(self, session_id: str, epoch: int) -> None:
        """Give a lease back; one that is already lost is left alone."""
        stream = self._streams.get(session_id)
        if stream is not None and stream.epoch == epoch:
            stream.free()
            self._wakeups.notify()

    async def redact(self, session_id: str, reduced: dict[int, bytes], note: Draft) -> None:
        """Replace payloads by their redacted form and append the note that says so."""
        await self.append(AppendRequest(session_id=session_id, drafts=(note,), epoch=None))
        events = self._streams[session_id].events
        for index, event in enumerate(events):
            data = reduced.get(event.session_seq)
            if data is not None:
                events[index] = msgspec.structs.replace(event, payload=data, is_redacted=True)
        self._forget_rows(session_id)
        self._rows.update(self._fold(self._decode(events)))

    async def delete(self, session_id: str, note: Draft, epoch: int) -> None:
        """Remove a session held under `epoch`; the note goes to the system chain."""
        stream = self._find_existing(session_id)
        if stream.epoch != epoch:
            raise LeaseLost(session_id=session_id, current=stream.epoch, held=epoch)
        await self.append(AppendRequest(session_id=SYSTEM_SESSION, drafts=(note,), epoch=None))
        del self._streams[session_id]
        self._forget_rows(session_id)

    async def rebuild(self, progress: Callable[[int, int], None]) -> int:
        """Drop and rebuild all projections."""
        events = self._read_all_events()
        before, self._rows = self._rows, {}
        try:
            self._rows = self._fold(self._decode(events))
        except BaseException:
            self._rows = before
            raise
        progress(len(events), len(events))
        return len(events)

    async def examine(self) -> list[Finding]:
        """Find nothing: there is no file, and rows cannot be changed behind the store's back."""
        return []

    async def mend(self) -> MendReport:
        """Refuse: what lives in memory is not damaged, and ends with the process."""
        raise UsageError(detail="A store in memory cannot be mended.")

    async def collect(self) -> dict[str, int]:
        """Nothing to collect: content lives as long as an event refers to it."""
        return {"blobs": 0, "bytes": 0}

    async def changed(self, after: int, timeout_s: float) -> bool:
        """Wait until an event beyond `after` exists, a lease was released, or time is up."""
        return await self._wakeups.wait(lambda: self._seq > after, timeout_s)

    async def stats(self) -> dict[str, Any]:
        """Count sessions, events, blobs and bytes."""
        events = self._read_all_events()
        large = {e.payload_digest for e in events if len(e.payload) > BLOB_THRESHOLD}
        return {
            "sessions": len(self._streams),
            "events": len(events),
            "blobs": len(large),
            "bytes": sum(len(event.payload) for event in events),
        }

    def _read_all_events(self) -> list[Event]:
        events = [event for stream in self._streams.values() for event in stream.events]
        return sorted(events, key=lambda event: event.seq)

    def _find_existing(self, session_id: str) -> _Stream:
        stream = self._streams.get(session_id)
        if stream is None:
            raise NotFound(kind="session", value=session_id)
        return stream

    def _make_writable(self, request: AppendRequest) -> _Stream:
        session_id, held = request.session_id, request.held
        if held is not None:
            own = self._streams.get(held.session_id)
            current = own.epoch if own is not None else 0
            if current != held.epoch:
                raise LeaseLost(session_id=held.session_id, current=current, held=held.epoch)
        stream = self._streams.get(session_id)
        if stream is None:
            if not request.must_be_new and session_id != SYSTEM_SESSION:
                raise NotFound(kind="session", value=session_id)
            stream = _Stream()
        elif request.must_be_new:
            raise AlreadyExists(kind="session", value=session_id)
        if request.epoch is not None and request.epoch != stream.epoch:
            raise LeaseLost(session_id=session_id, current=stream.epoch, held=request.epoch)
        last = len(stream.events)
        if request.after is not None and request.after != last:
            raise StaleWriter(session_id=session_id, current=last, expected=request.after)
        if request.acquire is not None and stream.is_held(self._clock.boottime()):
            raise SessionBusy(session_id=session_id)
        return stream

    def _decode(self, events: Sequence[Event]) -> list[tuple[Event, Payload]]:
        return [(event, event.decode()) for event in events if event.kind in self._by_kind]

    def _forget_rows(self, session_id: str) -> None:
        self._rows = {place: row for place, row in self._rows.items() if place[1] != session_id}

    def _fold(self, events: Sequence[tuple[Event, Payload]]) -> _Rows:
        rows: _Rows = {}
        for event, payload in events:
            for projection in self._by_kind.get(event.kind, ()):
                key = projection.key(event, payload)
                if not key:
                    continue
                place = (projection.name, event.session_id, key)
                old = rows.get(place, self._rows.get(place))
                rows[place] = projection.apply(old, event, payload)
        for place in [place for place, row in rows.items() if row is None]:
            self._rows.pop(place, None)
            del rows[place]
        return rows


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda have, want: have in want,
    "outside": lambda have, want: not want[0] <= have <= want[1],
    "contains": lambda have, want: want.casefold() in have.casefold(),
}


def _holds(condition: Condition, row: msgspec.Struct) -> bool:
    return _COMPARE[condition.operator](getattr(row, condition.column), condition.value)


def _open(address: SplitResult, options: StoreOptions) -> MemoryStore:
    if address.netloc or address.path or address.query or address.fragment:
        raise UsageError(detail="memory:// is followed by nothing: each one is private.")
    return MemoryStore(projections=options.projections, clock=options.clock)


KIND = StoreKind(open=_open)
"""`memory://`: in this process, private to the process that opened it."""
