"""Turns: what a handler is given, and how it can end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import RunInTheWay
from holdfast.journal import Payload
from holdfast.journal.envelope import Encoded, Event, Origin
from holdfast.journal.projection import Condition, RowQuery
from holdfast.messages import Message, ToolPart
from holdfast.sessions import events as facts
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.model import Session
from holdfast.sessions.projections import SIGNALS, Run
from holdfast.sessions.writing import Lease
from holdfast.turns.write_buffer import WriteBuffer

_LOOK_AGAIN_S = 0.05
"""How long a turn may be unaware of what another process has sent to it."""


class TurnCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """The run has done its work."""

    result: JsonObject = msgspec.field(default_factory=dict)


class TurnParked(msgspec.Struct, frozen=True, kw_only=True):
    """The run waits for somebody; it goes on after `TurnQueue.wake`."""

    reason: str


class TurnCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The run was ended on request; `stopped_by` is who stopped it where it asked, if anyone."""

    reason: str = ""
    stopped_by: str = ""


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The run cannot go on; `error` is an error's `to_dict`."""

    error: JsonObject


Outcome: TypeAlias = TurnCompleted | TurnParked | TurnCancelled | TurnFailed


class CancelRequest(asyncio.Event):
    """Set when somebody asked for a run to end, by one or by several."""

    end: Callable[[], None] | None = None
    """Ends what is under way, if something is."""

    def ending(self, within_s: float | None = None) -> Ending:
        """End what is done inside as soon as this is set, or after so many seconds.

        It ends with TimeoutError; the deadline that is given may be moved. One block at a time.
        """
        return Ending(self, within_s)

    def set(self) -> None:
        """Wake whoever waits, and end what is under way."""
        super().set()
        if self.end is not None:
            self.end()


class Ending:
    """A block that a request ends; a class, because every run enters one."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, request: CancelRequest, within_s: float | None) -> None:
        """Made by `CancelRequest.ending`."""
        self._request = request
        self._deadline = asyncio.timeout(within_s)

    async def __aenter__(self) -> asyncio.Timeout:
        """Begin, and end at once if somebody has asked already."""
        await self._deadline.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._request.end = self._end
        if self._request.is_set():
            self._end()
        return self._deadline

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say by TimeoutError that it was ended."""
        self._request.end = None
        await self._deadline.__aexit__(kind, error, trace)

    def _end(self) -> None:
        # Whoever asks again while the work is ending, asks for nothing new.
        if not self._deadline.expired():
            self._deadline.reschedule(self._loop.time())


class _Origins(dict[str, Origin]):
    """Where the facts of one run come from, by the path of the agent inside it."""

    def __init__(self, run_id: str, correlation_id: str) -> None:
        super().__init__()
        self._run_id = run_id
        self._correlation_id = correlation_id

    def __missing__(self, agent_path: str) -> Origin:
        made = self[agent_path] = Origin(
            run_id=self._run_id, agent_path=agent_path, correlation_id=self._correlation_id
        )
        return made


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
        """Set when somebody asked for the run to end; the handler returns `Cancelled` soon."""
        self.cancel_reason = ""
        self.stopped_by = ""
        """Who stopped a run below this one where that asked, if that is why this one shall end."""
        self.was_redacted = False
        """Whether a fact of this turn was stored otherwise than it was given, for a secret."""
        self.is_released = False
        """Whether the session was given back with the last facts."""
        self.ended: Run | None = None
        """The run as it ended, if nobody else has said anything about it meanwhile."""
        self._manager = manager
        self.lease = lease
        self._deferred = WriteBuffer(self._store)
        # Up to where all events since the turn began are its own, and up to where it has
        # looked for steering; a run that has not begun before cannot have been steered.
        self._own = self.last = lease.session_seq
        self._looked = 0 if self.is_resumed else lease.session_seq
        # When it last saw where the log ends.
        self._saw_end = manager.journal.clock.monotonic()
        self._origins = _Origins(run.id, correlation_id)
        self._last_event: Event | None = None

    def ask_to_end(self, reason: str, stopped_by: str = "") -> None:
        """Tell the handler that somebody wants the run to end, and why."""
        self.cancel_reason, self.stopped_by = reason, stopped_by
        self.cancelled.set()

    def hear(self) -> None:
        """Take note that this process has sent something to the run."""
        self._saw_end = -math.inf

    def in_the_way(self) -> RunInTheWay:
        """Return what a handler raises that cannot execute this run.

        The run stays as it is, for whoever can; what stands behind it has to wait.
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
        journal, origin = self._manager.journal, self._origins[agent_path]
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
        journal = self._manager.journal
        batch = journal.batch(given, self._origins[agent_path])
        self.was_redacted = self.was_redacted or batch.was_redacted
        events = await journal.append(
            self.session_id,
            batch,
            epoch=self.epoch,
            after=after,
            is_synced=is_synced,
            release=release,
        )
        self._manager.messages.transcripts.follow(events, batch.drafts, self._last_event)
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
        """Whether somebody else may have written something that it has not looked at yet.

        Its own appends show that, and whoever steers in this process says so; what another
        process has sent it may overlook for a moment.
        """
        if self._looked != self.last:
            return True
        return self._manager.journal.clock.monotonic() - self._saw_end > _LOOK_AGAIN_S

    async def add_message(self, message: Message, *, agent_path: str = "") -> None:
        """Add a message of this run to the conversation."""
        kept = msgspec.structs.replace(message, session_id="")  # as `stored` makes it
        await self.append(facts.MessageCreated(message=kept), agent_path=agent_path)

    async def close_calls(self, because: str) -> tuple[ToolPart, ...]:
        """Give every call that has no result an error, so that the conversation can go on.

        It goes by the journal alone: a cancellation can hit whoever adds a message when that is
        stored and its author has not heard so. Only the last message can have such calls.
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
        number = await self._manager.last_number(self.session_id)
        self._saw_end = self._manager.journal.clock.monotonic()
        if number == self._looked:
            return ()
        taken = [
            facts.MessageCreated(message=sent.message, signal_id=sent.signal_id)
            for sent in await self.steering()
            if sent.message is not None
        ]
        self._looked = number
        if taken:
            await self.append(*taken)
        return tuple(
            msgspec.structs.replace(fact.message, session_id=self.session_id) for fact in taken
        )

    async def steering(self) -> list[facts.RunSteered]:
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
