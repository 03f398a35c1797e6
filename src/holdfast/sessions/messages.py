"""Messages of a session: add, read, change, delete; the content is read from the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import NotFound, UsageError
from holdfast.ids import check_id, new_id
from holdfast.journal.envelope import Event
from holdfast.journal.journal import Journal
from holdfast.journal.projection import Condition, RowQuery
from holdfast.messages import Message, Part, TextPart
from holdfast.sessions.events import MessageCreated, MessagePartUpdated
from holdfast.sessions.growing import GrowingMessages
from holdfast.sessions.model import Ranges, Session, is_hidden
from holdfast.sessions.pages import LONGEST_PAGE, Page, fetch_page
from holdfast.sessions.projections import MESSAGES, MessageRow
from holdfast.sessions.transcripts import Transcripts

_FETCH = 200
_RANGES_IN_QUERY = 50


def compose(session_id: str, role: str, content: str | Sequence[Part], clock_now: float) -> Message:
    """Make a message from a text or from parts.

    Raises:
        UsageError: unknown role, or nothing in it.
    """
    try:
        parts = (
            (TextPart(id=new_id("prt"), text=content),)
            if isinstance(content, str)
            else tuple(content)
        )
        message = msgspec.convert(
            {
                "id": new_id("msg"),
                "session_id": session_id,
                "role": role,
                "parts": msgspec.to_builtins(parts),
                "time_created": clock_now,
            },
            Message,
        )
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise UsageError(detail=f"This is no message: {error}") from error
    if not message.parts:
        raise UsageError(detail="A message needs at least one part.")
    return message


def stored(message: Message) -> Message:
    """Return the message as the log keeps it: the envelope knows the session."""
    return msgspec.structs.replace(message, session_id="")


class MessageReader:
    """Reads messages back from the log."""

    def __init__(self, journal: Journal) -> None:
        """Read from this journal."""
        self._journal = journal
        self.transcripts = Transcripts(journal)
        """Conversations at hand; whoever appends to one lets it follow."""

    async def page(
        self, session: Session, *, limit: int, cursor: str, newest_first: bool
    ) -> Page[Message]:
        """Return a page of the visible messages, oldest or newest first."""
        rows = await self._rows(session, limit, cursor, newest_first)
        messages = await self._load(session, rows.items)
        return Page(items=messages, next_cursor=rows.next_cursor)

    async def last(self, session: Session, count: int) -> tuple[Message, ...]:
        """Return the newest visible messages, oldest first."""
        found = await self.page(session, limit=count, cursor="", newest_first=True)
        return tuple(reversed(found.items))

    async def all(self, session: Session) -> tuple[Message, ...]:
        """Return every visible message in order; a long conversation is kept at hand."""
        return await self.transcripts.messages(session)

    async def growing(self, session: Session, *, up_to: int = 0) -> GrowingMessages:
        """Return the same for somebody who adds to it.

        `up_to` is the number of the last event, if the caller knows it for certain.
        """
        return await self.transcripts.growing(session, up_to=up_to)

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
            page = await self._rows(session, LONGEST_PAGE, cursor, newest_first=False)
            count, cursor = count + len(page.items), page.next_cursor
            if not cursor:
                return count

    async def _rows(
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
        wanted = sorted({n for row in rows for n in _events_of(row, session.hidden)})
        events: dict[int, Event] = {}
        for start in range(0, len(wanted), _FETCH):
            chunk = wanted[start : start + _FETCH]
            for event in await self._journal.store.read(session.id, seqs=chunk, limit=_FETCH):
                events[event.session_seq] = event
        return tuple(_build(session, row, events) for row in rows)


def _events_of(row: MessageRow, hidden: Ranges) -> list[int]:
    return [row.session_seq, *(number for number in row.updates if not is_hidden(hidden, number))]


def _build(session: Session, row: MessageRow, events: dict[int, Event]) -> Message:
    first, *updates = _events_of(row, session.hidden)
    message = events[first].expect(MessageCreated).message
    parts = list(message.parts)
    for number in updates:
        part = events[number].expect(MessagePartUpdated).part
        if part is None:
            continue
        places = [place for place, old in enumerate(parts) if old.id == part.id]
        if places:
            parts[places[0]] = part
        else:
            parts.append(part)
    return msgspec.structs.replace(message, session_id=session.id, parts=tuple(parts))
