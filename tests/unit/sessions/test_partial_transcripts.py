"""A turn reads a long conversation from its newest summary on, and everything where that counts
for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.journal import Journal, SqliteStore
from holdfast.messages import CompactionPart, Message, Part, TextPart
from holdfast.sessions import SESSION_PROJECTIONS, Session, SessionManager
from holdfast.sessions import events as facts
from holdfast.turns import LeaseKeeper


class Talk:
    """A conversation of ten messages, with a summary of the first six behind the eighth."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.manager = SessionManager(journal, LeaseKeeper(journal))
        self.epoch = 0

    async def append(self, *payloads: facts.Payload) -> int:
        events = await self.journal.append("ses_long", payloads, epoch=self.epoch)
        return events[-1].session_seq

    async def say(self, name: str, *parts: Part) -> int:
        said = Message(
            id=name, session_id="", role="user", parts=parts or (TextPart(id="p", text=name),)
        )
        return await self.append(facts.MessageCreated(message=said))

    async def begin(self, up_to: str = "msg_6") -> Talk:
        await self.manager.create_session("long", session_id="ses_long")
        head = await self.journal.store.acquire("ses_long", "me", 1_000)
        assert head is not None
        self.epoch = head.epoch
        for number in range(1, 9):
            await self.say(f"msg_{number}")
        part = CompactionPart(id="p", summary="What was said.", up_to_message_id=up_to)
        self.at = await self.say("msg_sum", part)
        for number in (9, 10):
            await self.say(f"msg_{number}")
        return self

    async def session(self) -> Session:
        return await self.manager.get_session("ses_long")

    async def names(self, **options: int) -> list[str]:
        found = await self.manager.messages.growing(await self.session(), **options)
        return [message.id.removeprefix("msg_") for message in found]


ALL = [*"12345678", "sum", "9", "10"]
LATE = ["6", "7", "8", "sum", "9", "10"]


@pytest.fixture
async def talk(tmp_path: Path):
    store = SqliteStore(tmp_path / "journal.db", projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        yield Talk(journal)


async def test_a_turn_begins_at_the_message_up_to_which_the_summary_stands(talk: Talk) -> None:
    await talk.begin()
    assert (await talk.session()).compacted_at == talk.at
    assert await talk.names() == LATE
    assert await talk.names() == LATE


async def test_all_messages_are_still_there_for_whoever_asks(talk: Talk) -> None:
    await talk.begin()
    await talk.names()
    every = await talk.manager.messages.all(await talk.session())
    assert [message.id.removeprefix("msg_") for message in every] == ALL


async def test_a_run_that_goes_on_gets_its_own_messages_too(talk: Talk) -> None:
    await talk.begin()
    assert await talk.names() == LATE
    assert await talk.names(since=3) == ["3", "4", "5", *LATE]
    assert await talk.names(since=100) == ["3", "4", "5", *LATE]


async def test_a_newer_summary_lets_go_of_what_it_stands_for(talk: Talk) -> None:
    await talk.begin()
    assert await talk.names() == LATE
    part = CompactionPart(id="p", summary="More.", up_to_message_id="msg_9")
    await talk.say("msg_again", part)
    assert await talk.names() == ["9", "10", "again"]


@pytest.mark.parametrize("up_to", ["", "msg_unknown", "msg_10"])
async def test_a_summary_that_names_nothing_before_it_counts_for_nothing(
    talk: Talk, up_to: str
) -> None:
    await talk.begin(up_to)
    assert await talk.names() == ALL


async def test_a_deleted_place_makes_a_summary_count_for_nothing(talk: Talk) -> None:
    await talk.begin()
    await talk.append(facts.MessageDeleted(message_id="msg_6"))
    assert await talk.names() == [name for name in ALL if name != "6"]


async def test_a_reverted_summary_counts_for_nothing(talk: Talk) -> None:
    await talk.begin()
    hidden = ((talk.at, talk.at + 10),)
    await talk.append(facts.SessionReverted(hidden=hidden, message_count=8, to=talk.at - 1))
    assert await talk.names() == list("12345678")


async def test_a_redacted_summary_counts_for_nothing(talk: Talk) -> None:
    await talk.begin()
    await talk.journal.redact("ses_long", [talk.at], reason="a secret")
    found = await talk.names()
    assert found[:8] == list("12345678")
