"""Messages of a session: their places in the log, and conversations kept at hand.

The content is read from the log. A transcript is folded from it and remembered with the place
that it reaches, so that a turn reads only what is new. What this process appends behind that
place is folded as it is stored, so that its next turn reads nothing. Any other reader continues
from there: the same message objects, and one short read. What changes the past (a redaction, an
import over a deleted session) is noticed, and everything is read anew.

A turn needs what its model sees. Where a summary stands for the beginning, the transcript begins
at the message up to which it stands, so that neither the first turn of a process nor the memory
that it takes grows with what was said before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.errors import NotFound
from holdfast.ids import check_id
from holdfast.journal import (
    Condition,
    Draft,
    Event,
    Journal,
    Payload,
    Projection,
    RowQuery,
    hash_chain,
    make_header,
)
from holdfast.messages import GrowingMessages, Message, Part, has_file, read_compaction
from holdfast.sessions import events as facts
from holdfast.sessions.events import Ranges
from holdfast.sessions.pages import LONGEST_PAGE, Page, fetch_page
from holdfast.sessions.session import Session, is_hidden

_FETCH = 200
_RANGES_IN_QUERY = 50
_PAGE = 1000
_SHORT_TAIL = 64
_MOST_KEPT = 256
_MOST_BYTES = 32 * 1024 * 1024
_REDACTED = "journal.redacted"
_KINDS = frozenset(
    {
        facts.MessageCreated.kind,
        facts.MessagePartUpdated.kind,
        facts.MessageDeleted.kind,
    }
)


class MessageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a message stands in the log; its content is read from there.

    `updates` and `deletions` are numbers of events; those that a revert hid do not count.
    Written with every message and every result, so it is kept small.
    """

    session_seq: int
    updates: tuple[int, ...] = ()
    deletions: tuple[int, ...] = ()

    def is_visible(self, hidden: Ranges) -> bool:
        """Say whether the message belongs to the conversation."""
        return not is_hidden(hidden, self.session_seq) and all(
            is_hidden(hidden, number) for number in self.deletions
        )


class MessagesTable(Projection[MessageRow]):
    """One row per message: its place in the log."""

    name = "messages"
    version = 4
    is_lazy = True
    row_type = MessageRow
    columns = ("session_seq",)
    indexes = (("session", "session_seq"),)
    kinds = frozenset(
        {facts.MessageCreated.kind, facts.MessagePartUpdated.kind, facts.MessageDeleted.kind}
    )
    beginnings = frozenset({facts.MessageCreated.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A message has one row, under its id."""
        if isinstance(payload, facts.MessagePartUpdated):
            return payload.message_id
        if isinstance(payload, facts.MessageCreated):
            return payload.message.id
        assert isinstance(payload, facts.MessageDeleted)
        return payload.message_id

    def apply(self, row: MessageRow | None, event: Event, payload: Payload) -> MessageRow | None:
        """Fold one fact into the message's row."""
        if isinstance(payload, facts.MessageCreated):
            return MessageRow(event.session_seq)
        if row is None:
            return None
        if isinstance(payload, facts.MessagePartUpdated):
            return msgspec.structs.replace(row, updates=(*row.updates, event.session_seq))
        return msgspec.structs.replace(row, deletions=(*row.deletions, event.session_seq))


MESSAGES = MessagesTable()


class Transcript:
    """The visible messages of one session up to an event."""

    def __init__(self, hidden: Ranges, *, begins_after: int = 0, compacted_at: int = 0) -> None:
        """Begin behind an event, the first one if none is named; hidden ranges do not count.

        `compacted_at` is the summary that stands for what is left out.
        """
        self.hidden = hidden
        self.begins_after = begins_after
        self.compacted_at = compacted_at
        self.size = 0
        self.has_files = False
        """Whether a message of it has ever brought a file."""
        self.last: Event | None = None
        self._messages: dict[str, Message] = {}
        # The messages in order, in two parts; `None` while they have to be put together anew.
        self._base: tuple[Message, ...] | None = ()
        self._tail: list[Message] = []

    @property
    def reached(self) -> int:
        """The number of the last event that was folded."""
        return self.last.session_seq if self.last is not None else self.begins_after

    def all(self) -> GrowingMessages:
        """Return the messages in order, to be added to."""
        # Seldom in a long conversation, since all that was made of the base is made anew then.
        if self._base is None or len(self._tail) > max(_SHORT_TAIL, len(self._base) // 8):
            self._base, self._tail = tuple(self._messages.values()), []
        return GrowingMessages(self._base, self._tail, has_files=self.has_files)

    def follow(
        self, events: Sequence[Event], drafts: Sequence[Draft], last: Event | None = None
    ) -> None:
        """Take into account what this process has just appended to the session.

        `last` is what the same turn appended before that.
        """
        if self.is_followed_by(events[0], last):
            for event, draft in zip(events, drafts, strict=True):
                self.fold(event, draft.value)

    def is_followed_by(self, event: Event, known: Event | None = None) -> bool:
        """Say whether an event is the next one of the same chain.

        Its hash says so, unless it was appended right behind the one that is `known`, by
        another process that held the session all the time.
        """
        last = self.last
        if last is None or event.session_seq != last.session_seq + 1:
            return False
        return last is known or hash_chain(last.hash, make_header(event)) == event.hash

    def fold(self, event: Event, fact: Payload | None = None) -> None:
        """Take the next event into account; `fact` is what it says, if that is at hand."""
        self.last = event
        if event.kind not in _KINDS or is_hidden(self.hidden, event.session_seq):
            return
        self.size += len(event.payload)
        fact = fact if fact is not None else event.decode()
        if isinstance(fact, facts.MessageCreated):
            named = msgspec.structs.replace(fact.message, session_id=event.session_id)
            if not self.has_files:
                self.has_files = any(map(has_file, named.parts))
            self._tail.append(named)
            if named.id in self._messages:
                self._base = None
            self._messages[named.id] = named
        elif isinstance(fact, facts.MessagePartUpdated):
            known = self._messages.get(fact.message_id)
            if fact.part is not None and known is not None:
                self.has_files = self.has_files or has_file(fact.part)
                self._change(known, _with_part(known, fact.part))
        else:
            assert isinstance(fact, facts.MessageDeleted)
            self._messages.pop(fact.message_id, None)
            self._base = None

    def _change(self, known: Message, changed: Message) -> None:
        self._messages[known.id] = changed
        if self._tail and self._tail[-1] is known:
            self._tail[-1] = changed
        else:
            self._base = None


def _with_part(message: Message, part: Part) -> Message:
    """Return the message with a part in the place of the one with its id, or added."""
    parts = list(message.parts)
    places = [place for place, old in enumerate(parts) if old.id == part.id]
    if places:
        parts[places[0]] = part
    else:
        parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))


class Transcripts:
    """Transcripts of the sessions that were used last, bounded in number and size."""

    def __init__(self, journal: Journal, *, most_bytes: int = _MOST_BYTES) -> None:
        """Read from this journal; nothing is kept yet."""
        self._journal = journal
        self._most_bytes = most_bytes
        self.kept: OrderedDict[str, Transcript] = OrderedDict()
        """By session; the process that appends to one lets it `follow`."""

    async def messages(self, session: Session) -> tuple[Message, ...]:
        """Return every visible message of a session in order."""
        if session.compacted_at:
            # Seldom wanted, and long: not kept at hand.
            whole = Transcript(session.hidden)
            await self._read(session.id, whole)
            return tuple(whole.all())
        found = await self.growing(session)
        return tuple(found) if found.tail else found.base

    async def growing(
        self, session: Session, *, up_to: int = 0, since: int | None = None
    ) -> GrowingMessages:
        """Return what a turn of the session needs, to be added to.

        That is every visible message, or what is left of them where a summary stands for the
        beginning: from the message up to which it stands, and at least all behind the event
        `since`. Nothing is read if the caller knows that the log ends at `up_to`, and all until
        there is at hand.
        """
        session_id = session.id
        kept = self.kept.get(session_id)
        if kept is not None and not _is_of(kept, session, since):
            del self.kept[session_id]
            kept = None
        if kept is not None and kept.reached == up_to:
            self.kept.move_to_end(session_id)
            return kept.all()
        known = self.kept.pop(session_id, None)
        transcript = await self._continue(session_id, known) if known is not None else None
        if transcript is None:
            begins = await self._find_beginning(session) if session.compacted_at else 0
            transcript = Transcript(
                session.hidden,
                begins_after=begins if since is None else min(begins, since),
                compacted_at=session.compacted_at,
            )
            await self._read(session_id, transcript)
        self.kept[session_id] = transcript
        self._trim()
        return transcript.all()

    async def _find_beginning(self, session: Session) -> int:
        """Return the number before the message up to which the newest summary stands.

        That is 0 where the summary counts for nothing, or an older one may count: somebody has
        deleted or reverted it, or the message that it names.
        """
        journal, number = self._journal, session.compacted_at
        found = await journal.store.read(session.id, seqs=(number,), limit=1)
        if not found or found[0].is_redacted or is_hidden(session.hidden, number):
            return 0
        summary = found[0].expect(facts.MessageCreated).message
        part = read_compaction(summary)
        if part is None or not part.up_to_message_id:
            return 0
        kept = await journal.row(MESSAGES, session.id, summary.id)
        row = await journal.row(MESSAGES, session.id, part.up_to_message_id)
        if kept is None or row is None or row.session_seq >= number:
            return 0
        is_whole = kept.is_visible(session.hidden) and row.is_visible(session.hidden)
        return row.session_seq - 1 if is_whole else 0

    async def _continue(self, session_id: str, known: Transcript) -> Transcript | None:
        """Fold what is new; `None` when what is known is no longer the past."""
        new = await self._journal.read(session_id, after=known.reached - 1, limit=_PAGE)
        if not new or known.last is None or new[0].hash != known.last.hash:
            return None
        if any(event.kind == _REDACTED for event in new[1:]):
            return None
        for event in new[1:]:
            known.fold(event)
        if len(new) == _PAGE:
            await self._read(session_id, known)
        return known

    async def _read(self, session_id: str, transcript: Transcript) -> None:
        is_more = True
        while is_more:
            page = await self._journal.read(session_id, after=transcript.reached, limit=_PAGE)
            for event in page:
                transcript.fold(event)
            is_more = len(page) == _PAGE

    def _trim(self) -> None:
        size = sum([kept.size for kept in self.kept.values()])
        while len(self.kept) > 1 and (size > self._most_bytes or len(self.kept) > _MOST_KEPT):
            _, dropped = self.kept.popitem(last=False)
            size -= dropped.size


def _is_of(kept: Transcript, session: Session, since: int | None) -> bool:
    """Say whether a transcript can go on as that of a session as it is now.

    A revert brings back what was changed or deleted after it, so all is read again; and what a
    new summary stands for is let go.
    """
    return (
        kept.hidden == session.hidden
        and kept.compacted_at == session.compacted_at
        and (since is None or kept.begins_after <= since)
    )


class MessageReader:
    """Reads messages back from the log."""

    def __init__(self, journal: Journal) -> None:
        """Read from this journal."""
        self._journal = journal
        self.transcripts = Transcripts(journal)
        """Conversations at hand."""

    async def page(
        self, session: Session, *, limit: int, cursor: str, newest_first: bool
    ) -> Page[Message]:
        """Return a page of the visible messages, oldest or newest first."""
        rows = await self._list_rows(session, limit, cursor, newest_first)
        messages = await self._load(session, rows.items)
        return Page(items=messages, next_cursor=rows.next_cursor)

    async def last(self, session: Session, count: int) -> tuple[Message, ...]:
        """Return the newest visible messages, oldest first."""
        found = await self.page(session, limit=count, cursor="", newest_first=True)
        return tuple(reversed(found.items))

    async def all(self, session: Session) -> tuple[Message, ...]:
        """Return every visible message in order; a long conversation is kept at hand."""
        return await self.transcripts.messages(session)

    async def growing(
        self, session: Session, *, up_to: int = 0, since: int | None = None
    ) -> GrowingMessages:
        """Return what a turn needs of the conversation, to be added to.

        `up_to` is the number of the last event, if the caller knows it for certain; `since` one
        behind which nothing may be missing, as a run that goes on needs its own messages.
        """
        return await self.transcripts.growing(session, up_to=up_to, since=since)

    async def one(self, session: Session, message_id: str) -> Message:
        """Return one message of the conversation.

        Raises:
            NotFound: the conversation has no such message, or no longer has it.
        """
        return (await self._load(session, (await self.row(session, message_id),)))[0]

    async def row(self, session: Session, message_id: str) -> MessageRow:
        """Return where a message of the conversation stands in the log."""
        check_id(message_id, "message")
        found = await self._journal.row(MESSAGES, session.id, message_id)
        if found is None or not found.is_visible(session.hidden):
            raise NotFound(kind="message", value=message_id)
        return found

    async def count(self, session: Session) -> int:
        """Count the visible messages."""
        count, cursor = 0, ""
        while True:
            page = await self._list_rows(session, LONGEST_PAGE, cursor, newest_first=False)
            count, cursor = count + len(page.items), page.next_cursor
            if not cursor:
                return count

    async def _list_rows(
        self, session: Session, limit: int, cursor: str, newest_first: bool
    ) -> Page[MessageRow]:
        # The widest ranges are left out by the database; `keep` knows them all.
        widest = sorted(session.hidden, key=lambda ends: ends[0] - ends[1])[:_RANGES_IN_QUERY]
        query = RowQuery(
            projection=MESSAGES,
            session_id=session.id,
            where=tuple(Condition("session_seq", "outside", ends) for ends in sorted(widest)),
            order="session_seq",
            descending=newest_first,
            limit=limit,
        )
        return await fetch_page(
            self._journal, query, cursor, keep=lambda row: row.is_visible(session.hidden)
        )

    async def _load(self, session: Session, rows: Sequence[MessageRow]) -> tuple[Message, ...]:
        wanted = sorted({n for row in rows for n in _list_events(row, session.hidden)})
        events: dict[int, Event] = {}
        for start in range(0, len(wanted), _FETCH):
            chunk = wanted[start : start + _FETCH]
            for event in await self._journal.store.read(session.id, seqs=chunk, limit=_FETCH):
                events[event.session_seq] = event
        return tuple(_build(session, row, events) for row in rows)


def _list_events(row: MessageRow, hidden: Ranges) -> list[int]:
    return [row.session_seq, *(number for number in row.updates if not is_hidden(hidden, number))]


def _build(session: Session, row: MessageRow, events: dict[int, Event]) -> Message:
    first, *updates = _list_events(row, session.hidden)
    message = events[first].expect(facts.MessageCreated).message
    for number in updates:
        part = events[number].expect(facts.MessagePartUpdated).part
        if part is not None:
            message = _with_part(message, part)
    return msgspec.structs.replace(message, session_id=session.id)
