"""Messages: all kinds of parts, changes, pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import InvalidCursor, InvalidId, NotFound, UsageError
from holdfast.journal import Event, Journal, KeyedRow, RowQuery
from holdfast.messages import (
    AgentPart,
    CompactionPart,
    FilePart,
    Message,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    SubtaskPart,
    TextPart,
    TokenUsage,
    ToolPart,
)
from holdfast.sessions import Session, SessionManager, compose
from holdfast.sessions.events import MessageCreated, MessagePartUpdated
from holdfast.testing import FakeClock

ALL_PARTS: tuple[Part, ...] = (
    TextPart(id="1", text="Grüße 🙂", is_synthetic=True),
    ReasoningPart(id="2", text="hm", signature="s", encrypted="e"),
    FilePart(id="3", media_type="image/png", name="x.png", data=bytes(range(256))),
    ToolPart(
        id="4",
        call_id="c",
        tool="calc",
        state="completed",
        input={"a": [1, 2.5, None, {"b": "c"}]},
        output="8",
        time_start=1.0,
        time_end=2.0,
        attachments=(FilePart(media_type="text/plain", url="https://example.org/x"),),
        metadata={"k": True},
    ),
    SnapshotPart(id="5", snapshot="abc"),
    PatchPart(id="6", hash="abc", files=("a", "b")),
    AgentPart(id="7", name="plan"),
    SubtaskPart(id="8", prompt="p", description="d", agent="a", session_id="ses_1"),
    RetryPart(id="9", attempt=2, error={"code": "llm.timeout"}, time=3.0),
    CompactionPart(id="10", summary="before", is_automatic=False, up_to_session_seq=7),
)


async def test_all_ten_kinds_of_parts_come_back_as_they_were(
    manager: SessionManager, session: Session
) -> None:
    message = await manager.add_message(session.id, "assistant", ALL_PARTS)
    assert {type(part) for part in message.parts} == {type(part) for part in ALL_PARTS}
    assert len(ALL_PARTS) == 10
    found = await manager.messages.one(session, message.id)
    assert found == message
    assert found.parts == ALL_PARTS
    assert found.session_id == session.id


async def test_every_field_of_a_message_comes_back(
    manager: SessionManager, session: Session, clock: FakeClock
) -> None:
    message = Message(
        id="msg_1",
        session_id=session.id,
        role="assistant",
        parts=(TextPart(text="a"), TextPart(text="a"), TextPart(id="x", text="b")),
        time_created=clock.now(),
        parent_id="msg_0",
        run_id="run_1",
        agent="build",
        provider="openai",
        model="m",
        stop_reason="stop",
        usage=TokenUsage(input=1, output=2, reasoning=3, cache_read=4, cache_write=5),
        cost_usd=0.25,
        metadata={"k": [1]},
    )
    async with manager.writing(session.id) as hold:
        await hold.append(MessageCreated(message=message))
        assert hold.epoch > 0
    assert await manager.messages.all(session) == (message,)
    changed = await manager.get_session(session.id)
    assert (changed.message_count, changed.total_cost) == (1, 0.25)


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
async def test_every_role_is_taken(manager: SessionManager, session: Session, role: str) -> None:
    message = await manager.add_message(session.id, role, "text")
    assert (message.role, message.text) == (role, "text")


def deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("robot", "text"),
        ("user", []),
        ("user", None),
        ("user", 5),
        ("user", [object()]),
        ("user", ["text"]),
        ("user", [{"type": "unknown"}]),
        ("user", [ToolPart(call_id="c", tool="t", input=deep(100_000))]),
    ],
)
async def test_what_is_no_message_is_refused(
    manager: SessionManager, session: Session, role: str, content: Any
) -> None:
    with pytest.raises(UsageError):
        await manager.add_message(session.id, role, content)
    assert (await manager.get_session(session.id)).message_count == 0


def test_a_message_is_composed_from_a_text_or_from_parts() -> None:
    assert compose("ses_1", "user", "hi", 1.0).text == "hi"
    assert compose("ses_1", "user", [{"type": "text", "text": "hi"}], 1.0).text == "hi"  # type: ignore[list-item]


async def test_a_part_is_replaced_by_its_id_or_added(
    manager: SessionManager, session: Session
) -> None:
    message = await manager.add_message(
        session.id, "assistant", [TextPart(id="a", text="1"), TextPart(id="#1", text="2")]
    )
    await manager.update_part(session.id, message.id, TextPart(id="a", text="one"))
    await manager.update_part(session.id, message.id, TextPart(id="c", text="3"))
    changed = await manager.update_part(session.id, message.id, TextPart(id="c", text="three"))
    assert [part.text for part in changed.parts if isinstance(part, TextPart)] == [
        "one",
        "2",
        "three",
    ]
    assert await manager.messages.one(session, message.id) == changed
    with pytest.raises(UsageError):
        await manager.update_part(session.id, message.id, TextPart(text="no id"))
    with pytest.raises(NotFound):
        await manager.update_part(session.id, "msg_unknown", TextPart(id="a", text="x"))
    with pytest.raises(InvalidId):
        await manager.update_part(session.id, "../x", TextPart(id="a", text="x"))


async def test_a_deleted_message_is_gone_and_not_counted(
    manager: SessionManager, session: Session
) -> None:
    first = await manager.add_message(session.id, "user", "one")
    second = await manager.add_message(session.id, "user", "two")
    await manager.delete_message(session.id, first.id)
    assert await manager.messages.all(session) == (second,)
    assert (await manager.get_session(session.id)).message_count == 1
    for again in (manager.delete_message, manager.messages.one):
        with pytest.raises(NotFound):
            await again(session.id if again == manager.delete_message else session, first.id)  # type: ignore[arg-type, operator]
    assert (await manager.get_session(session.id)).message_count == 1


async def test_pages_of_messages_in_both_directions(
    manager: SessionManager, session: Session
) -> None:
    messages = [await manager.add_message(session.id, "user", str(n)) for n in range(7)]
    await manager.delete_message(session.id, messages[2].id)
    await manager.delete_message(session.id, messages[3].id)
    expected = [message for n, message in enumerate(messages) if n not in (2, 3)]
    for newest_first in (False, True):
        found: list[Message] = []
        cursor = ""
        while True:
            page = await manager.messages.page(
                session, limit=2, cursor=cursor, newest_first=newest_first
            )
            found += page.items
            cursor = page.next_cursor
            if not cursor:
                break
        assert found == (expected[::-1] if newest_first else expected)
    assert await manager.messages.last(session, 3) == tuple(expected[-3:])
    other = await manager.create_session("Other")
    page = await manager.messages.page(session, limit=2, cursor="", newest_first=False)
    for wrong in ((other, False), (session, True)):
        with pytest.raises(InvalidCursor):
            await manager.messages.page(
                wrong[0], limit=2, cursor=page.next_cursor, newest_first=wrong[1]
            )


class CountingStore:
    """Passes everything on, and counts what is read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, *args: Any, **kwargs: Any) -> Sequence[Event]:
        found: Sequence[Event] = await self._store.read(*args, **kwargs)
        self.reads.append(len(found))
        return found

    async def rows(self, query: RowQuery[Any]) -> list[KeyedRow[Any]]:
        found: list[KeyedRow[Any]] = await self._store.rows(query)
        self.reads.append(len(found))
        return found


async def test_the_last_messages_of_a_long_session_cost_no_more_than_of_a_short_one(
    manager: SessionManager, session: Session, journal: Journal
) -> None:
    async def reads() -> list[int]:
        store = CountingStore(journal.store)
        reader = SessionManager(Journal(store, clock=journal.clock), manager.keeper)
        found = await reader.get_session(session.id)
        assert len(await reader.messages.last(found, 50)) == 50
        return store.reads

    async def grow(count: int) -> None:
        async with manager.writing(session.id) as hold:
            messages = [
                Message(id=f"m-{hold.epoch}-{n}", session_id="", role="user") for n in range(count)
            ]
            await hold.append(*(MessageCreated(message=message) for message in messages))

    one_session, with_one_more, events = 1, 51, 50
    await grow(60)
    assert await reads() == [one_session, with_one_more, events]
    await grow(3000)
    assert await reads() == [one_session, with_one_more, events]


async def test_many_changed_parts_are_read_in_chunks(
    manager: SessionManager, session: Session
) -> None:
    message = await manager.add_message(session.id, "assistant", "text")
    async with manager.writing(session.id) as hold:
        await hold.append(
            *(
                MessagePartUpdated(message_id=message.id, part=TextPart(id="p", text=str(n)))
                for n in range(450)
            )
        )
    found = await manager.messages.one(session, message.id)
    assert found.parts[-1] == TextPart(id="p", text="449")
    assert len(found.parts) == 2


async def test_more_messages_than_a_page_are_all_read_and_counted(
    manager: SessionManager, session: Session
) -> None:
    async with manager.writing(session.id) as hold:
        await hold.append(
            *(
                MessageCreated(message=Message(id=f"m{n}", session_id="", role="user"))
                for n in range(1100)
            )
        )
    assert len(await manager.messages.all(session)) == 1100
    assert await manager.messages.count(session) == 1100
