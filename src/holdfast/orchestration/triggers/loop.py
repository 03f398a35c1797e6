"""TriggerLoop: looks at events and clocks, claims, starts, and takes up what others left.

Exactly once: an event or a tick is claimed by a fact before anything starts, the claim names a
run whose id follows from the trigger and the occurrence, and a run exists once. A claim whose
process has died is taken up by the next that looks, and its run goes on where it stood.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    ExpressionInvalid,
    HoldfastError,
    NotFound,
    SchemaTooNew,
    TriggerInvalid,
    WorkflowLimit,
)
from holdfast.journal import SYSTEM_SESSION, Event
from holdfast.orchestration.triggers import events as facts
from holdfast.orchestration.triggers.book import Firing, TriggerBook, TriggerRow, is_settled
from holdfast.orchestration.triggers.cron import compute_next_time, list_newest_times
from holdfast.orchestration.triggers.trigger import Timetable, Trigger
from holdfast.orchestration.workflows.expressions import Names, render
from holdfast.sessions import SessionManager
from holdfast.tools import Label, read_kept_labels

MOST_CHAIN: Final = 5
"""How many triggers may set one another off."""
TRIGGER_KEY: Final = "trigger"
"""Where the metadata of a session keep which triggers led to it."""
ON_TIME_S: Final = 90.0
"""A tick that is older when it is looked at was missed."""
_PASS_AFTER = 2_000
_PAGE = 500
LOOK_S: Final = 5.0
"""How often to look for claims of processes that are gone."""
_HOPS = 20
LABELS: Final = "labels"
"""Where what a firing was given keeps the taint labels of the event that it is made from."""
_OF_STRANGERS: Final = ("mcp.", "egress.")
_ABOUT_TRIGGERS = frozenset({facts.TriggerCreated.kind, facts.TriggerRemoved.kind})


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a firing wants to have started."""

    trigger: Trigger
    firing: Firing
    given: JsonObject


@dataclass(frozen=True, kw_only=True)
class End:
    """How what was started rests."""

    status: facts.FiringStatus
    error: JsonObject


Starter: TypeAlias = Callable[[Start], Awaitable[End]]
"""Starts a run, or resumes it, and says how it ended."""


class TriggerLoop:
    """One process's part in firing the triggers of a journal."""

    def __init__(
        self,
        sessions: SessionManager,
        start: Starter,
        *,
        clock: Clock = SYSTEM,
        most_parallel: int = 4,
        look_s: float = LOOK_S,
        under_way: set[str] | None = None,
    ) -> None:
        """Fire with this starter, so many runs at once; look for dead claims every `look_s`.

        `under_way` holds the runs that this process sees through; loops of one process share it.
        """
        self._sessions = sessions
        self._journal = sessions.journal
        self._book = TriggerBook(sessions.journal)
        self._start = start
        self._clock = clock
        self._look_s = look_s
        self._places = asyncio.Semaphore(most_parallel)
        self._rows: dict[str, TriggerRow] = {}
        self._triggers: dict[str, Trigger | None] = {}
        self._cursor = 0
        self._is_ready = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self._under_way: set[str] = under_way if under_way is not None else set()
        self._looked_at = float("-inf")
        self._chains: dict[str, tuple[str, ...]] = {}

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Fire until told to stop; runs that are under way then come to their end."""
        stop = stop or asyncio.Event()
        ending = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self.step()
                waiting = asyncio.create_task(
                    self._journal.store.changed(self._cursor, self._compute_patience())
                )
                await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await self.settle()
        finally:
            ending.cancel()
            await self.close()

    async def step(self) -> int:
        """Look once at everything that is new, claim it, begin it; returns how many firings."""
        await self._sessions.keeper.show_presence()
        if not self._is_ready:
            await self._read_rows()
            self._cursor = min((row.position for row in self._rows.values()), default=0)
            self._cursor = self._cursor or await self._journal.read_last_seq()
            self._is_ready = True
        begun = await self._take_up()
        for row in list(self._rows.values()):
            begun += await self._tick(row)
        while page := await self._journal.store.feed(after=self._cursor, limit=_PAGE):
            for event in page:
                begun += await self._see(event)
                self._cursor = event.seq
            await self._pass_by()
        return begun

    async def settle(self) -> None:
        """Wait until everything that was begun here rests."""
        while self._running:
            # Unlike gather, it lets the loop turn when all are done: a callback takes them out.
            await asyncio.wait(self._running.values())

    async def close(self) -> None:
        """Leave what is under way to others."""
        for task in list(self._running.values()):
            task.cancel()
        await self.settle()

    # --- events -----------------------------------------------------------------------

    async def _see(self, event: Event) -> int:
        if event.session_id == SYSTEM_SESSION and event.kind in _ABOUT_TRIGGERS:
            await self._read_rows()
            return 0
        if event.kind == facts.TriggerPassed.kind:
            return 0
        begun = 0
        names: dict[str, object] | None = None
        for row in list(self._rows.values()):
            trigger = self._trigger(row)
            if trigger is None or trigger.on is None or row.position >= event.seq:
                continue
            if not trigger.on.wants(event.kind, event.session_id):
                continue
            names = names or {"event": _render(event)}
            if not trigger.on.holds({**names, TRIGGER_KEY: {"name": row.name}}):
                continue
            chain = await self._read_chain(event)
            # Nothing fires on what it started itself, nor on a firing that was refused as too deep.
            if row.id in chain or len(chain) > MOST_CHAIN:
                continue
            if not await self._is_of_project(event, trigger.on.project):
                continue
            claim = _Claim(
                occurrence=f"event {event.seq}",
                position=event.seq,
                chain=chain,
                labels=await self._find_labels(event),
            )
            begun += await self._fire(row, trigger, claim, names)
        return begun

    async def _read_chain(self, event: Event) -> tuple[str, ...]:
        """Return the triggers that led to an event; of nothing that is known, none did."""
        if event.session_id == SYSTEM_SESSION:
            fact = event.decode()
            if isinstance(fact, facts.TriggerFired | facts.TriggerEnded):
                return fact.chain
            return ()
        if event.session_id not in self._chains:
            if len(self._chains) > 10_000:
                self._chains.clear()
            self._chains[event.session_id] = await self._read_session_chain(event.session_id)
        return self._chains[event.session_id]

    async def _read_session_chain(self, session_id: str) -> tuple[str, ...]:
        for _ in range(_HOPS):
            try:
                session = await self._sessions.get_session(session_id)
            except NotFound:
                return ()
            found = session.metadata.get(TRIGGER_KEY)
            if isinstance(found, dict) and isinstance(found.get("chain"), list):
                return tuple(str(one) for one in found["chain"])
            if not session.parent_id:
                return ()
            session_id = session.parent_id
        return ()

    async def _find_labels(self, event: Event) -> tuple[Label, ...]:
        """Return the taint labels of an event's words: what is started with them has read them."""
        if event.session_id == SYSTEM_SESSION:
            # What servers and programs said of themselves stands there too.
            return ("untrusted",) if event.kind.startswith(_OF_STRANGERS) else ()
        return await read_kept_labels(self._journal, event.session_id)

    async def _is_of_project(self, event: Event, project: str) -> bool:
        if not project:
            return True
        try:
            return (await self._sessions.get_session(event.session_id)).project_id == project
        except NotFound:
            return False

    async def _pass_by(self) -> None:
        """Note now and then how far events were looked at, so that a restart need not again."""
        for name, row in list(self._rows.items()):
            trigger = self._trigger(row)
            if trigger is None or trigger.on is None or self._cursor - row.position < _PASS_AFTER:
                continue
            passed = facts.TriggerPassed(trigger_id=row.id, name=name, position=self._cursor)
            await self._book.append(passed)
            self._rows[name] = msgspec.structs.replace(row, position=self._cursor)

    # --- clocks -----------------------------------------------------------------------

    async def _tick(self, row: TriggerRow) -> int:
        trigger = self._trigger(row)
        if trigger is None or trigger.at is None:
            return 0
        now = self._clock.now()
        chosen, newest = list_due_ticks(trigger.at, after=row.tick, now=now)
        begun = 0
        for tick in chosen:
            moment = datetime.fromtimestamp(tick, UTC).isoformat()
            names = {"tick": {"time": moment, "zone": trigger.at.zone}}
            begun += await self._fire(
                row, trigger, _Claim(occurrence=f"tick {moment}", tick=tick), names
            )
        if newest and not chosen:
            # All were missed and none is to be made up for.
            passed = facts.TriggerPassed(trigger_id=row.id, name=row.name, tick=newest)
            await self._book.append(passed)
        if newest:
            self._rows[row.name] = msgspec.structs.replace(row, tick=newest)
        return begun

    def _compute_patience(self) -> float:
        """How long to wait if nothing happens: until the next tick, and not very long."""
        now = self._clock.now()
        seconds = self._look_s
        for row in self._rows.values():
            trigger = self._trigger(row)
            if trigger is not None and trigger.at is not None:
                following = compute_next_time(trigger.at.cron, trigger.at.zone, after=now)
                seconds = min(seconds, following - now if following is not None else seconds)
        return max(0.05, seconds)

    # --- firing -----------------------------------------------------------------------

    async def _fire(
        self, row: TriggerRow, trigger: Trigger, claim: _Claim, names: Mapping[str, object]
    ) -> int:
        key = digest([row.id, claim.occurrence])[:26]
        fired = facts.TriggerFired(
            trigger_id=row.id,
            name=row.name,
            occurrence=claim.occurrence,
            run_id=f"run_{key}",
            session_id=f"ses_{key}",
            owner=self._sessions.keeper.owner,
            position=claim.position,
            tick=claim.tick,
            chain=(*claim.chain, row.id),
        )
        if is_settled(row, fired):
            return 0
        refused: HoldfastError | None = None
        if len(fired.chain) > MOST_CHAIN:
            detail = f"more than {MOST_CHAIN} triggers set one another off"
            refused = WorkflowLimit(step=f"the trigger {row.name}", detail=detail)
        try:
            given = _resolve_inputs(trigger, {**names, TRIGGER_KEY: {"name": row.name}})
            if claim.labels:
                given[LABELS] = list(claim.labels)
            fired = msgspec.structs.replace(fired, given=given)
        except ExpressionInvalid as error:
            refused = error
        ends = (_make_ended(fired, "refused", refused.to_dict()),) if refused is not None else ()
        firing = await self._book.claim(fired, *ends)
        known = self._rows.get(row.name)
        if known is not None and known.id == row.id:
            self._rows[row.name] = msgspec.structs.replace(
                known,
                position=max(known.position, claim.position),
                tick=max(known.tick, claim.tick),
            )
        if firing is None or refused is not None:
            return 0
        self._begin(trigger, firing)
        return 1

    def _begin(self, trigger: Trigger, firing: Firing) -> None:
        if firing.run_id in self._under_way:
            return
        self._under_way.add(firing.run_id)
        task = asyncio.create_task(self._see_through(trigger, firing))
        self._running[firing.run_id] = task
        task.add_done_callback(lambda _: self._forget(firing.run_id))

    def _forget(self, run_id: str) -> None:
        self._running.pop(run_id, None)
        self._under_way.discard(run_id)

    async def _see_through(self, trigger: Trigger, firing: Firing) -> None:
        async with self._places:
            try:
                given = await self._book.given(firing)
                end = await self._start(Start(trigger=trigger, firing=firing, given=given))
            except HoldfastError as error:
                end = End(status="failed", error=error.to_dict())
        await self._book.append(_make_ended(firing, end.status, end.error))

    async def _take_up(self) -> int:
        """Begin again what a process claimed that is gone."""
        now = self._clock.monotonic()
        if now - self._looked_at < self._look_s:
            return 0
        self._looked_at = now
        begun = 0
        owner = self._sessions.keeper.owner
        # What ends while the book is read stands there as open.
        before = frozenset(self._under_way)
        for firing in await self._book.firings(status="open", limit=_PAGE):
            if firing.owner != owner and await self._journal.store.is_alive(firing.owner):
                continue
            row = self._rows.get(firing.name)
            trigger = self._trigger(row) if row is not None else None
            if firing.run_id in before or firing.run_id in self._under_way:
                continue
            if row is None or row.id != firing.trigger_id or trigger is None:
                gone = NotFound(kind="trigger", value=firing.name)
                await self._book.append(_make_ended(firing, "refused", gone.to_dict()))
                continue
            self._begin(trigger, firing)
            begun += 1
        return begun

    # --- triggers ---------------------------------------------------------------------

    async def _read_rows(self) -> None:
        self._rows = {row.name: row for row in await self._book.all()}

    def _trigger(self, row: TriggerRow) -> Trigger | None:
        """Return what a trigger says; one that a newer release wrote may be unreadable."""
        if row.id not in self._triggers:
            try:
                self._triggers[row.id] = row.trigger
            except TriggerInvalid:
                self._triggers[row.id] = None
        return self._triggers[row.id]


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """The event or tick that fires."""

    occurrence: str
    position: int = 0
    tick: float = 0.0
    chain: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()


def list_due_ticks(at: Timetable, *, after: float, now: float) -> tuple[list[float], float]:
    """Return the ticks that fire now, oldest first, and the newest tick that is settled by it.

    Ticks of the last moments are on time; what becomes of older ones is for `missed` to say.
    """
    ticks = list_newest_times(at.cron, at.zone, after=after, until=now, most=at.most_missed)
    if not ticks:
        return [], 0.0
    on_time = [tick for tick in ticks if now - tick <= ON_TIME_S]
    if at.missed == "all":
        return ticks, ticks[-1]
    if at.missed == "once" and not on_time:
        return ticks[-1:], ticks[-1]
    return on_time, ticks[-1]


def _resolve_inputs(trigger: Trigger, names: Names) -> JsonObject:
    if trigger.agent is not None:
        message = render(trigger.message, names)
        return {"message": message if isinstance(message, str) else str(message)}
    return {"inputs": render(trigger.with_, names)}


def _make_ended(
    about: facts.TriggerFired | Firing, status: facts.FiringStatus, error: JsonObject
) -> facts.TriggerEnded:
    return facts.TriggerEnded(
        trigger_id=about.trigger_id,
        name=about.name,
        occurrence=about.occurrence,
        run_id=about.run_id,
        status=status,
        chain=about.chain,
        error=error,
    )


def _render(event: Event) -> JsonObject:
    """Return what expressions see of an event."""
    data: object = {}
    with contextlib.suppress(SchemaTooNew, msgspec.DecodeError):
        data = msgspec.to_builtins(event.decode())
    return {
        "kind": event.kind,
        "seq": event.seq,
        "session_id": event.session_id,
        "run_id": event.run_id,
        "agent_path": event.agent_path,
        "time": event.time,
        "data": data,
    }


__all__ = ["MOST_CHAIN", "TRIGGER_KEY", "End", "Start", "Starter", "TriggerLoop", "list_due_ticks"]
