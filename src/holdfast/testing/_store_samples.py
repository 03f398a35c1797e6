"""Kinds, tables and drafts for the tests of stores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import HoldfastError, UsageError
from holdfast.journal import (
    AnyProjection,
    AppendRequest,
    Draft,
    Event,
    Journal,
    Payload,
    Projection,
    Store,
    payload,
)
from holdfast.testing.clock import FakeClock


@payload("testing.note", is_open=True, has_content=True)
class Note(Payload, frozen=True, kw_only=True):
    """A text under a topic; an empty text removes the topic's row."""

    topic: str = "a"
    text: str = "text"
    rank: int = 0

    def redacted(self) -> Note:
        """Keep the topic and the rank."""
        return msgspec.structs.replace(self, text="[removed]" if self.text else "")


@payload("testing.step", is_synced=True)
class SampleStep(Payload, frozen=True, kw_only=True):
    """Something that only the holder of the lease may say, and no table follows."""

    number: int = 0


@payload("testing.mark", is_open=True)
class Mark(Payload, frozen=True, kw_only=True):
    """A small fact that any process may add and no table follows: the most frequent sort."""

    number: int = 0


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The last note of a topic, and how many there were."""

    topic: str
    text: str
    rank: int
    count: int = 1
    is_long: bool = False


class Topics(Projection[Topic]):
    """One row per topic; refuses the text `refuse`, breaks over `break`."""

    name = "testing_topics"
    version = 1
    row_type = Topic
    columns = ("topic", "text", "rank", "count", "is_long")
    indexes = (("session", "rank"),)
    kinds = frozenset({Note.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A topic has one row."""
        assert isinstance(payload, Note)
        return payload.topic

    def apply(self, row: Topic | None, event: Event, payload: Payload) -> Topic | None:
        """Keep the last text."""
        assert isinstance(payload, Note)
        if payload.text == "refuse":
            raise UsageError(detail="The table refuses this.")
        if payload.text == "break":
            raise ZeroDivisionError
        if not payload.text:
            return None
        return Topic(
            topic=payload.topic,
            text=payload.text,
            rank=payload.rank,
            count=row.count + 1 if row else 1,
            is_long=len(payload.text) > 20,
        )


class NewerTopics(Topics):
    """The same table, one version later."""

    version = 2


class LazyTopics(Topics):
    """The same table once more, of which a store may write rows later."""

    name = "testing_lazy_topics"
    is_lazy = True


TOPICS = Topics()
LAZY_TOPICS = LazyTopics()
NEWER_TOPICS = NewerTopics()
SAMPLE_TABLES: tuple[AnyProjection, ...] = (TOPICS,)


def list_drafts(store: Store, clock: FakeClock, payloads: Sequence[Payload]) -> tuple[Draft, ...]:
    """Encode payloads as the journal does."""
    journal = Journal(store, clock=clock)
    return tuple(journal.draft(value) for value in payloads)


async def begin(store: Store, clock: FakeClock, session_id: str = "s1", count: int = 1) -> None:
    """Make a session with so many notes."""
    notes = [Note(text=f"text {number}", rank=number) for number in range(1, count + 1)]
    request = AppendRequest(
        session_id=session_id, drafts=list_drafts(store, clock, notes), epoch=None, must_be_new=True
    )
    await store.append(request)


@contextlib.contextmanager
def expect_refusal(wanted: type[HoldfastError]) -> Iterator[None]:
    """Expect an error of exactly this code."""
    try:
        yield
    except wanted as error:
        assert error.code == wanted.code, f"expected {wanted.code}, got {error.code}: {error}"
    else:
        raise AssertionError(f"expected {wanted.__name__}, but nothing was refused")
