"""Conversations kept at hand: transcripts, folded from the log.

A transcript is remembered with the place that it reaches, so that a turn reads only what is new.
What this process appends behind that place is folded as it is stored, so that its next turn reads
nothing. Any other reader continues from there: the same message objects, and one short read. What
changes the past (a redaction, an import over a deleted session) is noticed, and everything is read
anew.

A turn needs what its model sees. Where a summary stands for the beginning, the transcript begins
at the message up to which it stands; where there is no summary and far more than a model can read,
it begins so far from the end as the turn asks for. So neither the first turn of a process nor the
memory that it takes grows with what was said before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.journal import Draft, Event, Journal, Payload, hash_chain, make_header
from holdfast.messages import GrowingMessages, Message, Part, has_file, read_compaction
from holdfast.sessions import events as facts
from holdfast.sessions.events import Ranges
from holdfast.sessions.message_table import MESSAGES
from holdfast.sessions.session import Session, is_hidden

_PAGE = 1000
_NEWEST_PAGE = 500
_SHORT_TAIL = 64
_MOST_KEPT = 256
_MOST_BYTES = 32 * 1024 * 1024
_LEAST_TOKENS = 4
_FRAME_BYTES = 160
"""What of a stored message is names and marks, about."""
_REDACTED = "journal.redacted"
_KINDS = frozenset(
    {
        facts.MessageCreated.kind,
        facts.MessagePartUpdated.kind,
        facts.MessageDeleted.kind,
    }
)


class Transcript:
    """The visible messages of one session up to an event."""

    def __init__(self, hidden: Ranges, *, begins_after: int = 0, compacted_at: int = 0) -> None:
        """Begin behind an event, the first one if none is named; hidden ranges do not count.

        `compacted_at` is the summary that stands for what is left out. Where none does, what
        begins late is only a part of the conversation.
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
        is_partial = self.begins_after > 0 and not self.compacted_at
        return GrowingMessages(
            self._base, self._tail, has_files=self.has_files, is_partial=is_partial
        )

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
                self._change(known, with_part(known, fact.part))
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
        found = await self.growing(session, since=0)
        return tuple(found) if found.tail else found.base

    async def growing(
        self, session: Session, *, up_to: int = 0, since: int | None = None, newest: int = 0
    ) -> GrowingMessages:
        """Return what a turn of the session needs, to be added to.

        That is every visible message, or what is left of them where a summary stands for the
        beginning: from the message up to which it stands, and at least all behind the event
        `since`. Nothing is read if the caller knows that the log ends at `up_to`, and all until
        there is at hand.

        Where there is no summary, and the newest messages of about so many tokens (`newest`) are
        enough for the caller, no more are read: what is returned then says `is_partial`.
        """
        session_id = session.id
        kept = self.kept.get(session_id)
        if kept is not None and not _is_of(kept, session, since, newest):
            del self.kept[session_id]
            kept = None
        if kept is not None and kept.reached == up_to:
            self.kept.move_to_end(session_id)
            return kept.all()
        known = self.kept.pop(session_id, None)
        transcript = await self._continue(session_id, known) if known is not None else None
        if transcript is None:
            if newest and not session.compacted_at:
                transcript = await self._read_newest(session, newest, since)
            else:
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

    async def list_since(self, session: Session, number: int) -> tuple[Message, ...]:
        """Return at least the visible messages that were added behind an event, in order."""
        kept = self.kept.get(session.id)
        if kept is not None and _is_of(kept, session, number, 0):
            return tuple(await self.growing(session, since=number))
        # Not kept at hand: whoever works in the session has more of it.
        late = Transcript(session.hidden, begins_after=number)
        await self._read(session.id, late)
        return tuple(late.all())

    async def _read_newest(self, session: Session, tokens: int, since: int | None) -> Transcript:
        """Fold the end of a session, of about so many tokens and at least behind `since`."""
        head = await self._journal.head(session.id)
        low = head.session_seq if head is not None else 0
        wanted = low if since is None else since
        pages: list[list[Event]] = []
        while low > 0 and (tokens > 0 or low > wanted):
            start = max(0, low - _NEWEST_PAGE)
            page = await self._journal.read(session.id, after=start, limit=low - start)
            pages.append(page)
            low = start
            for event in page:
                if event.kind in _KINDS:
                    tokens -= max(_LEAST_TOKENS, (len(event.payload) - _FRAME_BYTES) // 4)
        transcript = Transcript(session.hidden, begins_after=low)
        for page in reversed(pages):
            for event in page:
                transcript.fold(event)
        return transcript

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
        """Fold all behind what a transcript has reached."""
        page = await self._journal.read(session_id, after=transcript.reached, limit=_PAGE)
        for event in page:
            transcript.fold(event)
        if len(page) < _PAGE:
            return
        # A long way to go: what is no message is passed over by the database.
        head = await self._journal.head(session_id)
        end = head.session_seq if head is not None else 0
        after = transcript.reached
        while after < end:
            page = await self._journal.read(session_id, after=after, limit=_PAGE, kinds=_KINDS)
            for event in page:
                if event.session_seq <= end:
                    transcript.fold(event)
            after = page[-1].session_seq if len(page) == _PAGE else end
        if transcript.reached < end:
            for event in await self._journal.store.read(session_id, seqs=(end,), limit=1):
                transcript.fold(event)

    def _trim(self) -> None:
        size = sum([kept.size for kept in self.kept.values()])
        while len(self.kept) > 1 and (size > self._most_bytes or len(self.kept) > _MOST_KEPT):
            _, dropped = self.kept.popitem(last=False)
            size -= dropped.size


def _is_of(kept: Transcript, session: Session, since: int | None, newest: int) -> bool:
    """Say whether a transcript can go on as that of a session as it is now.

    A revert brings back what was changed or deleted after it, so all is read again; and what a
    new summary stands for is let go. A part of a conversation is enough for those who ask for
    the `newest`.
    """
    is_whole = bool(kept.compacted_at) or kept.begins_after == 0
    return (
        kept.hidden == session.hidden
        and kept.compacted_at == session.compacted_at
        and (kept.begins_after <= since if since is not None else is_whole or newest > 0)
    )


def with_part(message: Message, part: Part) -> Message:
    """Return the message with a part in the place of the one with its id, or added."""
    parts = list(message.parts)
    places = [place for place, old in enumerate(parts) if old.id == part.id]
    if places:
        parts[places[0]] = part
    else:
        parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))
