"""Messages of a session, read back from the log: pages, single ones, whole conversations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import NotFound
from holdfast.ids import check_id
from holdfast.journal import Condition, Event, Journal, RowQuery
from holdfast.messages import GrowingMessages, Message
from holdfast.sessions import events as facts
from holdfast.sessions.events import Ranges
from holdfast.sessions.message_table import MESSAGES as MESSAGES
from holdfast.sessions.message_table import MessageRow as MessageRow
from holdfast.sessions.pages import LONGEST_PAGE, Page, fetch_page
from holdfast.sessions.session import Session, is_hidden
from holdfast.sessions.transcripts import Transcripts, with_part

_FETCH = 200
_RANGES_IN_QUERY = 50


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
        self, session: Session, *, up_to: int = 0, since: int | None = None, newest: int = 0
    ) -> GrowingMessages:
        """Return what a turn needs of the conversation, to be added to.

        `up_to` is the number of the last event, if the caller knows it for certain; `since` one
        behind which nothing may be missing, as a run that goes on needs its own messages;
        `newest` the tokens that are enough where there is no summary (see `Transcripts.growing`).
        """
        return await self.transcripts.growing(session, up_to=up_to, since=since, newest=newest)

    async def list_since(self, session: Session, number: int) -> tuple[Message, ...]:
        """Return at least the visible messages that were added behind an event, in order."""
        return await self.transcripts.list_since(session, number)

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
            message = with_part(message, part)
    return msgspec.structs.replace(message, session_id=session.id)
