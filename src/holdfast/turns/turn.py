"""Turns: what a handler is given, and how it can end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, LeaseLost, RunInTheWay, UsageError
from holdfast.journal import Condition, Encoded, Event, Origin, Payload, RowQuery
from holdfast.messages import Message, ToolPart, strip_session
from holdfast.sessions import SIGNALS, Lease, Run, Session, SessionManager
from holdfast.sessions import events as facts

_LOOK_AGAIN_S = 0.05
"""How long a turn may be unaware of what another process has sent to it."""
_MOMENT_S = 0.1
"""How long facts wait for company."""

ENCLOSING: ContextVar[Turn | None] = ContextVar("holdfast_enclosing_turn", default=None)
"""The turn whose handler is at work; runs that it starts are executed inside it."""

StoreFacts: TypeAlias = Callable[[Sequence[Encoded]], Awaitable[object]]
"""Stores facts, together or not at all."""


class TurnCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """The run has done its work."""

    result: JsonObject = msgspec.field(default_factory=dict)


class TurnParked(msgspec.Struct, frozen=True, kw_only=True):
    """The run waits for an answer; it goes on after `TurnQueue.wake`."""

    reason: str


class TurnCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The run was ended on request; `stopped_by` is who stopped it where it asked, if one did."""

    reason: str = ""
    stopped_by: str = ""


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The run cannot go on; `error` is an error's `to_dict`."""

    error: JsonObject


Outcome: TypeAlias = TurnCompleted | TurnParked | TurnCancelled | TurnFailed


class CancelRequest(asyncio.Event):
    """Set when another process asked for a run to end, by one or by several."""

    _within_s: float | None = None
    _deadline: asyncio.Timeout | None = None
    """That of what is under way, if something is."""

    def ending(self, within_s: float | None = None) -> CancelRequest:
        """End what is done inside as soon as this is set, or after so many seconds.

        It ends with TimeoutError; the deadline that is given may be moved. One block at a time.
        """
        self._within_s = within_s
        return self

    async def __aenter__(self) -> asyncio.Timeout:
        """Begin, and end at once if another process has asked already."""
        deadline = asyncio.timeout(self._within_s)
        self._deadline = await deadline.__aenter__()
        if self.is_set():
            self.set()
        return deadline

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say by TimeoutError that it was ended."""
        deadline, self._deadline = self._deadline, None
        assert deadline is not None
        await deadline.__aexit__(kind, error, trace)

    def set(self) -> None:
        """Wake the process that waits, and end what is under way."""
        super().set()
        # The process that asks again while the work is ending, asks for nothing new.
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())


async def _notify_nothing(_facts: Sequence[Encoded]) -> None:
    raise UsageError(detail="The turn has ended; nothing more can be stored with it.")


class WriteBuffer(msgspec.Struct):
    """Facts of one turn that need no commit of their own, in the order in which they came.

    A crash loses them, so the process that defers must be able to do the work again.
    """

    store: StoreFacts
    _waiting: list[Encoded] = msgspec.field(default_factory=list)
    _timer: asyncio.TimerHandle | None = None
    _due: float = 0.0
    _storing: asyncio.Task[None] | None = None

    def add(self, fact: Encoded) -> None:
        """Take a fact; it is stored a moment later at the latest."""
        self._waiting.append(fact)
        is_first = len(self._waiting) == 1
        if is_first or self._timer is None:
            loop = asyncio.get_running_loop()
            if is_first:
                self._due = loop.time() + _MOMENT_S
            if self._timer is None:
                self._timer = loop.call_at(self._due, self._store_soon, loop)

    async def take(self) -> list[Encoded]:
        """Hand over what waits, to be stored before the taker's own facts.

        What is being stored right now is stored first, and with it what came meanwhile.
        """
        if self._storing is not None:
            await self.flush()
        taken, self._waiting = self._waiting, []
        return taken

    def end(self) -> None:
        """Take no more; what is being stored is let go, so that an ended turn leads to nothing."""
        self.store = _notify_nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def put_back(self, facts: Sequence[Encoded]) -> None:
        """Take back what could not be stored; the next one tries again."""
        self._waiting[:0] = facts

    async def flush(self) -> None:
        """Store what waits now; raises what the store raises."""
        while self._waiting or self._storing is not None:
            if self._storing is None:
                self._storing = asyncio.create_task(self._store_waiting())
            await asyncio.shield(self._storing)

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                try:
                    await self.store(taken)
                except Exception:
                    # Not when the loop ends: then they are stored, or lost as by a crash.
                    self.put_back(taken)
                    raise
        finally:
            self._storing = None

    def _store_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._waiting or self._storing is not None:
            return
        if loop.time() < self._due:
            # What it was set for is stored; what waits now came later.
            self._timer = loop.call_at(self._due, self._store_soon, loop)
        else:
            self._storing = asyncio.create_task(self._store_quietly())

    async def _store_quietly(self) -> None:
        try:
            await self._store_waiting()
        except HoldfastError:
            return  # they wait again, and the process that appends next meets the same trouble


class Turn:
    """A run that holds the session: what a handler works with."""

    def __init__(
        self,
        manager: SessionManager,
        run: Run,
        lease: Lease,
        request: facts.RunQueued,
        session: Session | None = None,
        *,
        correlation_id: str = "",
    ) -> None:
        """Made by the queue."""
        self.run = run
        self.session_id = run.session_id
        """The session that this turn holds."""
        self.epoch = lease.epoch
        """The epoch under which this turn writes."""
        self.correlation_id = correlation_id
        """What the run belongs to, if it was told; its facts bear it too."""
        self.session = session
        """The session as it was when the turn began, if nothing came between."""
        self.request = request
        self.is_resumed = run.has_started
        self.cancelled = CancelRequest()
        """Set when the run was asked to end; the handler returns `Cancelled` soon."""
        self.cancel_reason = ""
        self.stopped_by = ""
        """Who stopped a run below this one where that asked, if that is why this one shall end."""
        self.was_redacted = False
        """Whether a fact of this turn was stored otherwise than it was given, for a secret."""
        self.is_released = False
        """Whether the session was given back with the last facts."""
        self.ended: Run | None = None
        """The run as it ended, if no other process has said anything about it meanwhile."""
        self._manager = manager
        self.lease = lease
        self.enclosing = ENCLOSING.get()
        """The turn whose call executes this one, if any."""
        self._is_overtaken = self._is_stopping = False
        self._task: asyncio.Task[Any] | None = None
        self._deferred = WriteBuffer(self._store)
        # Up to where all events since the turn began are its own, and up to where it has
        # looked for steering; a run that has not begun before cannot have been steered.
        self._own = self.last = lease.session_seq
        self._looked = 0 if self.is_resumed else lease.session_seq
        # When it last saw where the log ends.
        self._saw_end = manager.journal.clock.monotonic()
        self._last_event: Event | None = None

    def ask_to_end(self, reason: str, stopped_by: str = "") -> None:
        """Tell the handler that another process wants the run to end, and why."""
        self.cancel_reason, self.stopped_by = reason, stopped_by
        self.cancelled.set()

    @property
    def has_lost_lease(self) -> bool:
        """Whether this turn, or one that it is executed for, lost its session to another process.

        Nothing may be stored or begun then. The run stays as it is, for whoever took over.
        """
        if self._is_overtaken:
            return True
        return self.enclosing is not None and self.enclosing.has_lost_lease

    def is_still_mine(self) -> bool:
        """Say whether nobody else can hold the session now: a last look before an effect.

        Safe from any thread. It narrows the time in which a process that was stopped may act
        after another one; only a target that checks `epoch`, the fencing token, closes it.
        """
        if not self._is_overtaken and not self._manager.keeper.does_still_hold(self.lease):
            self._is_overtaken = True
        return not self.has_lost_lease

    async def work(self, handler: Handler) -> Outcome:
        """Call the handler, and stop what it does when the lease is lost.

        Raises:
            LeaseLost: another process has taken over; nothing was stored since.
        """
        self._task = task = asyncio.current_task()
        assert task is not None
        inside = ENCLOSING.set(self)
        try:
            outcome = await handler(self)
        except (Exception, asyncio.CancelledError):
            self._check_undisturbed(task)
            raise
        finally:
            self._task = None
            ENCLOSING.reset(inside)
        if self._is_overtaken or self.enclosing is not None:
            self._check_undisturbed(task)
        return outcome

    def overtake(self) -> None:
        """Stop what the handler does, at once and without a trace: the lease is lost."""
        self._is_overtaken = True
        self._deferred.end()
        if self._task is not None and not self._is_stopping:
            self._is_stopping = self._task.cancel()

    def _check_undisturbed(self, task: asyncio.Task[Any]) -> None:
        if not self.has_lost_lease:
            return
        if self._is_stopping:
            task.uncancel()
        if self._is_overtaken and not task.cancelling():
            raise self._make_loss()
        # The caller was cancelled as well, or it is the turn around this one that was overtaken.
        raise asyncio.CancelledError

    def _make_loss(self) -> LeaseLost:
        return LeaseLost(session_id=self.session_id, current="another one", held=self.epoch)

    def hear(self) -> None:
        """Take note that this process has sent something to the run."""
        self._saw_end = -math.inf

    def make_in_the_way(self) -> RunInTheWay:
        """Return what a handler raises that cannot execute this run.

        The run stays as it is, for the process that can; what stands behind it has to wait.
        """
        return RunInTheWay(run_id=self.run.id, agent=self.request.agent, session_id=self.session_id)

    async def is_lost(self) -> bool:
        """Say whether another process has taken over."""
        [head] = await self._manager.journal.store.heads(self.session_id)
        return head.epoch != self.epoch

    async def append(
        self,
        *payloads: Payload,
        agent_path: str = "",
        after: int | None = None,
        is_synced: bool = False,
        release: bool = False,
    ) -> tuple[Event, ...]:
        """Append facts of this run, behind those that were deferred.

        They are stored together or not at all. `release` gives the session back with them.

        Raises:
            LeaseLost: another process has taken over; stop at once.
            StaleWriter: the session does not end at event `after`, where that is given.
        """
        waiting, last = await self._deferred.take(), self.last
        try:
            events = await self._store(
                (*waiting, *payloads),
                agent_path=agent_path,
                after=after,
                is_synced=is_synced,
                release=release,
            )
        except BaseException as error:
            # A cancellation may have come while they were being stored.
            is_cancelled = waiting and isinstance(error, asyncio.CancelledError)
            if not is_cancelled or not await asyncio.shield(self._has_stored(waiting, last)):
                self._deferred.put_back(waiting)
            raise
        if release:
            self._deferred.end()
        return events[len(waiting) :]

    def defer(self, *payloads: Payload, agent_path: str = "") -> None:
        """Append facts of this run with the next ones, or a moment later.

        For what needs no commit of its own because it can be done again after a crash, such
        as the result of a mere read.
        """
        journal = self._manager.journal
        origin = Origin(
            run_id=self.run.id, agent_path=agent_path, correlation_id=self.correlation_id
        )
        for fact in payloads:
            self._deferred.add(journal.encode(fact, origin))

    async def flush(self) -> None:
        """Store what was deferred, now."""
        await self._deferred.flush()

    async def _store(
        self,
        given: Sequence[Payload | Encoded],
        *,
        agent_path: str = "",
        after: int | None = None,
        is_synced: bool = False,
        release: bool = False,
    ) -> tuple[Event, ...]:
        if self._is_overtaken or (self.enclosing is not None and self.has_lost_lease):
            raise self._make_loss()
        journal = self._manager.journal
        origin = Origin(
            run_id=self.run.id, agent_path=agent_path, correlation_id=self.correlation_id
        )
        batch = journal.batch(given, origin)
        self.was_redacted = self.was_redacted or batch.was_redacted
        events = await journal.append(
            self.session_id,
            batch,
            epoch=self.epoch,
            after=after,
            is_synced=is_synced,
            release=release,
        )
        transcript = self._manager.messages.transcripts.kept.get(self.session_id)
        if transcript is not None:
            transcript.follow(events, batch.drafts, self._last_event)
        self._last_event = events[-1]
        before, last = events[0].session_seq - 1, events[-1].session_seq
        self.last, self._saw_end = last, journal.clock.monotonic()
        if self._own == before:
            self._own = last
        if self._looked == before:
            self._looked = last
        return events

    async def _has_stored(self, waited: Sequence[Encoded], after: int) -> bool:
        """Say whether facts that are stored together are in the journal, behind this number."""
        [draft] = self._manager.journal.batch(waited[:1]).drafts
        events = await self._manager.journal.store.read(self.session_id, after=after)
        stored_facts = {(event.time, event.payload_digest) for event in events}
        return (draft.time, draft.payload_digest) in stored_facts

    @property
    def is_alone(self) -> bool:
        """Whether every event since the run began is its own, as far as its appends have shown."""
        return self._own == self.last and not self.is_resumed

    @property
    def may_be_steered(self) -> bool:
        """Whether another process may have written something that it has not looked at yet.

        Its own appends show that, and the process that steers in this process says so; what another
        process has sent it may overlook for a moment.
        """
        if self._looked != self.last:
            return True
        return self._manager.journal.clock.monotonic() - self._saw_end > _LOOK_AGAIN_S

    async def add_message(self, message: Message, *, agent_path: str = "") -> None:
        """Add a message of this run to the conversation."""
        await self.append(
            facts.MessageCreated(message=strip_session(message)), agent_path=agent_path
        )

    async def close_calls(self, because: str) -> tuple[ToolPart, ...]:
        """Give every call that has no result an error, so that the conversation can go on.

        It goes by the journal alone: a cancellation can hit the process that adds a message when
        that is stored and its author has not heard so. Only the last message can have such calls.
        """
        await self.flush()
        session = await self._manager.get_session(self.session_id)
        return await self._close(await self._manager.messages.last(session, 1), because)

    async def close_own_calls(self, because: str) -> tuple[ToolPart, ...]:
        """Do what `close_calls` does for all messages of this run, which makes calls side by side.

        It reads the whole conversation.
        """
        await self.flush()
        session = await self._manager.get_session(self.session_id)
        messages = await self._manager.messages.all(session)
        return await self._close([one for one in messages if one.run_id == self.run.id], because)

    async def _close(self, messages: Sequence[Message], because: str) -> tuple[ToolPart, ...]:
        closed = [
            (message.id, msgspec.structs.replace(part, state="error", error=because))
            for message in messages
            for part in message.tool_calls
            if part.state == "pending"
        ]
        if closed:
            await self.append(
                *[facts.MessagePartUpdated(message_id=id_, part=part) for id_, part in closed]
            )
        return tuple(part for _, part in closed)

    async def take_steering(self) -> tuple[Message, ...]:
        """Return messages that arrived for this run since the last call.

        They join the conversation in the same transaction that takes them from the inbox.
        """
        number = await self._manager.find_last_number(self.session_id)
        self._saw_end = self._manager.journal.clock.monotonic()
        if number == self._looked:
            return ()
        taken = [
            facts.MessageCreated(message=sent.message, signal_id=sent.signal_id)
            for sent in await self.list_steering()
            if sent.message is not None
        ]
        self._looked = number
        if taken:
            await self.append(*taken)
        return tuple(
            msgspec.structs.replace(fact.message, session_id=self.session_id) for fact in taken
        )

    async def list_steering(self) -> list[facts.RunSteered]:
        """Return what was sent to this run and not taken yet, oldest first."""
        query = RowQuery(
            projection=SIGNALS,
            session_id=self.session_id,
            where=(Condition("run_id", "=", self.run.id),),
            order="session_seq",
            limit=200,
        )
        numbers = [found.row.session_seq for found in await self._manager.journal.rows(query)]
        if not numbers:
            return []
        events = await self._manager.journal.store.read(self.session_id, seqs=numbers)
        return [event.expect(facts.RunSteered) for event in events]


Handler: TypeAlias = Callable[[Turn], Awaitable[Outcome]]
