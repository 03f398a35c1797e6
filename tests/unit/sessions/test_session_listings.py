"""Listings: filters, sorts, pages, cursors."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from holdfast.errors import InvalidCursor, UsageError
from holdfast.messages import Message
from holdfast.sessions import Session, SessionFilter, SessionManager
from holdfast.sessions.events import MessageCreated
from holdfast.sessions.manager import SortField
from holdfast.testing import FakeClock


@pytest.fixture
async def many(manager: SessionManager, clock: FakeClock) -> list[Session]:
    """Seven sessions that differ in everything one can sort or filter by; some tie."""
    for n, title in enumerate(["b", "a", "Ä", "c", "a", "ß", "d"]):
        session = await manager.create_session(
            title, project_id=f"p{n % 2}", directory=f"/srv/{n % 3}", metadata={"n": n}
        )
        clock.advance(1)
        async with manager.writing(session.id) as hold:
            for m in range(n % 4):
                message = Message(id=f"m{n}-{m}", session_id="", role="user", cost_usd=0.5)
                await hold.append(MessageCreated(message=message))
    first = (await manager.list_sessions(sort="time_created", descending=False, limit=1)).items[0]
    await manager.archive_session(first.id)
    await manager.create_session("child", parent_id=first.id)
    return list((await manager.list_sessions()).items)


async def walk(manager: SessionManager, limit: int, **how: Any) -> list[Session]:
    found: list[Session] = []
    cursor = ""
    while True:
        page = await manager.list_sessions(limit=limit, cursor=cursor, **how)
        found += page.items
        assert len(page.items) == limit or not page.next_cursor
        cursor = page.next_cursor
        if not cursor:
            return found


SORTS: list[SortField] = ["time_updated", "time_created", "title", "message_count", "total_cost"]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("limit", [1, 3, 8, 1000])
async def test_pages_together_are_the_sorted_list(
    manager: SessionManager, many: list[Session], sort: SortField, descending: bool, limit: int
) -> None:
    expected = sorted(many, key=lambda s: (getattr(s, sort), s.id), reverse=descending)
    assert await walk(manager, limit, sort=sort, descending=descending) == expected


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        (SessionFilter(project_id="p1"), lambda s, _: s.project_id == "p1"),
        (SessionFilter(directory="/srv/2"), lambda s, _: s.directory == "/srv/2"),
        (SessionFilter(state="archived"), lambda s, _: s.state == "archived"),
        (SessionFilter(title_contains="ä"), lambda s, _: s.title == "Ä"),
        (SessionFilter(title_contains="SS"), lambda s, _: s.title == "ß"),
        (SessionFilter(title_contains="%"), lambda s, _: False),
        (
            SessionFilter(project_id="p0", directory="/srv/0"),
            lambda s, _: s.metadata.get("n") in (0, 6),
        ),
    ],
)
async def test_a_filter_shows_what_it_names(
    manager: SessionManager, many: list[Session], where: SessionFilter, holds: Any
) -> None:
    expected = {s.id for s in many if holds(s, many)}
    assert {s.id for s in await walk(manager, 2, where=where)} == expected


async def test_filters_by_parent_and_by_time(manager: SessionManager, many: list[Session]) -> None:
    child = next(s for s in many if s.title == "child")
    found = await walk(manager, 5, where=SessionFilter(parent_id=child.parent_id))
    assert [s.id for s in found] == [child.id]
    times = sorted(s.time_updated for s in many)
    where = SessionFilter(updated_after=times[2], updated_before=times[5])
    assert {s.id for s in await walk(manager, 2, where=where)} == {
        s.id for s in many if times[2] <= s.time_updated < times[5]
    }


async def test_a_filter_by_a_state_that_does_not_exist_is_refused(manager: SessionManager) -> None:
    with pytest.raises(UsageError):
        await manager.list_sessions(SessionFilter(state="asleep"))  # type: ignore[arg-type]


async def test_pages_stay_true_while_sessions_are_added(
    manager: SessionManager, many: list[Session], clock: FakeClock
) -> None:
    first = await manager.list_sessions(sort="time_created", limit=3)
    clock.advance(100)
    await manager.create_session("newcomer")
    cursor, seen = first.next_cursor, list(first.items)
    while cursor:
        page = await manager.list_sessions(sort="time_created", limit=3, cursor=cursor)
        cursor, seen = page.next_cursor, [*seen, *page.items]
    assert sorted(s.id for s in seen) == sorted(s.id for s in many)


async def test_the_most_recent_session_is_the_one_used_last(
    manager: SessionManager, many: list[Session], clock: FakeClock
) -> None:
    assert await manager.most_recent(SessionFilter(project_id="none")) is None
    clock.advance(5)
    used = many[-1]
    await manager.update_session(used.id, summary="used")
    found = await manager.most_recent()
    assert found is not None
    assert found.id == used.id


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**9])
async def test_a_page_has_a_sensible_size(manager: SessionManager, limit: int) -> None:
    with pytest.raises(UsageError):
        await manager.list_sessions(limit=limit)


async def test_a_sort_that_does_not_exist_is_refused(manager: SessionManager) -> None:
    with pytest.raises(UsageError):
        await manager.list_sessions(sort="slug; DROP TABLE")  # type: ignore[arg-type]


def encode(value: object) -> str:
    packed = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


async def test_a_cursor_that_was_not_handed_out_is_refused(
    manager: SessionManager, many: list[Session]
) -> None:
    good = (await manager.list_sessions(limit=2)).next_cursor
    listing, value, key = json.loads(base64.urlsafe_b64decode(good + "=="))
    assert (await manager.list_sessions(limit=2, cursor=encode([listing, value, key]))).items
    foreign = [
        (await manager.list_sessions(limit=2, sort="title")).next_cursor,
        (await manager.list_sessions(limit=2, descending=False)).next_cursor,
        (await manager.list_sessions(SessionFilter(project_id="p0"), limit=2)).next_cursor,
    ]
    garbage = [
        "x",
        "%%%%",
        "äöü",
        good + "!",
        good + "=",
        " " + good,
        good[:-1],
        good[: len(good) // 2],
        "A" * 10_000_000,
        encode([[[[]]]]),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        encode([listing, "text", key]),
        encode([listing, None, key]),
        encode([listing, True, key]),
        encode([listing, value, 5]),
        encode([listing, value, key, "more"]),
        encode([listing, value]),
        encode(["0" * 16, value, key]),
    ]
    for cursor in [*foreign, *garbage]:
        with pytest.raises(InvalidCursor) as caught:
            await manager.list_sessions(limit=2, cursor=cursor)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30, 1.5, "1"])
async def test_a_cursor_with_a_number_that_no_row_can_have_is_refused(
    manager: SessionManager, many: list[Session], value: object
) -> None:
    good = (await manager.list_sessions(limit=2, sort="message_count")).next_cursor
    listing, _, key = json.loads(base64.urlsafe_b64decode(good + "=="))
    with pytest.raises(InvalidCursor):
        await manager.list_sessions(
            limit=2, sort="message_count", cursor=encode([listing, value, key])
        )
