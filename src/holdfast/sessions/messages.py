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
from holdfast.sessions.model import Session
from holdfast.sessions.pages import Page, fetch_page
from holdfast.sessions.projections import MESSAGES, MessageRow

_FETCH = 200


def compose(session_id: str, role: str, content: str | Sequence[Part], clock_now: float) -> Message:
    """Make a message from a text or from parts.

    Raises:
        UsageError: unknown role, or nothing in it.
    """
    parts: tuple[Part, ...] = (
        (TextPart(id=new_id("prt"), text=content),) if isinstance(content, str) else tuple(content)
    )
    if not parts:
        raise UsageError(detail="A message needs at least one part.")
    try:
        return msgspec.convert(
            {
                "id": new_id("msg"),
                "session_id": session_id,
                "role": role,
                "parts": msgspec.to_builtins(parts),
                "time_created": clock_now,
            },
            Message,
        )
    except msgspec.ValidationError as error:
        raise UsageError(detail=f"This is no message: {error}") from error


def stored(message: Message) -> Message:
    """Return the message as the log keeps it: the envelope knows the session."""
    return msgspec.structs.replace(message, session_id="")


class MessageReader:
    """Reads messages back from the log."""

    def __init__(self, journal: Journal) -> None:
        """Read from this journal."""
        self._journal = journal

    async def page(
        self, session: Session, *, limit: int, cursor: str, newest_first: bool
    ) -> Page[Message]:
        """Return a page of the visible messages, oldest or newest first."""
        query = self._query(session, limit, newest_first)
        rows = await fetch_page(self._journal, query, cursor, lambda found: found.row)
        messages = await self._load(session.id, rows.items)
        return Page(items=messages, next_cursor=rows.next_cursor)

    async def last(self, session: Session, count: int) -> tuple[Message, ...]:
        """Return the newest visible messages, oldest first."""
        found = await self.page(session, limit=count, cursor="", newest_first=True)
        return tuple(reversed(found.items))

    async def all(self, session: Session) -> tuple[Message, ...]:
        """Return every visible message in order."""
        messages: list[Message] = []
        cursor = ""
        while True:
            found = await self.page(session, limit=1000, cursor=cursor, newest_first=False)
            messages += found.items
            cursor = found.next_cursor
            if not cursor:
                return tuple(messages)

    async def one(self, session: Session, message_id: str) -> Message:
        """Return one message, hidden or not.

        Raises:
            NotFound: the session has no such message.
        """
        check_id(message_id, "message")
        row = await self.row(session.id, message_id)
        return (await self._load(session.id, (row,)))[0]

    async def row(self, session_id: str, message_id: str) -> MessageRow:
        """Return where a message stands in the log."""
        found = await self._journal.row(MESSAGES, session_id, message_id)
        if found is None or found.is_deleted:
            raise NotFound(kind="message", value=message_id)
        return found

    async def count_until(self, session: Session, session_seq: int) -> int:
        """Count visible messages up to an event."""
        count, cursor = 0, ""
        query = self._query(session, 1000, newest_first=False)
        before = Condition("session_seq", "<=", session_seq)
        query = msgspec.structs.replace(query, where=(*query.where, before))
        while True:
            page = await fetch_page(self._journal, query, cursor, lambda found: found.row)
            count, cursor = count + len(page.items), page.next_cursor
            if not cursor:
                return count

    def _query(self, session: Session, limit: int, newest_first: bool) -> RowQuery[MessageRow]:
        hidden = tuple(
            Condition("session_seq", "outside", (low, high)) for low, high in session.hidden
        )
        return RowQuery(
            projection=MESSAGES,
            session_id=session.id,
            where=(Condition("is_deleted", "=", False), *hidden),
            order="session_seq",
            descending=newest_first,
            limit=limit,
        )

    async def _load(self, session_id: str, rows: Sequence[MessageRow]) -> tuple[Message, ...]:
        wanted = sorted({n for row in rows for n in (row.session_seq, *row.updates)})
        events: dict[int, Event] = {}
        for start in range(0, len(wanted), _FETCH):
            chunk = wanted[start : start + _FETCH]
            for event in await self._journal.store.read(session_id, seqs=chunk, limit=_FETCH):
                events[event.session_seq] = event
        return tuple(_build(session_id, row, events) for row in rows)


def _build(session_id: str, row: MessageRow, events: dict[int, Event]) -> Message:
    message = events[row.session_seq].expect(MessageCreated).message
    parts = {part.id or f"#{n}": part for n, part in enumerate(message.parts)}
    for number in row.updates:
        part = events[number].expect(MessagePartUpdated).part
        if part is not None:
            parts[part.id] = part
    return msgspec.structs.replace(message, session_id=session_id, parts=tuple(parts.values()))
