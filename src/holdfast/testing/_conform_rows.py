"""What a store promises about the rows of projections."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SchemaTooNew, UsageError
from holdfast.journal import Condition, RowQuery
from holdfast.testing._conform_setting import Setting, StoreSetting
from holdfast.testing._store_samples import (
    LAZY_TOPICS,
    NEWER_TOPICS,
    TOPICS,
    Note,
    Topic,
    begin,
    expect_refusal,
)

_SAMPLES = (
    Note(topic="b", text="Straße", rank=2),
    Note(topic="a", text="beta", rank=1),
    Note(topic="c", text="ÄPFEL und Birnen, lange schon", rank=2),
    Note(topic="d", text="Zeta", rank=-5),
)


async def _fill(at: Setting) -> None:
    await at.journal.append("s1", _SAMPLES, must_be_new=True)
    await at.journal.append("s2", [Note(topic="z", text="other", rank=2)], must_be_new=True)


class RowConformance(StoreSetting):
    """Queries, and rows that follow from the log alone."""

    async def test_conditions_select_rows(self, tmp_path: Path) -> None:
        """Text is compared byte by byte; `contains` ignores case in every script."""
        async with self.opened(tmp_path) as at:
            await _fill(at)
            cases: dict[Condition, str] = {
                Condition("rank", "=", 2): "bcz",
                Condition("rank", "!=", 2): "ad",
                Condition("rank", "<", 1): "d",
                Condition("rank", "<=", 1): "ad",
                Condition("rank", ">", 1): "bcz",
                Condition("rank", ">=", 1): "abcz",
                Condition("rank", "in", (1, -5, 77)): "ad",
                Condition("rank", "in", ()): "",
                Condition("rank", "outside", (0, 1)): "bcdz",
                Condition("text", "<", "a"): "bd",
                Condition("text", "contains", "strasse"): "b",
                Condition("text", "contains", "äpfel"): "c",
                Condition("text", "contains", "ETA"): "ad",
                Condition("text", "contains", "%"): "",
                Condition("text", "contains", ""): "abcdz",
                Condition("text", "=", "zeta"): "",
                Condition("text", "=", "' OR 1 = 1 --"): "",
                Condition("is_long", "=", True): "c",
                Condition("is_long", "=", False): "abdz",
            }
            for condition, keys in cases.items():
                found = await at.store.rows(RowQuery(projection=TOPICS, where=(condition,)))
                assert sorted(row.key for row in found) == list(keys), condition
            both = (Condition("rank", "=", 2), Condition("topic", "!=", "b"))
            found = await at.store.rows(RowQuery(projection=TOPICS, where=both, session_id="s1"))
            assert [(row.session_id, row.key) for row in found] == [("s1", "c")]

    async def test_rows_are_ordered_and_paged(self, tmp_path: Path) -> None:
        """By value, then by key; pages join without overlap, in both directions."""
        async with self.opened(tmp_path) as at:
            await _fill(at)
            for order, keys in (("", "abcdz"), ("rank", "dabcz"), ("text", "bdazc")):
                for descending in (False, True):
                    wanted = keys[::-1] if descending else keys
                    query = RowQuery(projection=TOPICS, order=order, descending=descending, limit=2)
                    seen = ""
                    while page := await at.store.rows(query):
                        seen += "".join(row.key for row in page)
                        last = page[-1]
                        value = getattr(last.row, order) if order else last.key
                        query = RowQuery(
                            projection=TOPICS,
                            order=order,
                            descending=descending,
                            limit=2,
                            after=(value, last.key),
                        )
                    assert seen == wanted, (order, descending)

    async def test_a_row_is_found_by_its_key(self, tmp_path: Path) -> None:
        """Within its session only."""
        async with self.opened(tmp_path) as at:
            await _fill(at)
            row = await at.journal.row(TOPICS, "s1", "a")
            assert row is not None and (row.text, row.count) == ("beta", 1)
            assert await at.journal.row(TOPICS, "s2", "a") is None
            assert await at.journal.row(TOPICS, "missing", "a") is None
            assert len(await at.store.rows(RowQuery(projection=TOPICS, key="a"))) == 1

    async def test_a_query_that_cannot_be_meant_is_refused(self, tmp_path: Path) -> None:
        """Unknown columns, values that no database holds, limits beyond reason."""
        async with self.opened(tmp_path) as at:
            await _fill(at)
            wrong: list[RowQuery[Topic]] = [
                RowQuery(projection=TOPICS, order="data"),
                *[
                    RowQuery(projection=TOPICS, where=(condition,))
                    for condition in (
                        Condition("rank; DROP TABLE events", "=", 1),
                        Condition("rank", "in", 1),
                        Condition("rank", "=", (1, 2)),
                        Condition("rank", "outside", (1,)),
                        Condition("rank", "=", 2**63),
                        Condition("rank", "=", None),
                        Condition("text", "=", "\ud800"),
                        Condition("text", "contains", 5),
                    )
                ],
                RowQuery(projection=TOPICS, limit=0),
                RowQuery(projection=TOPICS, limit=10_001),
                RowQuery(projection=TOPICS, after=(2**64, "a")),
                RowQuery(projection=TOPICS, after=("a", "\udfff")),
                RowQuery(projection=TOPICS, session_id="\ud800"),
            ]
            for query in wrong:
                with expect_refusal(UsageError):
                    await at.store.rows(query)

    async def test_rows_change_and_go_with_their_events(self, tmp_path: Path) -> None:
        """Several events of one batch may touch one row; the last one counts."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock)
            batch = [Note(text=""), Note(text="again"), Note(text="last"), Note(topic="b")]
            await at.journal.append("s1", batch)
            row = await at.journal.row(TOPICS, "s1", "a")
            assert row is not None and (row.text, row.count) == ("last", 2)
            await at.journal.append("s1", [Note(text="")])
            assert await at.journal.row(TOPICS, "s1", "a") is None
            await at.journal.append("s1", [Note(topic="", text="no row")])
            found = await at.store.rows(RowQuery(projection=TOPICS))
            assert [row.key for row in found] == ["b"]

    async def test_rebuilt_rows_equal_those_kept_up_to_date(self, tmp_path: Path) -> None:
        """Whatever happened before; progress is told."""
        async with self.opened(tmp_path) as at:
            await _fill(at)
            await at.journal.append("s1", [Note(topic="b", text=""), Note(topic="c")])
            await at.journal.redact("s1", [1, 3], reason="test")
            before = await at.state()
            told: list[tuple[int, int]] = []
            count = await at.journal.rebuild(lambda done, total: told.append((done, total)))
            assert count == 8
            assert told[-1] == (8, 8)
            assert await at.state() == before

    async def test_rows_of_an_older_version_are_rebuilt_on_opening(self, tmp_path: Path) -> None:
        """And those of a newer version are refused, untouched."""
        if not self.is_kept:
            return
        async with self.opened(tmp_path, projections=()) as at:
            await _fill(at)
        async with self.opened(tmp_path) as at:
            before = await at.state()
            assert len(await at.store.rows(RowQuery(projection=TOPICS))) == 5
        async with self.opened(tmp_path, projections=(NEWER_TOPICS,)) as at:
            found = await at.store.rows(RowQuery(projection=NEWER_TOPICS))
            assert len(found) == 5
        older = self.make_store(tmp_path, projections=(TOPICS,), clock=self.make_clock())
        with expect_refusal(SchemaTooNew):
            await older.open()
        async with self.opened(tmp_path, projections=(NEWER_TOPICS,)) as at:
            assert len(await at.store.rows(RowQuery(projection=NEWER_TOPICS))) == 5
            assert isinstance(before, tuple)
            assert await at.store.feed(after=0) == before[1]

    async def test_lazy_rows_are_seen_as_soon_as_their_events(self, tmp_path: Path) -> None:
        """While the lease is held, by other stores, after a redaction, and once it is free."""
        both = (TOPICS, LAZY_TOPICS)
        async with self.opened(tmp_path, projections=both) as at:
            await _fill(at)
            for session_id in ("s1", "s2"):
                await at.store.acquire(session_id, "me", 60)
            await at.journal.append("s1", [Note(topic="a"), Note(topic="e", rank=7)], epoch=1)
            await at.journal.append("s2", [Note(topic="z", text="")], epoch=1)
            await _expect_alike(at)
            await at.journal.append("s1", [Note(topic="a", text="again")], epoch=1)
            if self.is_kept:
                async with self.opened(tmp_path, projections=both) as other:
                    await _expect_alike(other)
                    await other.journal.append("s1", [Note(topic="f")])
            await at.journal.append("s1", [Note(topic="e")], epoch=1)
            await _expect_alike(at)
            await at.journal.append("s1", [Note(topic="g", text="removed soon")], epoch=1)
            await at.journal.redact("s1", [5, 6], reason="test")
            await _expect_alike(at)
            await at.journal.append("s1", [Note(topic="e")], epoch=1)
            await at.journal.rebuild()
            await _expect_alike(at)
            await at.journal.append("s1", [Note(topic="h")], epoch=1, release=True)
            await at.journal.append("s2", [Note(topic="y")], epoch=1)
            await at.store.release("s2", 1)
            await _expect_alike(at)


async def _expect_alike(at: Setting) -> None:
    """Expect that the lazy table holds what the other one holds."""
    for session_id in ("s2", "", "s1"):
        lazy = await at.store.rows(RowQuery(projection=LAZY_TOPICS, session_id=session_id))
        assert lazy == await at.store.rows(RowQuery(projection=TOPICS, session_id=session_id))
    for key in ("a", "z"):
        row = await at.journal.row(LAZY_TOPICS, "s1", key)
        assert row == await at.journal.row(TOPICS, "s1", key)
