"""TriggerBook: triggers and their firings, kept in the journal; claims are made here.

A claim is appended only if nothing else was appended since the trigger was read. Of several
processes that see the same event or tick, one therefore makes the claim and the others find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, NotFound, StaleWriter
from holdfast.ids import make_id
from holdfast.journal import (
    SYSTEM_SESSION,
    AnyProjection,
    Condition,
    Event,
    Journal,
    Payload,
    Projection,
    RowQuery,
)
from holdfast.orchestration.triggers import events as facts
from holdfast.orchestration.triggers.events import FiringStatus

if TYPE_CHECKING:
    from holdfast.orchestration.triggers.trigger import Trigger

_PAGE = 1_000


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger in force: up to which event and which tick everything is settled."""

    id: str
    name: str
    definition: JsonObject
    position: int = 0
    tick: float = 0.0
    time_created: float = 0.0
    fired: int = 0

    @property
    def trigger(self) -> Trigger:
        """What it says."""
        from holdfast.orchestration.triggers.trigger import read_trigger  # noqa: PLC0415 - tables are always loaded, definitions rarely

        return read_trigger(self.definition)


class TriggersTable(Projection[TriggerRow]):
    """One row per trigger in force."""

    name = "triggers"
    version = 1
    row_type = TriggerRow
    columns = ("name", "time_created")
    kinds = frozenset(
        {
            facts.TriggerCreated.kind,
            facts.TriggerRemoved.kind,
            facts.TriggerFired.kind,
            facts.TriggerPassed.kind,
        }
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A trigger has one row, under its name."""
        return str(getattr(payload, "name", ""))

    def apply(self, row: TriggerRow | None, event: Event, payload: Payload) -> TriggerRow | None:
        """Fold one fact; what an earlier trigger of the same name left changes nothing."""
        match payload:
            case facts.TriggerCreated():
                return row or TriggerRow(
                    id=payload.trigger_id,
                    name=payload.name,
                    definition=payload.definition,
                    position=event.seq,
                    tick=event.time,
                    time_created=event.time,
                )
            case facts.TriggerRemoved():
                return None
            case facts.TriggerFired() | facts.TriggerPassed():
                if row is None or row.id != payload.trigger_id:
                    return row
                return msgspec.structs.replace(
                    row,
                    position=max(row.position, payload.position),
                    tick=max(row.tick, payload.tick),
                    fired=row.fired + isinstance(payload, facts.TriggerFired),
                )
        return row


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One firing: what was claimed, by whom, and how it stands."""

    key: str
    trigger_id: str
    name: str
    occurrence: str
    run_id: str
    session_id: str
    owner: str
    status: FiringStatus
    claimed_at: int
    """The event in which the message or the inputs stand."""
    chain: tuple[str, ...] = ()
    time: float = 0.0
    time_ended: float = 0.0
    error: JsonObject = msgspec.field(default_factory=dict)


class FiringsTable(Projection[Firing]):
    """One row per firing."""

    name = "firings"
    version = 1
    row_type = Firing
    columns = ("name", "status", "time")
    indexes = (("status",), ("time",))
    kinds = frozenset({facts.TriggerFired.kind, facts.TriggerEnded.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A firing has one row, under the id of its run."""
        return str(getattr(payload, "run_id", ""))

    def apply(self, row: Firing | None, event: Event, payload: Payload) -> Firing | None:
        """Fold one fact; the first claim and the first end count."""
        if isinstance(payload, facts.TriggerFired):
            return row or Firing(
                key=payload.run_id,
                trigger_id=payload.trigger_id,
                name=payload.name,
                occurrence=payload.occurrence,
                run_id=payload.run_id,
                session_id=payload.session_id,
                owner=payload.owner,
                status="open",
                claimed_at=event.session_seq,
                chain=payload.chain,
                time=event.time,
            )
        if row is None or row.status != "open" or not isinstance(payload, facts.TriggerEnded):
            return row
        return msgspec.structs.replace(
            row, status=payload.status, error=payload.error, time_ended=event.time
        )


TRIGGERS = TriggersTable()
FIRINGS = FiringsTable()
TRIGGER_PROJECTIONS: tuple[AnyProjection, ...] = (TRIGGERS, FIRINGS)
"""The tables of this room, for the store."""


class TriggerBook:
    """The triggers of one journal."""

    def __init__(self, journal: Journal) -> None:
        """Keep triggers in this journal."""
        self._journal = journal

    async def add(self, trigger: Trigger) -> TriggerRow:
        """Put a trigger in force, from now on.

        Raises:
            AlreadyExists: there is one of this name.
        """
        made = facts.TriggerCreated(
            trigger_id=make_id("trg"), name=trigger.name, definition=trigger.to_json()
        )
        while True:
            number = await self._read_number()
            if await self._make_row(trigger.name) is not None:
                raise AlreadyExists(kind="trigger", value=trigger.name)
            try:
                await self._journal.append(SYSTEM_SESSION, [made], after=number)
            except StaleWriter:
                continue
            return await self.get(trigger.name)

    async def get(self, name: str) -> TriggerRow:
        """Return a trigger by name.

        Raises:
            NotFound: there is none.
        """
        row = await self._make_row(name)
        if row is None:
            raise NotFound(kind="trigger", value=name)
        return row

    async def remove(self, name: str) -> None:
        """Take a trigger out of force; what it has started goes on.

        Raises:
            NotFound: there is none.
        """
        await self.get(name)
        await self._journal.append(SYSTEM_SESSION, [facts.TriggerRemoved(name=name)])

    async def all(self) -> list[TriggerRow]:
        """Return all triggers in force, by name."""
        query = RowQuery(projection=TRIGGERS, session_id=SYSTEM_SESSION, order="name", limit=_PAGE)
        return [keyed.row for keyed in await self._journal.rows(query)]

    async def firings(
        self, *, name: str = "", status: FiringStatus | None = None, limit: int = 100
    ) -> list[Firing]:
        """Return firings, newest first."""
        where: tuple[Condition, ...] = ()
        if name:
            where += (Condition("name", "=", name),)
        if status is not None:
            where += (Condition("status", "=", status),)
        query = RowQuery(
            projection=FIRINGS,
            session_id=SYSTEM_SESSION,
            where=where,
            order="time",
            descending=True,
            limit=limit,
        )
        return [keyed.row for keyed in await self._journal.rows(query)]

    async def claim(self, fired: facts.TriggerFired, *more: Payload) -> Firing | None:
        """Claim an event or a tick for this process; `None` if it is settled already.

        `more` is stored with the claim.
        """
        while True:
            number = await self._read_number()
            row = await self._make_row(fired.name)
            if row is None or row.id != fired.trigger_id or is_settled(row, fired):
                return None
            try:
                await self._journal.append(SYSTEM_SESSION, [fired, *more], after=number)
            except StaleWriter:
                continue
            return await self._journal.row(FIRINGS, SYSTEM_SESSION, fired.run_id)

    async def given(self, firing: Firing) -> JsonObject:
        """Return the message or the inputs of a firing."""
        [event] = await self._journal.store.read(SYSTEM_SESSION, seqs=[firing.claimed_at])
        return event.expect(facts.TriggerFired).given

    async def append(self, *payloads: Payload) -> None:
        """Keep other facts of triggers."""
        await self._journal.append(SYSTEM_SESSION, payloads)

    async def _make_row(self, name: str) -> TriggerRow | None:
        return await self._journal.row(TRIGGERS, SYSTEM_SESSION, name)

    async def _read_number(self) -> int:
        head = await self._journal.head(SYSTEM_SESSION)
        return head.session_seq if head is not None else 0


def is_settled(row: TriggerRow, fired: facts.TriggerFired) -> bool:
    """Say whether an event or a tick lies behind what a trigger has settled."""
    if fired.tick:
        return row.tick >= fired.tick
    return row.position >= fired.position


__all__ = [
    "FIRINGS",
    "TRIGGERS",
    "TRIGGER_PROJECTIONS",
    "Firing",
    "TriggerBook",
    "TriggerRow",
    "is_settled",
]
