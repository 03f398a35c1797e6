"""What a store promises about leases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from holdfast.errors import LeaseLost, NotFound, SessionBusy, StaleWriter
from holdfast.journal import AppendRequest, LeaseWish
from holdfast.testing._conform_setting import StoreSetting
from holdfast.testing._store_samples import Note, SampleStep, begin, expect_refusal, list_drafts


class LeaseConformance(StoreSetting):
    """Take, keep, lose and give back."""

    async def test_a_lease_is_held_by_one_until_it_ends(self, tmp_path: Path) -> None:
        """No other process, nor the same owner again, gets it before its time is up."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 3)
            with expect_refusal(NotFound):
                await at.store.acquire("missing", "me", 10)
            head = await at.store.acquire("s1", "me", 10)
            assert head is not None
            assert (head.epoch, head.owner, head.session_seq) == (1, "me", 3)
            assert head.is_held
            assert (await at.store.heads("s1")) == [head]
            at.clock.advance(9.9)
            assert await at.store.acquire("s1", "you", 10) is None
            assert await at.store.acquire("s1", "me", 10) is None
            at.clock.advance(0.1)
            taken = await at.store.acquire("s1", "you", 10)
            assert taken is not None and (taken.epoch, taken.owner) == (2, "you")

    async def test_a_lease_is_taken_together_with_the_first_facts(self, tmp_path: Path) -> None:
        """In one transaction, or not at all."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 3)
            wish = LeaseWish(owner="me", ttl_s=10)
            both = list_drafts(at.store, at.clock, [Note(text="a"), Note(text="b")])
            first = AppendRequest(session_id="s1", drafts=both, epoch=None, after=3, acquire=wish)
            with expect_refusal(StaleWriter):
                await at.store.append(msgspec.structs.replace(first, after=2))
            with expect_refusal(NotFound):
                await at.store.append(msgspec.structs.replace(first, session_id="missing"))
            [head] = await at.store.heads("s1")
            assert (head.epoch, head.owner, head.session_seq) == (0, "", 3)
            events = await at.store.append(first)
            assert [(event.epoch, event.session_seq) for event in events] == [(1, 4), (1, 5)]
            [head] = await at.store.heads("s1")
            assert (head.epoch, head.owner, head.session_seq) == (1, "me", 5)
            assert head.is_held
            with expect_refusal(SessionBusy):
                await at.store.append(msgspec.structs.replace(first, after=5))
            assert (await at.store.heads("s1")) == [head]

    async def test_of_many_who_want_it_one_gets_it(self, tmp_path: Path) -> None:
        """Twenty callers at once, one lease."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            heads = await asyncio.gather(
                *[at.store.acquire("s1", f"owner {number}", 10) for number in range(20)]
            )
            assert [head.epoch for head in heads if head is not None] == [1]

    async def test_renewal_prolongs_and_names_what_is_lost(self, tmp_path: Path) -> None:
        """An expired lease not taken is still ours; a taken, released or gone one is not."""
        async with self.opened(tmp_path) as at:
            for name in ("kept", "expired", "taken", "released"):
                await begin(at.store, at.clock, name)
                await at.store.acquire(name, "me", 10)
            at.clock.advance(8)
            assert at.store.renew({"kept": 1}, "me", 10) == set()
            at.clock.advance(8)
            assert await at.store.acquire("kept", "you", 10) is None
            await at.store.acquire("taken", "you", 10)
            await at.store.release("released", 1)
            held = {"kept": 1, "expired": 1, "taken": 1, "released": 1, "missing": 1}
            lost = await asyncio.to_thread(at.store.renew, held, "me", 10)
            assert lost == {"taken", "released", "missing"}
            at.clock.advance(9)
            assert await at.store.acquire("expired", "you", 10) is None
            assert at.store.renew({"kept": 1}, "another process", 10) == {"kept"}

    async def test_an_owner_lives_as_long_as_it_renews(self, tmp_path: Path) -> None:
        """Also one that holds nothing."""
        async with self.opened(tmp_path) as at:
            assert not await at.store.is_alive("me")
            at.store.renew({}, "me", 10)
            at.clock.advance(9)
            assert await at.store.is_alive("me")
            at.clock.advance(2)
            assert not await at.store.is_alive("me")
            at.store.renew({}, "you", 10)
            assert not await at.store.is_alive("me")
            assert await at.store.is_alive("you")

    async def test_no_step_of_the_wall_clock_moves_a_lease(self, tmp_path: Path) -> None:
        """Not forwards, which would take it from the living; not backwards: it would never end."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            assert await at.store.acquire("s1", "me", 10) is not None
            at.store.renew({}, "me", 10)
            at.clock.step(86_400)
            assert await at.store.acquire("s1", "you", 10) is None
            assert await at.store.is_alive("me")
            at.clock.step(-2 * 86_400)
            at.clock.advance(9)
            assert await at.store.acquire("s1", "you", 10) is None
            at.clock.advance(1)
            taken = await at.store.acquire("s1", "you", 10)
            assert taken is not None and not await at.store.is_alive("me")

    async def test_a_machine_that_slept_has_let_its_leases_run_out(self, tmp_path: Path) -> None:
        """The boot clock counts sleep: whoever is first after it may take them."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            await at.store.acquire("s1", "me", 10)
            at.clock.advance(3600)
            [head] = await at.store.heads("s1")
            assert (head.owner, head.is_held) == ("me", False)
            assert at.store.renew({"s1": 1}, "me", 10) == set()
            at.clock.advance(3600)
            assert await at.store.acquire("s1", "you", 10) is not None
            assert at.store.renew({"s1": 1}, "me", 10) == {"s1"}

    async def test_who_was_overtaken_without_proof_may_still_be_alive(self, tmp_path: Path) -> None:
        """One that gave its lease back is not; the heads tell up to which epoch it may be so."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            await at.store.acquire("s1", "me", 10)
            await at.store.release("s1", 1)
            second = await at.store.acquire("s1", "me", 10)
            assert second is not None and second.unproved_epoch == 0
            at.clock.advance(11)
            third = await at.store.acquire("s1", "you", 10)
            assert third is not None and third.unproved_epoch == 2
            at.store.renew({"s1": 3}, "you", 0)
            fourth = await at.store.acquire("s1", "you", 10)
            assert fourth is not None and (fourth.epoch, fourth.unproved_epoch) == (4, 2)

    async def test_a_released_lease_is_free_at_once(self, tmp_path: Path) -> None:
        """The old holder's epoch stays the current one until another owner takes the next."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            await at.store.acquire("s1", "me", 10)
            await at.store.release("s1", 1)
            [head] = await at.store.heads("s1")
            assert (head.epoch, head.owner, head.is_held) == (1, "", False)
            taken = await at.store.acquire("s1", "you", 10)
            assert taken is not None and taken.epoch == 2
            await at.store.release("s1", 1)
            await at.store.release("missing", 1)
            assert (await at.store.heads("s1")) == [taken]

    async def test_the_last_append_gives_the_lease_back(self, tmp_path: Path) -> None:
        """In the same commit; a refused append gives nothing back."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            taken = await at.store.acquire("s1", "me", 10)
            with expect_refusal(LeaseLost):
                await at.journal.append("s1", [SampleStep()], epoch=9, release=True)
            assert (await at.store.heads("s1")) == [taken]
            await at.journal.append("s1", [SampleStep(), Note()], epoch=1, release=True)
            [head] = await at.store.heads("s1")
            assert (head.owner, head.is_held, head.session_seq) == ("", False, 3)

    async def test_no_epoch_follows_the_lease(self, tmp_path: Path) -> None:
        """Facts that any process may add carry the epoch of the moment, under a lease or not."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            epochs = []
            for owner in ("a", "b"):
                [before] = await at.journal.append("s1", [Note()])
                head = await at.store.acquire("s1", owner, 10)
                assert head is not None
                [after] = await at.journal.append("s1", [Note()])
                await at.store.release("s1", head.epoch)
                epochs += [before.epoch, after.epoch]
            assert epochs == [0, 1, 1, 2]
