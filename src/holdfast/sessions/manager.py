"""Sessions: create, find, change, archive, fork, revert, delete.

Every change is a fact in the journal; what is returned is what the facts add up to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, NotFound, SessionBusy, UsageError
from holdfast.ids import check_id, make_id
from holdfast.journal import (
    NO_ORIGIN,
    AnyProjection,
    AppendRequest,
    Condition,
    Draft,
    Event,
    Journal,
    Origin,
    Payload,
    RowQuery,
    SessionDeleted,
    chain_events,
)
from holdfast.messages import Message, Part, compose, strip_session
from holdfast.sessions import events as facts
from holdfast.sessions.acting import SUBJECT
from holdfast.sessions.events import ForkPoint, PermissionRule, Ranges, SessionState
from holdfast.sessions.fork import copy_draft
from holdfast.sessions.messages import MESSAGES, MessageReader
from holdfast.sessions.pages import Page, fetch_page
from holdfast.sessions.runs import RUNS, SIGNALS, Run
from holdfast.sessions.session import (
    LONGEST_TITLE,
    SESSIONS,
    STATES,
    Session,
    check_metadata,
    check_open,
    check_title,
    check_transition,
    hide,
    make_new_session,
    make_slug,
    merge_metadata,
)
from holdfast.sessions.writing import SessionLeases, Writing

SESSION_PROJECTIONS: tuple[AnyProjection, ...] = (SESSIONS, MESSAGES, RUNS, SIGNALS)
"""The tables of this room, for the store."""

SortField: TypeAlias = Literal[
    "time_updated", "time_created", "title", "message_count", "total_cost"
]
_WAIT_S = 10.0


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a listing shows; what is not given does not matter."""

    project_id: str | None = None
    directory: str | None = None
    parent_id: str | None = None
    owner: str | None = None
    state: SessionState | None = None
    title_contains: str | None = None
    updated_after: float | None = None
    updated_before: float | None = None

    def conditions(self) -> tuple[Condition, ...]:
        """Return the filter as conditions on the sessions table."""
        if self.state is not None and self.state not in STATES:
            raise UsageError(detail=f"A session's state is one of {', '.join(STATES)}.")
        given = (
            ("project_id", "=", self.project_id),
            ("directory", "=", self.directory),
            ("parent_id", "=", self.parent_id),
            ("owner", "=", self.owner),
            ("state", "=", self.state),
            ("title", "contains", self.title_contains),
            ("time_updated", ">=", self.updated_after),
            ("time_updated", "<", self.updated_before),
        )
        return tuple(
            Condition(column, operator, value)  # type: ignore[arg-type]
            for column, operator, value in given
            if value is not None
        )


class SessionManager:
    """The sessions of one journal."""

    def __init__(self, journal: Journal, keeper: SessionLeases) -> None:
        """Work on this journal; the keeper holds leases for this process."""
        self.journal = journal
        self.keeper = keeper
        self.messages = MessageReader(journal)

    # --- create, find -----------------------------------------------------------------

    async def create_session(
        self,
        title: str,
        *,
        project_id: str = "",
        directory: str | os.PathLike[str] = ".",
        parent_id: str = "",
        permission: Sequence[PermissionRule] = (),
        metadata: JsonObject | None = None,
        ttl_s: float | None = None,
        session_id: str = "",
    ) -> Session:
        """Begin a session and return it.

        Without a `directory` it belongs to the current one; without a `project_id` the
        project is the directory's. A `session_id` of one's own makes the call safe to repeat:
        the second time it raises.

        Raises:
            AlreadyExists: there is a session with this id.
            NotFound: there is no session `parent_id`.
        """
        owner = ""
        if parent_id:
            parent = await self.get_session(parent_id)
            parent_id, owner = parent.id, parent.owner
        new = make_new_session(
            title,
            project_id=project_id,
            directory=directory,
            parent_id=parent_id,
            permission=permission,
            metadata=metadata,
            expires_at=self._compute_expiry(ttl_s) if ttl_s is not None else 0.0,
            session_id=session_id,
            owner=owner,
        )
        await self.journal.append(new.id, [new.created], must_be_new=True)
        return await self.get_session(new.id)

    async def get_session(self, session_id: str) -> Session:
        """Return a session by its id or slug.

        Raises:
            NotFound: there is none.
        """
        check_id(session_id, "session")
        found = await self.journal.row(SESSIONS, session_id, session_id)
        if found is None:
            query = RowQuery(
                projection=SESSIONS, where=(Condition("slug", "=", session_id),), limit=1
            )
            by_slug = await self.journal.rows(query)
            if not by_slug:
                raise NotFound(kind="session", value=session_id)
            found = by_slug[0].row
        return found

    async def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        sort: SortField = "time_updated",
        descending: bool = True,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Session]:
        """Return a page of sessions, most recently used first unless asked otherwise."""
        query = RowQuery(
            projection=SESSIONS,
            where=(where or SessionFilter()).conditions(),
            order=sort,
            descending=descending,
            limit=limit,
        )
        return await fetch_page(self.journal, query, cursor)

    async def most_recent(self, where: SessionFilter | None = None) -> Session | None:
        """Return the session that was used last, to go on with it."""
        page = await self.list_sessions(where, limit=1)
        return page.items[0] if page.items else None

    # --- change -----------------------------------------------------------------------

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        summary: str | None = None,
        permission: Sequence[PermissionRule] | None = None,
        metadata: JsonObject | None = None,
        ttl_s: float | None = None,
    ) -> Session:
        """Change what is given and return the session; works while a turn is running.

        `metadata` is merged key by key; a value of `None` removes the key. `ttl_s` counts
        from now; 0 takes the limit away.
        """
        session = await self.get_session(session_id)
        if metadata is not None:
            check_metadata(merge_metadata(session.metadata, metadata))
        changes = facts.SessionChanges(
            title=msgspec.UNSET if title is None else check_title(title),
            summary=msgspec.UNSET if summary is None else summary,
            permission=msgspec.UNSET if permission is None else tuple(permission),
            metadata=msgspec.UNSET if metadata is None else metadata,
            expires_at=msgspec.UNSET if ttl_s is None else self._compute_expiry(ttl_s),
        )
        if changes == facts.SessionChanges():
            return session
        await self.journal.append(session.id, [facts.SessionUpdated(changes=changes)])
        return await self.get_session(session.id)

    async def change_state(
        self, session_id: str, state: SessionState, *, reason: str = ""
    ) -> Session:
        """Bring a session to another state, if that is legal.

        Raises:
            InvalidTransition: with the states that are allowed instead.
            SessionBusy: a turn holds the session; or has not ended, and the state is final.
        """
        if state not in STATES:
            raise UsageError(detail=f"A session's state is one of {', '.join(STATES)}.")
        session = await self.get_session(session_id)
        check_transition(session, state)
        async with self.writing(session.id) as hold:
            check_transition(await self.get_session(session.id), state)
            if state not in ("active", "suspended"):
                await self.check_idle(session.id)
            if state == "archived":
                fact: Payload = facts.SessionArchived(reason=reason)
            elif state == "active":
                fact = facts.SessionRestored(reason=reason)
            else:
                fact = facts.SessionStateChanged(state=state, reason=reason)
            await hold.append(fact, is_last=True)
        return await self.get_session(session.id)

    async def archive_session(self, session_id: str, *, reason: str = "") -> Session:
        """Put a session away; it can be restored."""
        return await self.change_state(session_id, "archived", reason=reason)

    async def restore_session(self, session_id: str, *, reason: str = "") -> Session:
        """Make a session active again, whatever state it is in."""
        return await self.change_state(session_id, "active", reason=reason)

    async def delete_session(
        self, session_id: str, *, reason: str = "", wait_s: float = _WAIT_S
    ) -> None:
        """Remove a session for good; only the fact that it existed remains.

        Raises:
            SessionBusy: a turn holds the session for longer than `wait_s`.
        """
        session = await self.get_session(session_id)
        async with self.writing(session.id, wait_s=wait_s) as hold:
            await self.delete_held(hold, session.id, reason)

    async def delete_held(self, hold: Writing, session_id: str, reason: str) -> None:
        """Remove a session that the caller holds."""
        # The process that appends while the hold lasts appends behind `last`; it goes all the same.
        [head] = await self.journal.store.heads(session_id)
        note = SessionDeleted(
            session_id=session_id, last=head.session_seq, hash=head.hash, reason=reason
        )
        await self.journal.store.delete(session_id, self.journal.draft(note), hold.epoch)
        hold.forget()

    async def fork_session(
        self, session_id: str, *, at: int | None = None, title: str = ""
    ) -> Session:
        """Begin a new session with everything up to event `at` (default: all) taken over.

        Conversation and settings are taken over, runs and states are not; what the first
        session spent is not counted again. Events keep their numbers.

        Raises:
            UsageError: there is no event with this number.
        """
        source = await self.get_session(session_id)
        if at is not None:
            await self._check_number(source.id, at)
        events = await self.journal.read_all(source.id, up_to=at)
        point = ForkPoint(
            session_id=source.id, session_seq=events[-1].session_seq, hash=events[-1].hash
        )
        name = make_id("ses")
        fork_title = check_title(title) if title else f"{source.title[: LONGEST_TITLE - 7]} (fork)"
        created = msgspec.structs.replace(
            events[0].expect(facts.SessionCreated),
            title=fork_title,
            slug=make_slug(fork_title, name),
            version=__version__,
            forked_from=point,
            owner=SUBJECT.get() or source.owner,
        )
        drafts = (
            self.journal.draft(created),
            *[
                copy_draft(self.journal, event, is_kept=lambda kind: kind.is_inherited)
                for event in events[1:]
            ],
            self.journal.draft(
                facts.SessionUpdated(changes=facts.SessionChanges(title=fork_title))
            ),
            self.journal.draft(facts.SessionForked(source=point)),
        )
        return await self._begin_copy(name, drafts)

    async def import_events(
        self, events: Sequence[Event], *, as_new: bool = False, further: Sequence[Payload] = ()
    ) -> Session:
        """Store the checked events of an export; `as_new` chains them anew under another id.

        A session imported `as_new` is a copy: it has everything but the runs, because a run
        exists once. Events keep their numbers. `further` are facts of this import, stored with
        them or not at all.

        Raises:
            AlreadyExists: the session, or another one with its slug, is already here.
        """
        created = events[0].expect(facts.SessionCreated)
        if as_new:
            name = make_id("ses")
            first = msgspec.structs.replace(
                created, slug=make_slug(created.title, name), owner=SUBJECT.get()
            )
            drafts = (
                msgspec.structs.replace(self.journal.draft(first), time=events[0].time),
                *[
                    copy_draft(
                        self.journal, event, is_kept=lambda kind: not kind.kind.startswith("run.")
                    )
                    for event in events[1:]
                ],
                *map(self.journal.draft, further),
            )
            return await self._begin_copy(name, drafts)
        taken = RowQuery(
            projection=SESSIONS, where=(Condition("slug", "=", created.slug),), limit=1
        )
        if await self.journal.rows(taken):
            raise AlreadyExists(kind="session", value=created.slug)
        own = [self.journal.draft(one) for one in further]
        last = events[-1]
        await self.journal.store.restore(
            [*events, *chain_events(own, last.session_id, last, last.seq)]
        )
        return await self.get_session(events[0].session_id)

    async def revert_session(self, session_id: str, *, to: int) -> Session:
        """Make the conversation what it was at event `to`; the log keeps what came after.

        A revert can be reverted: go to an event from before it. Settings, and what was
        spent, stay as they are.

        Raises:
            UsageError: there is no event with this number.
            SessionBusy: a turn holds the session, or has begun and not ended.
        """
        session = await self.get_session(session_id)
        async with self.writing(session.id) as hold:
            await self.check_idle(session.id)
            last = await self._check_number(session.id, to)
            hidden = await self._find_hidden(session.id, to)
            # Messages are only written under the lease, so none can follow `last` now.
            hidden = hide(hidden, to + 1, last) if to < last else hidden
            then = msgspec.structs.replace(await self.get_session(session.id), hidden=hidden)
            fact = facts.SessionReverted(
                to=to, message_count=await self.messages.count(then), hidden=hidden
            )
            await hold.append(fact, is_last=True)
        return await self.get_session(session.id)

    # --- messages ---------------------------------------------------------------------

    async def add_message(
        self,
        session_id: str,
        role: str,
        content: str | Sequence[Part],
        *,
        wait_s: float = _WAIT_S,
        origin: Origin = NO_ORIGIN,
    ) -> Message:
        """Add a message outside a turn and return it.

        Raises:
            SessionBusy: a turn holds the session for longer than `wait_s`.
            InvalidTransition: the session is not active.
        """
        session = await self.get_session(session_id)
        check_open(session, self.journal.clock.now())
        message = compose(session.id, role, content, self.journal.clock.now())
        async with self.writing(session.id, wait_s=wait_s) as hold:
            check_open(await self.get_session(session.id), self.journal.clock.now())
            await self.check_idle(session.id)
            fact = facts.MessageCreated(message=strip_session(message))
            await hold.append(fact, origin=origin, is_last=True)
        return message

    async def update_part(self, session_id: str, message_id: str, part: Part) -> Message:
        """Replace the part with the same id, or add it, and return the message."""
        session = await self.get_session(session_id)
        if not part.id:
            raise UsageError(detail="A part needs an id to be replaced or added.")
        async with self.writing(session.id) as hold:
            session = await self._with_message(session.id, message_id)
            fact = facts.MessagePartUpdated(message_id=message_id, part=part)
            await hold.append(fact, is_last=True)
        return await self.messages.one(session, message_id)

    async def delete_message(self, session_id: str, message_id: str) -> None:
        """Take a message out of the conversation; the log keeps it until it is redacted."""
        session = await self.get_session(session_id)
        async with self.writing(session.id) as hold:
            await self._with_message(session.id, message_id)
            await hold.append(facts.MessageDeleted(message_id=message_id), is_last=True)

    # --- holding a session ------------------------------------------------------------

    def writing(self, session_id: str, *, wait_s: float = _WAIT_S) -> Writing:
        """Hold a session for a short change."""
        return Writing(self.journal, self.keeper, session_id, wait_s)

    async def check_idle(self, session_id: str) -> None:
        """Refuse a change between the steps of a turn that crashed or is parked.

        Raises:
            SessionBusy: a run has begun and not ended.
        """
        query = RowQuery(
            projection=RUNS,
            session_id=session_id,
            where=(Condition("status", "in", ("running", "parked")),),
            limit=1,
        )
        if await self.journal.rows(query):
            raise SessionBusy(session_id=session_id)

    async def find_last_number(self, session_id: str) -> int:
        """Return the number of a session's last event; raises NotFound."""
        head = await self.journal.head(session_id)
        if head is None:
            raise NotFound(kind="session", value=session_id)
        return head.session_seq

    async def list_interrupted_runs(self) -> list[Run]:
        """Return runs that were under way when their process ended; draining resumes them."""
        query = RowQuery(
            projection=RUNS, where=(Condition("status", "=", "running"),), limit=10_000
        )
        found = []
        for keyed in await self.journal.rows(query):
            head = await self.journal.head(keyed.session_id)
            if head is not None and not head.is_held:
                found.append(keyed.row)
        return found

    # --- inside -----------------------------------------------------------------------

    def _compute_expiry(self, ttl_s: float) -> float:
        if not 0 <= ttl_s < math.inf:
            raise UsageError(detail=f"A time to live is a number of seconds, not {ttl_s}.")
        return self.journal.clock.now() + ttl_s if ttl_s else 0.0

    async def _begin_copy(self, name: str, drafts: tuple[Draft, ...]) -> Session:
        # Synced, because that takes place in a thread: a copy can be long.
        request = AppendRequest(
            session_id=name, drafts=drafts, epoch=None, must_be_new=True, is_synced=True
        )
        await self.journal.store.append(request)
        return await self.get_session(name)

    async def _check_number(self, session_id: str, number: int) -> int:
        """Return the number of the last event, after checking that `number` is not beyond."""
        last = await self.find_last_number(session_id)
        if not 1 <= number <= last:
            raise UsageError(
                detail=f"Session {session_id} has no event {number}; its last is {last}."
            )
        return last

    async def _find_hidden(self, session_id: str, number: int) -> Ranges:
        """Return what was hidden at an event: what the last revert before it says."""
        hidden: Ranges = ()
        after = 0
        kinds = frozenset({facts.SessionReverted.kind})
        while reverts := await self.journal.read(session_id, after=after, kinds=kinds):
            for event in reverts:
                if event.session_seq > number:
                    return hidden
                hidden = event.expect(facts.SessionReverted).hidden
            after = reverts[-1].session_seq
        return hidden

    async def _with_message(self, session_id: str, message_id: str) -> Session:
        """Return the session, after checking that this message of it may be changed now."""
        await self.check_idle(session_id)
        session = await self.get_session(session_id)
        await self.messages.row(session, message_id)
        return session
