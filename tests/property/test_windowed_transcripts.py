"""The end of a conversation, read newest first, is the end of the whole conversation.

However messages were added, changed, deleted and reverted, on both stores.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal import Event, Journal, MemoryStore, SqliteStore
from holdfast.messages import Message, TextPart
from holdfast.sessions import SESSION_PROJECTIONS, SessionChanges, SessionManager, transcripts
from holdfast.sessions import events as facts
from holdfast.sessions.session import hide
from holdfast.sessions.transcripts import Transcript, Transcripts
from holdfast.turns import LeaseKeeper

STEP = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 300)),
    st.tuples(st.just("say"), st.integers(0, 300)),
    st.tuples(st.just("change"), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.just("other"), st.integers(0, 3)),
    st.tuples(st.just("hide"), st.integers(0, 6)),
)


async def _write(journal: Journal, steps: list[tuple[str, int]]) -> None:
    manager = SessionManager(journal, LeaseKeeper(journal))
    await manager.create_session("long", session_id="ses_long")
    head = await journal.store.acquire("ses_long", "me", 1_000)
    assert head is not None
    names: list[str] = []
    number = 1
    for what, value in steps:
        fact: facts.Payload
        if what == "say":
            names.append(f"msg_{len(names)}")
            part = TextPart(id="p", text="x" * value)
            said = Message(id=names[-1], session_id="", role="user", parts=(part,))
            fact = facts.MessageCreated(message=said)
        elif what == "change" and names:
            part = TextPart(id="p", text=f"changed {value}")
            fact = facts.MessagePartUpdated(message_id=names[value % len(names)], part=part)
        elif what == "delete" and names:
            fact = facts.MessageDeleted(message_id=names[value % len(names)])
        elif what == "hide" and number > value + 2:
            session = await manager.get_session("ses_long")
            hidden = hide(session.hidden, number - value, number)
            fact = facts.SessionReverted(
                hidden=hidden, message_count=session.message_count, to=number - value
            )
        else:
            fact = facts.SessionUpdated(changes=SessionChanges(title=f"title {value}"))
        [event] = await journal.append("ses_long", [fact], epoch=head.epoch)
        number = event.session_seq


async def _check(journal: Journal, newest: int, since: int | None) -> None:
    manager = SessionManager(journal, LeaseKeeper(journal))
    session = await manager.get_session("ses_long")
    events: list[Event] = await journal.read_all("ses_long")
    whole = Transcript(session.hidden)
    for event in events:
        whole.fold(event)
    expected = list(whole.all())

    everything = Transcripts(journal)
    assert list(await everything.growing(session)) == expected
    assert everything.kept["ses_long"].last == events[-1]

    windowed = Transcripts(journal)
    found = await windowed.growing(session, newest=newest, since=since)
    count = len(found)
    assert list(found) == expected[len(expected) - count :]
    assert found.is_partial or count == len(expected)
    assert windowed.kept["ses_long"].last == events[-1]
    if since is not None:
        late = [one for one in expected if _find_number(events, one.id) > since]
        assert list(found)[count - len(late) :] == late
        assert [one for one in await Transcripts(journal).list_since(session, since)] == late
    # A part is never taken for the whole, and the whole serves whoever wants a part.
    assert list(await windowed.messages(session)) == expected
    assert list(await windowed.growing(session, newest=1)) == expected


def _find_number(events: list[Event], name: str) -> int:
    for event in events:
        if event.kind == facts.MessageCreated.kind:
            if event.expect(facts.MessageCreated).message.id == name:
                return event.session_seq
    raise AssertionError(name)


@given(
    steps=st.lists(STEP, min_size=1, max_size=40),
    newest=st.integers(1, 400),
    since=st.none() | st.integers(0, 45),
    is_sqlite=st.booleans(),
)
def test_the_end_read_newest_first_is_the_end_of_the_whole(
    steps: list[tuple[str, int]], newest: int, since: int | None, is_sqlite: bool
) -> None:
    async def scenario() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store: MemoryStore | SqliteStore
            if is_sqlite:
                store = SqliteStore(Path(folder) / "j.db", projections=SESSION_PROJECTIONS)
            else:
                store = MemoryStore(projections=SESSION_PROJECTIONS)
            async with Journal(store) as journal:
                await _write(journal, steps)
                await _check(journal, newest, since)

    with pytest.MonkeyPatch.context() as patch:
        # Short pages, so that there are several.
        patch.setattr(transcripts, "_PAGE", 5)
        patch.setattr(transcripts, "_NEWEST_PAGE", 3)
        asyncio.run(scenario())
