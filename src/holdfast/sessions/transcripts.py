"""Conversations kept at hand, so that a turn reads only what is new.

A transcript is folded from the log and remembered with the place it reaches. What this
process appends behind that place is folded as it is stored, so that its next turn reads
nothing. Any other reader continues from there: the same message objects, and one short read.
What changes the past (a redaction, an import over a deleted session) is noticed, and
everything is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.journal import Payload
from holdfast.journal.envelope import Draft, Event, chain_hash, header_of
from holdfast.journal.journal import Journal
from holdfast.messages import Message, Part
from holdfast.sessions import events as facts
from holdfast.sessions.growing import GrowingMessages
from holdfast.sessions.model import Ranges, Session, is_hidden

_PAGE = 1000
_SHORT_TAIL = 64
_MOST_KEPT = 256
_MOST_BYTES = 32 * 1024 * 1024
_REDACTED = "journal.redacted"


class Transcript:
    """The visible messages of one session up to an event."""

    def __init__(self, hidden: Ranges) -> None:
        """Begin before the first event; events in hidden ranges do not count."""
        self.hidden = hidden
        self.size = 0
        self.last: Event | None = None
        self._messages: dict[str, Message] = {}
        # The messages in order, in two parts; `None` while they have to be put together anew.
        self._base: tuple[Message, ...] | None = ()
        self._tail: list[Message] = []

    @property
    def reached(self) -> int:
        """The number of the last event that was folded."""
        return self.last.session_seq if self.last is not None else 0

    def all(self) -> GrowingMessages:
        """Return the messages in order, to be added to."""
        # Seldom in a long conversation, since all that was made of the base is made anew then.
        if self._base is None or len(self._tail) > max(_SHORT_TAIL, len(self._base) // 8):
            self._base, self._tail = tuple(self._messages.values()), []
        return GrowingMessages(self._base, self._tail)

    def is_followed_by(self, event: Event, known: Event | None = None) -> bool:
        """Say whether an event is the next one of the same chain.

        Its hash says so, unless it was appended right behind the one that is `known`, by
        somebody who held the session all the time.
        """
        last = self.last
        if last is None or event.session_seq != last.session_seq + 1:
            return False
        return last is known or chain_hash(last.hash, header_of(event)) == event.hash

    def fold(self, event: Event, fact: Payload | None = None) -> None:
        """Take the next event into account; `fact` is what it says, if that is at hand."""
        self.last = event
        if event.kind not in _KINDS or is_hidden(self.hidden, event.session_seq):
            return
        self.size += len(event.payload)
        fact = fact if fact is not None else event.decode()
        if isinstance(fact, facts.MessageCreated):
            named = msgspec.structs.replace(fact.message, session_id=event.session_id)
            self._tail.append(named)
            if named.id in self._messages:
                self._base = None
            self._messages[named.id] = named
        elif isinstance(fact, facts.MessagePartUpdated):
            known = self._messages.get(fact.message_id)
            if fact.part is not None and known is not None:
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


_KINDS = frozenset(
    {
        facts.MessageCreated.kind,
        facts.MessagePartUpdated.kind,
        facts.MessageDeleted.kind,
    }
)


class Transcripts:
    """Transcripts of the sessions that were used last, bounded in number and size."""

    def __init__(self, journal: Journal, *, most_bytes: int = _MOST_BYTES) -> None:
        """Read from this journal; nothing is kept yet."""
        self._journal = journal
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Transcript] = OrderedDict()

    def follow(
        self, events: Sequence[Event], drafts: Sequence[Draft], last: Event | None = None
    ) -> None:
        """Take into account what this process has just appended to a session.

        `last` is what the same turn appended before that.
        """
        known = self._kept.get(events[0].session_id)
        if known is not None and known.is_followed_by(events[0], last):
            for event, draft in zip(events, drafts, strict=True):
                known.fold(event, draft.value)

    async def messages(self, session: Session) -> tuple[Message, ...]:
        """Return every visible message of a session in order."""
        found = await self.growing(session)
        return tuple(found) if found.tail else found.base

    async def growing(self, session: Session, *, up_to: int = 0) -> GrowingMessages:
        """Return the same for somebody who adds to it.

        Nothing is read if the caller knows that the log ends at `up_to`, and all until there
        is at hand.
        """
        session_id = session.id
        kept = self._kept.get(session_id)
        if kept is not None and kept.reached == up_to and kept.hidden == session.hidden:
            self._kept.move_to_end(session_id)
            return kept.all()
        known = self._kept.pop(session_id, None)
        transcript = None
        # A revert brings back what was changed or deleted after it, so all is read again.
        if known is not None and known.hidden == session.hidden:
            transcript = await self._continued(session_id, known)
        if transcript is None:
            transcript = Transcript(session.hidden)
            await self._read(session_id, transcript)
        self._kept[session_id] = transcript
        self._trim()
        return transcript.all()

    async def _continued(self, session_id: str, known: Transcript) -> Transcript | None:
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
        size = sum([kept.size for kept in self._kept.values()])
        while len(self._kept) > 1 and (size > self._most_bytes or len(self._kept) > _MOST_KEPT):
            _, dropped = self._kept.popitem(last=False)
            size -= dropped.size
