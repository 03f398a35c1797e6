"""StateStore: what keeps values by key and version, and the one on the journal.

The journal is the truth: a change is a `state.changed` fact in the chain of its scope, and the
table of present values follows from it in the same transaction. So every store of a journal
(SQLite, memory, one of another package) is a store of state, with its hash chain, redaction and
feed. Compare-and-set is the table's own rule: a fact whose version is not the next one of its
key is refused inside the transaction, in whichever process it is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, NotFound, StateConflict
from holdfast.journal import (
    NO_ORIGIN,
    Condition,
    Event,
    HeldSession,
    Journal,
    Origin,
    Payload,
    Projection,
    RowQuery,
    SessionDeleted,
)
from holdfast.state.address import StateScope
from holdfast.state.events import StateChanged, StateConflicted, ToolStateSet

_PAGE = 500
_LAST = "\U0010ffff"
_FIRST = " "
_SOONEST = 1e-9
_HOLD_S = 60.0

StateFact: TypeAlias = StateChanged | StateConflicted
Events: TypeAlias = list[Event]
OverdueRows: TypeAlias = list[tuple[str, "StateRow"]]
"""Chains, and rows of them whose time is up."""


class StateRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The present of one key; one that was removed keeps its version, so that it only grows."""

    key: str
    version: int
    number: int
    """That of the last change in its chain."""
    time: float
    data: JsonObject = msgspec.field(default_factory=dict)
    is_deleted: bool = False
    expires_at: float = 0.0
    labels: tuple[str, ...] = ()
    schema: str = ""
    schema_number: int = 0
    agent_path: str = ""

    def is_gone(self, now: float) -> bool:
        """Say whether there is no value: it was removed, or its time is up."""
        return self.is_deleted or 0 < self.expires_at <= now


class StateTable(Projection[StateRow]):
    """The present values: one row for each key of a chain."""

    name = "state"
    version = 1
    row_type = StateRow
    columns = ("key", "is_deleted", "expires_at")
    kinds = frozenset({StateChanged.kind, ToolStateSet.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A key has one row."""
        assert isinstance(payload, StateChanged | ToolStateSet)
        return payload.key

    def apply(self, row: StateRow | None, event: Event, payload: Payload) -> StateRow:
        """The last value holds.

        Raises:
            StateConflict: the fact does not bring the next version; it is not stored.
        """
        before = row.version if row is not None else 0
        if isinstance(payload, ToolStateSet):
            return StateRow(
                key=payload.key,
                version=before + 1,
                number=event.session_seq,
                time=event.time,
                data=payload.data,
                is_deleted=not payload.data,
                agent_path=event.agent_path,
            )
        assert isinstance(payload, StateChanged)
        if payload.version != before + 1:
            raise StateConflict(address=payload.key, expected=payload.version - 1, found=before)
        return StateRow(
            key=payload.key,
            version=payload.version,
            number=event.session_seq,
            time=event.time,
            data=payload.data,
            is_deleted=not payload.data,
            expires_at=payload.expires_at,
            labels=payload.labels,
            schema=payload.schema,
            schema_number=payload.schema_number,
            agent_path=event.agent_path,
        )


STATE = StateTable()


class StateRecorder(Protocol):
    """Writes facts of a run to its own session, under its lease; a `Turn` is one."""

    @property
    def session_id(self) -> str:
        """The session that it holds."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch under which it holds it."""
        ...

    async def append(
        self, *payloads: Payload, agent_path: str = "", is_synced: bool = False
    ) -> tuple[Event, ...]:
        """Append facts of the run, together or not at all."""
        ...


class StateStore(Protocol):
    """Keeps values by scope and key; `holdfast.testing.state_conformance` says what is expected.

    Keys are those of the scope, without what a chain puts before them.
    """

    async def read(self, scope: StateScope, key: str) -> StateRow | None:
        """Return the present of a key, also if it was removed; `None` if it never was."""
        ...

    async def list(
        self, scope: StateScope, prefix: str, *, after: str, limit: int, now: float
    ) -> list[StateRow]:
        """Return the values whose keys begin so and stand behind `after`, in order of keys."""
        ...

    async def write(
        self, scope: StateScope, facts: Sequence[StateFact], origin: Origin = NO_ORIGIN
    ) -> tuple[Event, ...]:
        """Store changes of one scope together, or none of them.

        Raises:
            StateConflict: a change does not bring the next version of its key.
            LeaseLost: it is written for a run that has lost its session.
            NotFound: the scope is a session, or a run of one, that does not exist.
        """
        ...

    async def history(self, scope: StateScope, key: str, *, before: int, limit: int) -> Events:
        """Return the facts that changed a key, newest first, of numbers below `before` if given."""
        ...

    async def at(
        self, scope: StateScope, number: int | None = None, seq: int | None = None
    ) -> dict[str, StateRow]:
        """Return what all keys were after a fact, or now; removed ones included.

        The fact is named by its number in the scope's chain, or by its place in the whole store.
        """
        ...

    async def position(self, scope: StateScope) -> int:
        """Return the number of the last fact of the scope's chain, 0 where there is none."""
        ...

    def changes(self, scope: StateScope, *, after: int | None) -> AsyncGenerator[Event, None]:
        """Yield the facts that change a scope, here or in another process, as they are stored."""
        ...

    async def list_overdue(self, now: float, limit: int) -> OverdueRows:
        """Return chains and rows whose time is up and that are not removed yet."""
        ...

    async def forget(self, scope: StateScope, *, owner: str, reason: str) -> bool:
        """Remove a scope with a chain of its own for good; says whether there was one."""
        ...

    async def trim(self, tenant: str, *, before: float | None, keep: int | None) -> int:
        """Remove values that were replaced, of all scopes with a chain of their own.

        Those that were written before a time, and those beyond the newest `keep` versions of a
        key. What is set now stays, and that there were versions. Returns how many.
        """
        ...


class JournalStateStore(msgspec.Struct, frozen=True, eq=False):
    """State as facts of a journal, in whatever store that is kept.

    With a recorder, what belongs to its session is written under the lease that it holds, and
    what belongs to others only as long as it holds it.
    """

    journal: Journal
    """Where facts are kept; its projections must have `STATE`."""
    recorder: StateRecorder | None = None

    async def read(self, scope: StateScope, key: str) -> StateRow | None:
        """Return the present of a key; see `StateStore.read`."""
        return await self.journal.row(STATE, scope.chain, scope.prefix + key)

    async def list(
        self, scope: StateScope, prefix: str, *, after: str, limit: int, now: float
    ) -> list[StateRow]:
        """Return values in order of keys; see `StateStore.list`."""
        start = scope.prefix + prefix
        query = RowQuery(
            projection=STATE,
            session_id=scope.chain,
            where=(
                # What a chain puts before other keys sorts before every first character.
                Condition("key", ">=", start or _FIRST),
                Condition("key", "<", start + _LAST),
                Condition("is_deleted", "=", False),
                Condition("expires_at", "outside", (_SOONEST, now)),
            ),
            after=(scope.prefix + after, scope.prefix + after) if after else None,
            limit=limit,
        )
        return [found.row for found in await self.journal.rows(query)]

    async def write(
        self, scope: StateScope, facts: Sequence[StateFact], origin: Origin = NO_ORIGIN
    ) -> tuple[Event, ...]:
        """Store changes together; see `StateStore.write`."""
        chain, recorder = scope.chain, self.recorder
        if recorder is not None and recorder.session_id == chain:
            return await recorder.append(*facts, agent_path=origin.agent_path)
        held = None if recorder is None else HeldSession(recorder.session_id, recorder.epoch)
        try:
            return await self.journal.append(chain, facts, origin=origin, held=held)
        except NotFound:
            if not scope.is_own_chain:
                raise
        with contextlib.suppress(AlreadyExists):
            return await self.journal.append(
                chain, facts, origin=origin, must_be_new=True, held=held
            )
        return await self.journal.append(chain, facts, origin=origin, held=held)

    async def history(self, scope: StateScope, key: str, *, before: int, limit: int) -> Events:
        """Follow the links from the present value back; see `StateStore.history`."""
        row, whole = await self.read(scope, key), scope.prefix + key
        number, found = row.number if row is not None else 0, Events()
        newer = number + 1
        while number and len(found) < limit:
            [event] = await self.journal.store.read(scope.chain, seqs=[number])
            fact = event.decode()
            if event.kind not in STATE.kinds or STATE.key(event, fact) != whole:
                # The writer knew another chain, which has been removed since.
                number = await self._change_before(scope.chain, newer, whole)
                continue
            newer = number
            if not before or event.session_seq < before:
                found.append(event)
            if isinstance(fact, StateChanged):
                number = fact.previous
            else:
                number = await self._change_before(scope.chain, number, whole)
        return found

    async def _change_before(self, chain: str, number: int, key: str) -> int:
        """Look for the change of a key before a number, where no link leads to it."""
        last, after = 0, 0
        while page := await self.journal.read(chain, after=after, limit=_PAGE, kinds=STATE.kinds):
            for event in page:
                if event.session_seq >= number:
                    return last
                if STATE.key(event, event.decode()) == key:
                    last = event.session_seq
            after = page[-1].session_seq
        return last

    async def at(
        self, scope: StateScope, number: int | None = None, seq: int | None = None
    ) -> dict[str, StateRow]:
        """Fold the chain up to a fact; see `StateStore.at`."""
        rows: dict[str, StateRow] = {}
        after, prefix = 0, scope.prefix
        while page := await self.journal.read(
            scope.chain, after=after, limit=_PAGE, kinds=STATE.kinds
        ):
            for event in page:
                is_later = number is not None and event.session_seq > number
                if is_later or (seq is not None and event.seq > seq):
                    return rows
                fact = event.decode()
                key = STATE.key(event, fact)
                if key.startswith(prefix) if prefix else key >= _FIRST:
                    short = key[len(prefix) :]
                    rows[short] = STATE.apply(rows.get(short), event, fact)
            after = page[-1].session_seq
        return rows

    async def position(self, scope: StateScope) -> int:
        """Return where the chain ends; see `StateStore.position`."""
        head = await self.journal.head(scope.chain)
        return head.session_seq if head is not None else 0

    async def changes(self, scope: StateScope, *, after: int | None) -> AsyncGenerator[Event, None]:
        """Yield facts as they are stored; see `StateStore.changes`."""
        feed = self.journal.subscribe(
            after=after, patterns=sorted(STATE.kinds), session_id=scope.chain
        )
        async with contextlib.aclosing(feed):
            async for event in feed:
                key = STATE.key(event, event.decode())
                if key.startswith(scope.prefix) if scope.prefix else key >= _FIRST:
                    yield event

    async def list_overdue(self, now: float, limit: int) -> OverdueRows:
        """Return rows whose time is up; see `StateStore.overdue`."""
        query = RowQuery(
            projection=STATE,
            where=(
                Condition("expires_at", ">", 0.0),
                Condition("expires_at", "<=", now),
                Condition("is_deleted", "=", False),
            ),
            limit=limit,
        )
        return [(found.session_id, found.row) for found in await self.journal.rows(query)]

    async def forget(self, scope: StateScope, *, owner: str, reason: str) -> bool:
        """Remove a chain; see `StateStore.forget`."""
        store, chain = self.journal.store, scope.chain
        try:
            head = await store.acquire(chain, owner, _HOLD_S)
        except NotFound:
            return False
        if head is None:
            raise StateConflict(address=str(scope), expected=0, found=0)
        note = SessionDeleted(
            session_id=chain, last=head.session_seq, hash=head.hash, reason=reason
        )
        await store.delete(chain, self.journal.draft(note), head.epoch)
        return True

    async def trim(self, tenant: str, *, before: float | None, keep: int | None) -> int:
        """Remove values that were replaced; see `StateStore.trim`."""
        removed = 0
        for chain in await self._list_chains(tenant):
            numbers = await self._find_replaced(chain, before, keep)
            for start in range(0, len(numbers), _PAGE):
                page = numbers[start : start + _PAGE]
                removed += await self.journal.redact(chain, page, reason="retention")
        return removed

    async def _list_chains(self, tenant: str) -> Sequence[str]:
        found: dict[str, None] = {}
        query = RowQuery(projection=STATE, order="key", limit=_PAGE)
        while rows := await self.journal.rows(query):
            found.update(dict.fromkeys(one.session_id for one in rows))
            if len(rows) < _PAGE:
                break
            query = msgspec.structs.replace(query, after=(rows[-1].row.key, rows[-1].key))
        return [chain for chain in found if chain.startswith(f"state:{tenant}:")]

    async def _find_replaced(
        self, chain: str, before: float | None, keep: int | None
    ) -> Sequence[int]:
        """Return the numbers of facts whose values no longer hold, and need not be kept."""
        changes: dict[str, list[Event]] = {}
        after = 0
        while page := await self.journal.read(chain, after=after, limit=_PAGE, kinds=STATE.kinds):
            for event in page:
                # Without their payloads, which are of no use here and may be many.
                light = msgspec.structs.replace(event, payload=b"")
                changes.setdefault(STATE.key(event, event.decode()), []).append(light)
            after = page[-1].session_seq
        doomed = []
        for events in changes.values():
            for age, event in enumerate(reversed(events)):
                is_old = before is not None and event.time < before
                is_beyond = keep is not None and age >= max(keep, 1)
                if age and (is_old or is_beyond) and not event.is_redacted:
                    doomed.append(event.session_seq)
        return sorted(doomed)


__all__ = ["STATE", "JournalStateStore", "StateRecorder", "StateRow", "StateStore", "StateTable"]
