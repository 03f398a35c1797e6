"""A transcript that is continued equals one that is read from the beginning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import AsyncClient
from holdfast.journal import Event, Journal, MemoryStore
from holdfast.messages import FilePart, GrowingMessages, Message, TextPart
from holdfast.sessions import (
    SESSION_PROJECTIONS,
    MessageReader,
    SessionManager,
    compose,
    transcripts,
)
from holdfast.sessions.events import MessageCreated
from holdfast.sessions.transcripts import Transcript, Transcripts
from holdfast.turns import LeaseKeeper, Outcome, Turn, TurnCompleted


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[SessionManager]:
    async with AsyncClient(tmp_path) as client:
        yield await client.sessions.manager()


async def _long_session(sessions: SessionManager, count: int = 80) -> str:
    session = await sessions.create_session("long")
    for number in range(count):
        await sessions.add_message(session.id, "user", f"message {number}")
    return session.id


async def _read(
    sessions: SessionManager, reader: Transcripts, session_id: str
) -> tuple[Message, ...]:
    return await reader.messages(await sessions.get_session(session_id))


async def test_second_reading_gives_the_same_objects_and_what_is_new(
    sessions: SessionManager,
) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    first = await _read(sessions, kept, session_id)
    await sessions.add_message(session_id, "user", "new")
    second = await _read(sessions, kept, session_id)
    assert [new is old for new, old in zip(second, first, strict=False)] == [True] * 80
    assert second[-1].text == "new"


async def test_changes_of_the_past_are_seen(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    messages = await _read(sessions, kept, session_id)
    await sessions.delete_message(session_id, messages[3].id)
    part = TextPart(id=messages[5].parts[0].id, text="changed")
    await sessions.update_part(session_id, messages[5].id, part)
    anew = Transcripts(sessions.journal)
    assert await _read(sessions, kept, session_id) == await _read(sessions, anew, session_id)
    session = await sessions.get_session(session_id)
    row = await sessions.messages.row(session, messages[10].id)
    await sessions.revert_session(session_id, to=row.session_seq)
    page = await MessageReader(sessions.journal).page(
        session=await sessions.get_session(session.id), limit=100, cursor="", newest_first=False
    )
    assert await _read(sessions, kept, session_id) == page.items
    assert [message.text for message in page.items] == [f"message {n}" for n in range(11)]


async def test_redacted_content_is_not_remembered(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    [first, *_] = await _read(sessions, kept, session_id)
    session = await sessions.get_session(session_id)
    row = await sessions.messages.row(session, first.id)
    await sessions.journal.redact(session_id, [row.session_seq], reason="gdpr")
    assert (await _read(sessions, kept, session_id))[0].text == ""


async def test_deleted_session_that_comes_back_is_read_anew(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    await _read(sessions, kept, session_id)
    await sessions.delete_session(session_id)
    await sessions.create_session("another", session_id=session_id)
    assert await _read(sessions, kept, session_id) == ()


async def test_least_used_transcripts_are_dropped_when_there_are_too_many(
    sessions: SessionManager,
) -> None:
    one, two = await _long_session(sessions), await _long_session(sessions)
    kept = Transcripts(sessions.journal, most_bytes=1)
    first = await _read(sessions, kept, one)
    await _read(sessions, kept, two)
    again = await _read(sessions, kept, one)
    assert again == first
    assert again[0] is not first[0]


async def test_unchanged_transcript_is_handed_out_again(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    first = await _read(sessions, kept, session_id)
    assert await _read(sessions, kept, session_id) is first


async def test_many_new_events_are_all_read(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    kept = Transcripts(sessions.journal)
    await _read(sessions, kept, session_id)
    async with sessions.writing(session_id) as hold:
        for start in range(0, 1200, 400):
            await hold.append(
                *[
                    MessageCreated(
                        message=Message(id=f"msg_{n}", session_id="", role="user", parts=())
                    )
                    for n in range(start, start + 400)
                ]
            )
    assert len(await _read(sessions, kept, session_id)) == 1280


async def test_what_is_said_while_a_long_past_is_read_comes_with_the_next_reading() -> None:
    """What lies between is passed over by kind, so one that came later would hide a gap."""

    class BusyStore(MemoryStore):
        is_busy = False

        async def read(self, session_id: str, **asked: Any) -> list[Event]:
            if self.is_busy and asked.get("kinds"):
                self.is_busy = False
                await journal.append(session_id, [say(1200)], epoch=lease.epoch)
            return await super().read(session_id, **asked)

    def say(number: int) -> MessageCreated:
        return MessageCreated(
            message=Message(id=f"msg_{number}", session_id="", role="user", parts=())
        )

    store = BusyStore(projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        sessions = SessionManager(journal, LeaseKeeper(journal))
        session = await sessions.create_session("long")
        lease = await store.acquire(session.id, "me", 1_000)
        assert lease is not None
        await journal.append(session.id, [say(n) for n in range(1200)], epoch=lease.epoch)
        reader = Transcripts(journal)
        store.is_busy = True
        assert len(await reader.growing(await sessions.get_session(session.id))) == 1200
        assert len(await reader.growing(await sessions.get_session(session.id))) == 1201


async def test_redacted_change_of_a_part_leaves_the_message_as_it_was(
    sessions: SessionManager,
) -> None:
    session_id = (await sessions.create_session("short")).id
    message = await sessions.add_message(session_id, "user", "first")
    part = TextPart(id=message.parts[0].id, text="second")
    await sessions.update_part(session_id, message.id, part)
    session = await sessions.get_session(session_id)
    row = await sessions.messages.row(session, message.id)
    await sessions.journal.redact(session_id, row.updates, reason="gdpr")
    page = await sessions.messages.page(session, limit=10, cursor="", newest_first=False)
    assert [found.text for found in page.items] == ["first"]


async def test_what_a_turn_appends_is_at_hand_for_the_next_one(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        sessions, turns = await client.sessions.manager(), await client.runs.turns()
        session_id = await _long_session(sessions)
        before = await sessions.messages.all(await sessions.get_session(session_id))
        heard: list[tuple[Message, ...]] = []
        reads: list[int] = []
        inner = sessions.journal.store.read

        async def read(*args: object, **kwargs: object) -> object:
            reads.append(1)
            return await inner(*args, **kwargs)  # type: ignore[arg-type]

        async def answer(turn: Turn) -> Outcome:
            assert turn.session is not None
            heard.append(tuple(await sessions.messages.growing(turn.session, up_to=turn.last)))
            await turn.add_message(compose(session_id, "user", f"word {len(heard)}", 0.0))
            return TurnCompleted()

        sessions.journal.store.read = read  # type: ignore[method-assign, assignment]
        for number in range(3):
            message = compose(session_id, "user", "go", 0.0)
            run_id = f"job-{number}"
            await turns.execute(session_id, message, answer, run_id=run_id, is_new=True)
        # The first turn of this process reads what it needs to begin, and nothing of the past.
        assert reads == []
        assert [message.text for message in heard[-1][80:]] == ["word 1", "word 2"]
        assert heard[-1][:80] == before
        session = await sessions.get_session(session_id)
        anew = Transcripts(sessions.journal)
        assert await sessions.messages.all(session) == await anew.messages(session)


async def test_the_past_is_the_same_object_until_it_changes(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    reader = MessageReader(sessions.journal)
    session = await sessions.get_session(session_id)
    first = await reader.growing(session)
    for number in range(70):
        added = await sessions.add_message(session_id, "user", f"more {number}")
        part = TextPart(id=added.parts[0].id, text=f"better {number}")
        await sessions.update_part(session_id, added.id, part)
        second = await reader.growing(session)
        assert (second.base is first.base) == (number < 64)
        assert second[-1].text == f"better {number}"
    assert list(second) == list(await MessageReader(sessions.journal).all(session))
    # Nobody else sees what is added here.
    second.append(second[0])
    second.extend([second[1]])
    assert len(await reader.growing(session)) == len(second) - 2 == 150
    part = TextPart(id=second[5].parts[0].id, text="changed")
    await sessions.update_part(session_id, second[5].id, part)
    third = await reader.growing(session)
    assert third.base is not second.base
    assert third[5].text == "changed"


def test_growing_messages_are_a_sequence() -> None:
    plain = [Message(id=f"m{number}", session_id="s", role="user") for number in range(6)]
    for count in range(7):
        growing = GrowingMessages(tuple(plain[:count]), plain[count:])
        assert len(growing) == 6
        assert list(growing) == plain
        assert list(reversed(growing)) == plain[::-1]
        for at in range(-6, 6):
            assert growing[at] is plain[at]
            for end in range(-6, 6):
                assert growing[at:end] == tuple(plain[at:end])
        assert growing[::2] == tuple(plain[::2])
        assert growing.last is plain[-1]
        for beyond in (6, -7):
            with pytest.raises(IndexError):
                growing[beyond]
        growing.replace_last(plain[0])
        assert list(growing) == [*plain[:-1], plain[0]]
        assert growing.last is plain[0]
        growing.append(plain[1])
        assert growing.last is plain[1]
        growing.extend(plain[2:4])
        assert growing.last is plain[3]
        assert list(growing) == [*plain[:-1], plain[0], *plain[1:4]]


async def test_what_somebody_else_wrote_between_is_read(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client, AsyncClient(tmp_path) as other:
        sessions, turns = await client.sessions.manager(), await client.runs.turns()
        session_id = await _long_session(sessions)
        await sessions.messages.all(await sessions.get_session(session_id))
        await other.add_message(session_id, "user", "from elsewhere")
        heard: list[tuple[Message, ...]] = []

        async def answer(turn: Turn) -> Outcome:
            session = await sessions.get_session(session_id)
            heard.append(tuple(await sessions.messages.growing(session, up_to=turn.last)))
            return TurnCompleted()

        message = compose(session_id, "user", "go", 0.0)
        await turns.execute(session_id, message, answer, run_id="job", is_new=True)
        assert [message.text for message in heard[0][79:]] == ["message 79", "from elsewhere"]


async def test_an_event_of_another_chain_does_not_follow(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions)
    transcript = Transcript(())
    events = await sessions.journal.read_all(session_id)
    assert not transcript.is_followed_by(events[0])
    for event in events[:-1]:
        transcript.fold(event)
    assert transcript.is_followed_by(events[-1])
    assert not transcript.is_followed_by(events[-2])
    assert not transcript.is_followed_by(msgspec.structs.replace(events[-1], epoch=9))


async def test_message_that_the_log_holds_twice_is_shown_once(sessions: SessionManager) -> None:
    session_id = await _long_session(sessions, 2)
    first, second = await _read(sessions, Transcripts(sessions.journal), session_id)
    async with sessions.writing(session_id) as hold:
        await hold.append(MessageCreated(message=msgspec.structs.replace(first, session_id="")))
    anew = await _read(sessions, Transcripts(sessions.journal), session_id)
    assert anew == (first, second)


async def test_only_so_many_are_kept(
    sessions: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "_MOST_KEPT", 2)
    names = [await _long_session(sessions, 1) for _ in range(3)]
    kept = Transcripts(sessions.journal)
    first = [(await _read(sessions, kept, name))[0] for name in names]
    again = [(await _read(sessions, kept, name))[0] for name in reversed(names)]
    assert [new is old for new, old in zip(again, reversed(first), strict=True)] == [
        True,
        True,
        False,
    ]


async def test_messages_with_a_file_say_so_whatever_follows(sessions: SessionManager) -> None:
    session = await sessions.create_session("files")
    kept = Transcripts(sessions.journal)
    await sessions.add_message(session.id, "user", "no file yet")
    assert not (await kept.growing(await sessions.get_session(session.id))).has_files
    notes = FilePart(media_type="text/plain", data=b"notes")
    await sessions.add_message(session.id, "user", [TextPart(text="look"), notes])
    await sessions.add_message(session.id, "user", "and?")
    assert (await kept.growing(await sessions.get_session(session.id))).has_files
