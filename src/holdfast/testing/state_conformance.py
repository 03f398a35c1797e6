"""The conformance suite for stores of state, as tests that you inherit.

Write a subclass in your tests, and pytest (with pytest-asyncio in auto mode) runs all of it::

    from holdfast.testing.state_conformance import StateStoreConformance

    class TestMyStore(StateStoreConformance):
        @contextlib.asynccontextmanager
        async def open_store(self, place, clock):
            async with MyStore(place / "data") as store:
                yield store

A store that forgets everything when its object goes sets `is_kept = False`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.clock import Clock
from holdfast.errors import NotFound, StateConflict
from holdfast.journal import Origin
from holdfast.state import StateChanged, StateConflicted, StateScope, StateStore
from holdfast.testing.clock import FakeClock

USER = StateScope("user", "ann")
OTHER = StateScope("user", "bob")


def change(key: str, version: int, value: Any = None, **fields: Any) -> StateChanged:  # noqa: ANN401
    """Return a change that sets a value."""
    return StateChanged(key=key, version=version, data={"value": value}, **fields)


def removal(key: str, version: int, **fields: Any) -> StateChanged:  # noqa: ANN401
    """Return a change that removes a value."""
    return StateChanged(key=key, version=version, cause="delete", **fields)


class StateStoreConformance:
    """Every promise of the `StateStore` protocol; supply `open_store`."""

    is_kept: ClassVar[bool] = True

    def open_store(self, place: Path, clock: Clock) -> AbstractAsyncContextManager[StateStore]:
        """Return the store at a place, open; the same place has the same values."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[StateStore]:
        """Open the store with a clock of its own."""
        async with self.open_store(place, FakeClock()) as store:
            yield store

    async def test_a_key_that_never_was_has_no_row(self, tmp_path: Path) -> None:
        """Reading makes nothing."""
        async with self.opened(tmp_path) as store:
            assert await store.read(USER, "a") is None
            assert await store.position(USER) == 0
            assert await store.list(USER, "", after="", limit=10, now=1.0) == []
            assert await store.history(USER, "a", before=0, limit=10) == []
            assert await store.at(USER) == {}

    async def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        """Value, version, labels, expiry and schema come back."""
        async with self.opened(tmp_path) as store:
            fact = change(
                "a",
                1,
                {"x": [1, None, "ü"]},
                labels=("private",),
                expires_at=2e12,
                schema="s",
                schema_number=3,
            )
            [event] = await store.write(USER, [fact], Origin(agent_path="w", run_id="r"))
            row = await store.read(USER, "a")
            assert row is not None
            assert (row.data, row.version) == ({"value": {"x": [1, None, "ü"]}}, 1)
            assert (row.labels, row.expires_at) == (("private",), 2e12)
            assert (row.schema, row.schema_number, row.agent_path) == ("s", 3, "w")
            assert row.number == event.session_seq
            assert event.run_id == "r"

    async def test_only_the_next_version_is_taken(self, tmp_path: Path) -> None:
        """Compare-and-set: anything else is refused, and nothing of its batch is stored."""
        async with self.opened(tmp_path) as store:
            await store.write(USER, [change("a", 1, "one")])
            for version in (0, 1, 3):
                with pytest.raises(StateConflict) as caught:
                    await store.write(USER, [change("b", 1, "x"), change("a", version, "two")])
                assert caught.value.context["found"] == 1
            assert await store.read(USER, "b") is None
            await store.write(USER, [change("a", 2, "two"), change("a", 3, "three")])
            row = await store.read(USER, "a")
            assert row is not None and row.data == {"value": "three"}

    async def test_of_many_writers_at_once_one_comes_first(self, tmp_path: Path) -> None:
        """The losers are told so."""
        async with self.opened(tmp_path) as store:
            tries = [store.write(USER, [change("a", 1, n)]) for n in range(10)]
            ended = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(one, StateConflict) for one in ended) == 9
            row = await store.read(USER, "a")
            assert row is not None and row.version == 1

    async def test_what_another_process_has_changed_since_is_known(self, tmp_path: Path) -> None:
        """Whether a version is the next one is decided by what is stored, not by what was seen."""
        if not self.is_kept:
            return
        async with self.opened(tmp_path) as one, self.opened(tmp_path) as two:
            await one.write(USER, [change("a", 1, "one")])
            await two.write(USER, [change("a", 2, "two")])
            await one.write(USER, [change("a", 3, "three")])
            with pytest.raises(StateConflict) as caught:
                await two.write(USER, [change("a", 3, "also three")])
            assert caught.value.context["found"] == 3
            await two.write(USER, [change("a", 4, "four")])

    async def test_a_removed_key_keeps_counting(self, tmp_path: Path) -> None:
        """So that a value cannot come back under a version that was seen before."""
        async with self.opened(tmp_path) as store:
            await store.write(USER, [change("a", 1, "one")])
            await store.write(USER, [removal("a", 2)])
            row = await store.read(USER, "a")
            assert row is not None and row.is_deleted and row.version == 2
            with pytest.raises(StateConflict):
                await store.write(USER, [change("a", 1, "again")])
            await store.write(USER, [change("a", 3, "again")])

    async def test_scopes_do_not_meet(self, tmp_path: Path) -> None:
        """Neither two ids of a kind, nor two kinds, nor two tenants."""
        scopes = [
            USER,
            OTHER,
            StateScope("project", "ann"),
            StateScope("custom", "ann"),
            StateScope("user", "ann", "acme"),
            StateScope("user", "ann:x"),
        ]
        async with self.opened(tmp_path) as store:
            for number, scope in enumerate(scopes):
                await store.write(scope, [change("k", 1, number)])
            for number, scope in enumerate(scopes):
                row = await store.read(scope, "k")
                assert row is not None and row.data == {"value": number}
                assert len(await store.list(scope, "", after="", limit=10, now=1.0)) == 1

    async def test_a_session_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        """Its values belong to its chain."""
        async with self.opened(tmp_path) as store:
            for scope in (StateScope("session", "ses_x"), StateScope("run", "r", "t", "ses_x")):
                with pytest.raises(NotFound):
                    await store.write(scope, [change("a", 1, 1)])
                assert await store.read(scope, "a") is None

    async def test_lists_are_in_order_and_leave_out_what_is_gone(self, tmp_path: Path) -> None:
        """By prefix, behind a key, at most so many."""
        async with self.opened(tmp_path) as store:
            for key in ("b", "a/2", "a/10", "a", "ä", "a0", "gone", "late", "A"):
                expires = 5.0 if key == "late" else 0.0
                await store.write(USER, [change(key, 1, key, expires_at=expires)])
            await store.write(USER, [removal("gone", 2)])

            async def keys(prefix: str, after: str = "", limit: int = 100) -> list[str]:
                rows = await store.list(USER, prefix, after=after, limit=limit, now=10.0)
                return [row.key for row in rows]

            assert await keys("") == ["A", "a", "a/10", "a/2", "a0", "b", "ä"]
            assert await keys("a/") == ["a/10", "a/2"]
            assert await keys("a", after="a/10") == ["a/2", "a0"]
            assert await keys("", limit=2) == ["A", "a"]
            assert await keys("nothing") == []

    async def test_the_history_of_a_key_is_linked(self, tmp_path: Path) -> None:
        """Newest first, page by page."""
        async with self.opened(tmp_path) as store:
            previous = 0
            for version in range(1, 6):
                fact = change("a", version, version, previous=previous)
                [_, event] = await store.write(USER, [change(f"other{version}", 1), fact])
                previous = event.session_seq
            events = await store.history(USER, "a", before=0, limit=3)
            versions = [event.expect(StateChanged).version for event in events]
            assert versions == [5, 4, 3]
            more = await store.history(USER, "a", before=events[-1].session_seq, limit=10)
            assert [event.expect(StateChanged).version for event in more] == [2, 1]

    async def test_the_past_can_be_read(self, tmp_path: Path) -> None:
        """By the number of a fact in the chain, or by its place in the store."""
        async with self.opened(tmp_path) as store:
            [first] = await store.write(USER, [change("a", 1, 1)])
            await store.write(OTHER, [change("a", 1, "other")])
            [second] = await store.write(USER, [change("a", 2, 2)])
            await store.write(USER, [removal("a", 3)])
            assert (await store.at(USER, first.session_seq))["a"].data == {"value": 1}
            assert (await store.at(USER, None, second.seq - 1))["a"].data == {"value": 1}
            assert (await store.at(USER, second.session_seq))["a"].data == {"value": 2}
            assert (await store.at(USER))["a"].is_deleted
            assert await store.at(USER, 0) == {}

    async def test_conflicts_are_kept_beside_changes(self, tmp_path: Path) -> None:
        """In one transaction; they change no value."""
        async with self.opened(tmp_path) as store:
            met = StateConflicted(key="a", expected=0, found=1, strategy="merge", outcome="merged")
            await store.write(USER, [change("a", 1, 1)])
            events = await store.write(USER, [met, change("a", 2, 2)])
            assert [event.kind for event in events] == ["state.conflict", "state.changed"]

    async def test_changes_are_told_as_they_happen(self, tmp_path: Path) -> None:
        """Only those of the scope, without gaps, also from the beginning."""
        async with self.opened(tmp_path) as store:
            await store.write(USER, [change("a", 1, 1)])
            await store.write(OTHER, [change("a", 1, 2)])
            feed = store.changes(USER, after=0)
            async with contextlib.aclosing(feed), asyncio.timeout(30):
                seen = [(await anext(feed)).expect(StateChanged).data]
                waiting = asyncio.ensure_future(anext(feed))
                await store.write(USER, [change("a", 2, 3)])
                seen.append((await waiting).expect(StateChanged).data)
            assert seen == [{"value": 1}, {"value": 3}]

    async def test_what_is_overdue_is_found(self, tmp_path: Path) -> None:
        """Once its time is up, until it is removed."""
        async with self.opened(tmp_path) as store:
            await store.write(USER, [change("a", 1, 1, expires_at=5.0), change("b", 1, 1)])
            assert await store.list_overdue(4.0, 10) == []
            [(chain, row)] = await store.list_overdue(5.0, 10)
            assert (chain, row.key) == (USER.chain, "a")
            await store.write(USER, [removal("a", 2)])
            assert await store.list_overdue(9.0, 10) == []

    async def test_a_scope_can_be_forgotten(self, tmp_path: Path) -> None:
        """With its history; it begins anew after that."""
        async with self.opened(tmp_path) as store:
            assert not await store.forget(USER, owner="me", reason="test")
            await store.write(USER, [change("a", 1, 1)])
            assert await store.forget(USER, owner="me", reason="test")
            assert await store.read(USER, "a") is None
            assert await store.position(USER) == 0
            await store.write(USER, [change("a", 1, 2)])

    async def test_values_outlive_the_store_object(self, tmp_path: Path) -> None:
        """What was written is there when the place is opened again."""
        async with self.opened(tmp_path) as store:
            await store.write(USER, [change("a", 1, 1)])
        async with self.opened(tmp_path) as store:
            row = await store.read(USER, "a")
            assert (row is not None) == self.is_kept


__all__ = ["StateStoreConformance"]
