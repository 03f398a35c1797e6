"""The journal: what it refuses, and what a subscriber sees."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import AlreadyExists, ChainBroken, UsageError
from holdfast.journal import Event, Journal, MemoryStore, Origin, SqliteStore, verify
from holdfast.journal import journal as module
from holdfast.journal.projection import group_by_kind
from holdfast.redaction import Redactor
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS, Note, SampleStep


@pytest.fixture
async def journal() -> Journal:
    opened = await Journal(MemoryStore(projections=SAMPLE_TABLES)).open()
    await opened.append("s1", [Note(text="first")], must_be_new=True)
    return opened


async def test_an_append_that_cannot_be_meant_is_refused(journal: Journal) -> None:
    cases = [
        ([], {}),
        ([SampleStep()], {}),
        ([Note(), SampleStep()], {}),
        ([Note()], {"release": True}),
        ([Note(text="\ud800")], {}),
    ]
    for payloads, options in cases:
        with pytest.raises(UsageError) as caught:
            await journal.append("s1", payloads, **options)  # type: ignore[arg-type]
        assert caught.value.code == "usage.invalid"
    assert len(await journal.read("s1")) == 1


async def test_events_say_who_caused_them(journal: Journal) -> None:
    origin = Origin(run_id="run_1", agent_path="a/b", correlation_id="c", causation_id="d")
    [event] = await journal.append("s1", [Note()], origin=origin)
    assert (event.run_id, event.agent_path) == ("run_1", "a/b")
    assert (event.correlation_id, event.causation_id) == ("c", "d")
    assert await verify(journal.store) == []
    with pytest.raises(UsageError):
        event.expect(SampleStep)


async def test_facts_that_are_stored_together_hold_no_secret(journal: Journal) -> None:
    journal.redactor = Redactor({"pin": "correct-horse-battery"})
    early = journal.encode(Note(text="correct-horse-battery"), Origin(run_id="run_1"))
    plain = Note(text="plain")
    batch = journal.batch([early, plain], Origin(run_id="run_2"))
    assert batch.was_redacted and batch.drafts[1].value is plain
    events = await journal.append("s1", batch)
    assert [event.expect(Note).text for event in events] == ["[redacted:pin]", "plain"]
    assert [(event.time, event.run_id) for event in events] == [
        (early.time, "run_1"),
        (batch.drafts[1].time, "run_2"),
    ]
    assert not journal.batch([plain, plain]).was_redacted
    assert await verify(journal.store) == []


async def test_a_fact_that_cannot_be_kept_is_refused_before_it_waits(journal: Journal) -> None:
    with pytest.raises(UsageError):
        journal.encode(Note(text="\ud800"))


async def test_a_clock_of_whole_seconds_keeps_the_chain(tmp_path: Path) -> None:
    clock = FakeClock(1_800_000_000)
    async with Journal(SqliteStore(tmp_path / "journal.db"), clock=clock) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        assert await verify(journal.store) == []


async def test_a_subscriber_sees_what_it_asked_for(journal: Journal) -> None:
    await journal.append("s2", [Note(text="other")], must_be_new=True)
    await journal.store.acquire("s1", "me", 10)
    await journal.append("s1", [SampleStep(), Note(text="end")], epoch=1)

    async def seen(**options) -> list[int]:
        def is_end(event) -> bool:
            return event.seq == 4

        return [event.seq async for event in journal.subscribe(until=is_end, **options)]

    assert await seen(after=0) == [1, 2, 3, 4]
    assert await seen(after=2) == [3, 4]
    assert await seen(after=0, session_id="s1") == [1, 3, 4]
    assert await seen(after=0, patterns=[Note.kind]) == [1, 2, 4]
    assert await seen(after=0, patterns=["testing.*", "x"]) == [1, 2, 3, 4]
    assert await seen(after=0, patterns=Note.kind) == [1, 2, 4]


@pytest.mark.parametrize("patterns", ["", "a*b", [], ["note.*", "*x"]])
async def test_a_subscriber_whose_patterns_mean_nothing_is_refused(
    journal: Journal, patterns: str | list[str]
) -> None:
    feed = journal.subscribe(after=0, patterns=patterns)
    with pytest.raises(UsageError):
        await anext(feed)


async def test_a_subscriber_without_a_cursor_sees_what_comes(journal: Journal) -> None:
    feed = journal.subscribe()
    coming = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)
    await journal.append("s1", [Note(text="new")])
    async with asyncio.timeout(20):
        event = await coming
    assert event.expect(Note).text == "new"
    await feed.aclose()  # type: ignore[attr-defined]


async def test_whole_chains_are_read_in_pages(journal: Journal, monkeypatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 3)
    await journal.append("s1", [Note(rank=number) for number in range(9)])
    assert [event.session_seq for event in await journal.read_all("s1")] == list(range(1, 11))
    assert len(await journal.read_all("s1", up_to=4)) == 4
    feed = journal.subscribe(after=0, until=lambda event: event.seq == 9)
    assert [event.seq async for event in feed] == list(range(1, 10))
    assert len(await journal.read_all("s1", up_to=99)) == 10
    assert await journal.redact("s1", range(1, 9), reason="many") == 8
    assert await journal.head("missing") is None
    head = await journal.head("s1")
    assert head is not None and head.session_seq == 11


async def test_numbers_that_were_tampered_with_do_not_send_readers_in_circles(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path)) as journal:
        await journal.append("s1", [Note(), Note()], must_be_new=True)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE events SET session_seq = 'two' WHERE session_seq = 2")
        with pytest.raises(ChainBroken) as caught:
            await journal.read_all("s1")
        assert caught.value.code == "audit.chain_broken"
        assert await verify(journal.store) != []


def test_projections_have_different_names() -> None:
    with pytest.raises(UsageError):
        group_by_kind([TOPICS, TOPICS])


async def test_an_observer_is_told_of_what_this_journal_stored_and_only_of_that(
    journal: Journal,
) -> None:
    seen: list[tuple[str, ...]] = []

    def note(drafts: object, events: Sequence[Event], took_s: float) -> None:
        assert took_s >= 0
        seen.append(tuple(event.kind for event in events))

    journal.on_stored = note
    await journal.append("s3", [Note(text="one")], must_be_new=True)
    with pytest.raises(AlreadyExists):
        await journal.append("s3", [Note(text="two")], must_be_new=True)
    await journal.begin("s3", [SampleStep()], owner="me", ttl_s=10, after=1)
    assert seen == [(Note.kind,), (SampleStep.kind,)]
