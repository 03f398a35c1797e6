"""What a store promises about appending and reading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast.errors import AlreadyExists, LeaseLost, NotFound, StaleWriter, StorageError
from holdfast.journal import (
    BLOB_THRESHOLD,
    GENESIS,
    SYSTEM_SESSION,
    AppendRequest,
    HeldSession,
    hash_chain,
    make_header,
    verify,
)
from holdfast.testing._conform_setting import Setting, StoreSetting
from holdfast.testing._store_samples import TOPICS, Mark, Note, SampleStep, begin, expect_refusal


class AppendConformance(StoreSetting):
    """Batches, numbers, chains, fences; reading and the feed."""

    async def test_events_come_back_as_they_were_appended(self, tmp_path: Path) -> None:
        """What `append` returns is what `read` and `feed` return."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            at.clock.advance(1)
            appended = await at.journal.append("s1", [Note(text="größer 🙂\x00"), Note(topic="b")])
            assert await at.store.read("s1", after=1) == list(appended)
            assert await at.store.feed(after=1) == list(appended)
            assert [event.time for event in appended] == [at.clock.now()] * 2
            assert appended[0].expect(Note).text == "größer 🙂\x00"

    async def test_numbers_have_no_gaps_and_the_chain_holds(self, tmp_path: Path) -> None:
        """Each session counts from 1; each hash covers the one before."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 3)
            await begin(at.store, at.clock, "s2", 2)
            await at.journal.append("s1", [Note(), Note()])
            events = await at.store.read("s1")
            assert [event.session_seq for event in events] == [1, 2, 3, 4, 5]
            previous = GENESIS
            for event in events:
                assert event.hash == hash_chain(previous, make_header(event))
                previous = event.hash
            feed = await at.store.feed(after=0)
            assert [event.seq for event in feed] == [1, 2, 3, 4, 5, 6, 7]
            [head] = await at.store.heads("s1")
            assert (head.session_seq, head.hash) == (5, previous)
            assert {head.session_id for head in await at.store.heads()} == {"s1", "s2"}
            assert await verify(at.store) == []

    async def test_a_batch_is_stored_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """A table that refuses or breaks over the last event leaves nothing of the batch."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            before = await at.state()
            for bad in ("refuse", "break"):
                caught: BaseException | None = None
                try:
                    await at.journal.append("s1", [Note(topic="new"), Note(text=bad)])
                except Exception as error:  # noqa: BLE001 - any error will do; the state counts
                    caught = error
                assert caught is not None
                assert await at.state() == before
            await at.journal.append("s1", [Note(topic="new")])
            assert await verify(at.store) == []

    async def test_a_refused_neighbour_does_not_harm_a_batch(self, tmp_path: Path) -> None:
        """Appends of one moment succeed and fail each for itself."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            results = await asyncio.gather(
                at.journal.append("s1", [Note(text="one")]),
                at.journal.append("s1", [Note(text="lost")], after=99),
                at.journal.append("s1", [Note(topic="x"), Note(text="refuse")]),
                at.journal.append("s1", [Note(topic="x"), Note(text="break")]),
                at.journal.append("missing", [Note()]),
                at.journal.append("s1", [Note(text="two")]),
                return_exceptions=True,
            )
            assert isinstance(results[1], StaleWriter)
            assert isinstance(results[3], ZeroDivisionError)
            assert isinstance(results[4], NotFound)
            texts = {event.expect(Note).text for event in await at.store.read("s1")}
            assert texts == {"text 1", "one", "two"}
            assert await at.journal.row(TOPICS, "s1", "x") is None
            assert await verify(at.store) == []

    async def test_a_stale_epoch_is_refused(self, tmp_path: Path) -> None:
        """Only the current epoch writes; no epoch means the current one."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            await at.store.acquire("s1", "old", 10)
            first = await at.journal.append("s1", [SampleStep()], epoch=1)
            at.clock.advance(11)
            await at.store.acquire("s1", "new", 10)
            before = await at.state()
            for wrong in (0, 1, 3):
                with expect_refusal(LeaseLost):
                    await at.journal.append("s1", [SampleStep()], epoch=wrong)
                for payload in (Note(), Mark()):
                    with expect_refusal(LeaseLost):
                        await at.journal.append("s1", [payload], epoch=wrong)
            assert await at.state() == before
            second = await at.journal.append("s1", [SampleStep()], epoch=2)
            third = await at.journal.append("s1", [Note()])
            fourth = await at.journal.append("s1", [Mark()])
            assert [event.epoch for event in (*first, *second, *third, *fourth)] == [1, 2, 2, 2]

    async def test_a_writer_that_lost_its_session_is_refused_in_other_chains(
        self, tmp_path: Path
    ) -> None:
        """`held` is compared in the transaction, also for a chain that would be new."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            await begin(at.store, at.clock, "s2")
            first = await at.store.acquire("s1", "one", 10)
            assert first is not None
            held = HeldSession("s1", first.epoch)
            await at.journal.append("s2", [Note(text="mine")], held=held)
            await at.store.release("s1", first.epoch)
            second = await at.store.acquire("s1", "two", 10)
            assert second is not None
            before = await at.journal.read_last_seq()
            for name, is_new in (("s2", False), ("s3", True)):
                with expect_refusal(LeaseLost):
                    await at.journal.append(
                        name, [Note(text="late")], held=held, must_be_new=is_new
                    )
            with expect_refusal(LeaseLost):
                await at.journal.append("s2", [Note(text="never")], held=HeldSession("unknown", 1))
            assert await at.journal.read_last_seq() == before
            now = HeldSession("s1", second.epoch)
            await at.journal.append("s2", [Note(text="next")], held=now)

    async def test_a_new_session_with_an_epoch_leaves_nothing(self, tmp_path: Path) -> None:
        """A session that no caller has leased has no epoch to write under."""
        async with self.opened(tmp_path) as at:
            with expect_refusal(LeaseLost):
                await at.journal.append("s1", [SampleStep()], epoch=1, must_be_new=True)
            assert await at.store.heads() == []

    async def test_after_must_be_the_last_number(self, tmp_path: Path) -> None:
        """A caller who missed an event is told so."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 2)
            await at.journal.append("s1", [Note()], after=2)
            before = await at.state()
            for wrong in (0, 2, 4):
                for payload in (Note(), Mark()):
                    with expect_refusal(StaleWriter):
                        await at.journal.append("s1", [payload], after=wrong)
            assert await at.state() == before
            await at.journal.append("s1", [Mark()], after=3)
            await at.journal.append("s1", [Mark()], after=4)

    async def test_new_means_new_and_old_means_old(self, tmp_path: Path) -> None:
        """A taken id is refused, a missing one too, except that of the system chain."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            with expect_refusal(AlreadyExists):
                await at.journal.append("s1", [Note()], must_be_new=True)
            with expect_refusal(NotFound):
                await at.journal.append("s2", [Note()])
            await at.journal.append(SYSTEM_SESSION, [Note()])
            assert len(await at.store.read(SYSTEM_SESSION)) == 1

    async def test_large_payloads_come_back_and_are_kept_once(self, tmp_path: Path) -> None:
        """The same content costs its bytes once, in however many sessions."""
        async with self.opened(tmp_path) as at:
            large = "é" * BLOB_THRESHOLD
            await begin(at.store, at.clock)
            await begin(at.store, at.clock, "s2")
            for session_id in ("s1", "s1", "s2"):
                await at.journal.append(session_id, [Note(text=large)])
            events = await at.store.read("s1", after=1)
            assert [event.expect(Note).text for event in events] == [large, large]
            assert (await at.store.stats())["blobs"] == 1
            assert await verify(at.store) == []

    async def test_reading_by_number_kind_and_limit(self, tmp_path: Path) -> None:
        """Each filter narrows; numbers beyond all are no mistake."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 4)
            await at.store.acquire("s1", "me", 10)
            await at.journal.append("s1", [SampleStep()], epoch=1)
            cases: dict[tuple[int, ...], dict[str, Any]] = {
                (1, 2, 3, 4, 5): {},
                (3, 4, 5): {"after": 2},
                (3, 4): {"after": 2, "limit": 2},
                (5,): {"kinds": frozenset({SampleStep.kind})},
                (1, 2): {"kinds": frozenset({Note.kind}), "limit": 2},
                (2, 5): {"seqs": [5, 2, 2, 99]},
                (2,): {"seqs": [5, 2], "limit": 1},
            }
            for numbers, filters in cases.items():
                found = await at.store.read("s1", **filters)
                assert tuple(event.session_seq for event in found) == numbers, filters
            empty: list[dict[str, Any]] = [
                {"seqs": []},
                {"kinds": frozenset()},
                {"after": 2**70},
                {"limit": 0},
                {"limit": -1},
            ]
            for nothing in empty:
                assert await at.store.read("s1", **nothing) == []
            assert await at.store.read("missing") == []
            assert await at.store.feed(after=2**70) == []
            assert len(await at.store.feed(after=1, limit=3)) == 3
            assert len(await at.store.read("s1", limit=5000)) == 5

    async def test_the_feed_has_every_event_once_in_order(self, tmp_path: Path) -> None:
        """Paging through while others write neither skips nor repeats."""
        async with self.opened(tmp_path) as at:
            for name in ("a", "b", "c"):
                await begin(at.store, at.clock, name)

            async def write(name: str) -> None:
                for number in range(30):
                    await at.journal.append(name, [Note(rank=number)])
                    await asyncio.sleep(0)

            writers = asyncio.gather(*[write(name) for name in ("a", "b", "c")])
            seen: list[int] = []
            while len(seen) < 93:
                page = await at.store.feed(after=seen[-1] if seen else 0, limit=7)
                seen += [event.seq for event in page]
                if not page:
                    assert await at.store.changed(seen[-1], 20)
            await writers
            assert seen == list(range(1, 94))
            assert await at.store.read_last_seq() == 93

    async def test_waiting_ends_with_an_event_or_with_time(self, tmp_path: Path) -> None:
        """`changed` is true at once for the past, and soon for the future."""
        async with self.opened(tmp_path) as at:
            assert not await at.store.changed(0, 0.01)
            waiting = asyncio.create_task(at.store.changed(0, 20))
            await asyncio.sleep(0)
            await begin(at.store, at.clock)
            assert await waiting
            assert await at.store.changed(0, 20)
            await at.store.acquire("s1", "me", 10)
            released = asyncio.create_task(at.store.changed(1, 20))
            await asyncio.sleep(0)
            await at.store.release("s1", 1)
            assert await released

    async def test_what_was_stored_is_there_after_opening_again(self, tmp_path: Path) -> None:
        """A second life, and a second store beside the first, see the same."""
        if not self.is_kept:
            return
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 2)
            await at.store.acquire("s1", "me", 10)
            before = await at.state()
            async with self.opened(tmp_path) as other:
                assert await other.state() == before
                await other.journal.append("s1", [Note(text="other")], epoch=1)
                await at.journal.append("s1", [Note(text="mine")], epoch=1)
                await other.journal.append("s1", [Note(text="other")], epoch=1)
                assert await at.state() == await other.state()
                await begin(at.store, at.clock, "s2")
                for number in range(3):
                    for name, side in (("s1", at), ("s2", at), ("s1", other), ("s2", other)):
                        await side.journal.append(name, [Mark(number=number)])
                        await side.journal.append(name, [Mark(number=number)])
                assert await at.state() == await other.state()
        async with self.opened(tmp_path) as at:
            assert len(await at.store.read("s1")) == 17
            assert await verify(at.store) == []

    async def test_a_store_can_be_opened_again_after_closing(self, tmp_path: Path) -> None:
        """Closing twice is harmless; a closed store that keeps things outside refuses work."""
        at = Setting(self.make_store(tmp_path, projections=(TOPICS,), clock=self.make_clock()))
        await at.store.open()
        await begin(at.store, at.clock)
        await at.store.close()
        await at.store.close()
        if self.is_kept:
            for work in (at.store.read_last_seq, at.store.heads, at.state):
                with expect_refusal(StorageError):
                    await work()
            with expect_refusal(StorageError):
                await at.journal.append("s1", [Note()])
        await at.store.open()
        assert len(await at.store.heads()) == 1
        request = AppendRequest(
            session_id="s1", drafts=(at.journal.draft(Note()),), epoch=None, after=1
        )
        await at.store.append(request)
        await at.store.close()
