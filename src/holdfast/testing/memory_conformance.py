"""The conformance suite for storages of memories, as tests that you inherit.

Write a subclass in your tests, and pytest (with pytest-asyncio in auto mode) runs all of it::

    from holdfast.testing.memory_conformance import MemoryStorageConformance

    class TestMyStorage(MemoryStorageConformance):
        def make_storage(self, place):
            return MyStorage(place / "data")

A storage that forgets everything when its object goes sets `is_kept = False`.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, NotFound
from holdfast.memory import (
    LexicalHit,
    MemoryDraft,
    MemoryEntry,
    MemoryFilter,
    MemoryOptions,
    MemoryPassage,
    MemoryPlace,
    MemoryStorage,
    Provenance,
    Purge,
    SearchLookup,
    VectorSpace,
    WordCounts,
    query_words,
)

T0 = 1_800_000_000.0
MODEL = "test/1"
HOME = MemoryPlace("acme", "session", "s1")


def draft(
    memory_id: str,
    content: str = "some words",
    *,
    tenant: str = "acme",
    session_id: str = "s1",
    metadata: JsonObject | None = None,
    options: MemoryOptions | None = None,
    time: float = T0,
) -> MemoryDraft:
    """Return a memory of a session, about to be stored."""
    chosen = options or MemoryOptions(kind="fact")
    return MemoryDraft(
        id=memory_id,
        tenant=tenant,
        owner=session_id,
        session_id=session_id,
        content=content,
        metadata=metadata or {},
        created=time,
        valid_from=time if chosen.valid_from is None else chosen.valid_from,
        expires=None if chosen.ttl_s is None else time + chosen.ttl_s,
        options=chosen,
        supersedes=chosen.supersedes,
    )


def vector(*numbers: float) -> bytes:
    """Return numbers as a stored vector."""
    return struct.pack(f"<{len(numbers)}e", *numbers)


class MemoryStorageConformance:
    """Every promise of the `MemoryStorage` protocol; supply `make_storage`."""

    is_kept: ClassVar[bool] = True
    """What is stored outlives the object."""

    def make_storage(self, place: Path) -> MemoryStorage:
        """Return a storage that is not open yet and keeps its data under `place`."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[MemoryStorage]:
        """Open a storage for the time of a block."""
        storage = self.make_storage(place)
        await storage.open()
        try:
            yield storage
        finally:
            await storage.close()

    async def found(
        self, storage: MemoryStorage, where: MemoryFilter | None = None, place: MemoryPlace = HOME
    ) -> list[str]:
        """Return the ids that a filter finds, newest first."""
        chosen = where or MemoryFilter()
        entries = await storage.find([place], chosen, now=T0, limit=100, after="")
        return [entry.id for entry in entries]

    async def words(self, storage: MemoryStorage, text: str, place: MemoryPlace = HOME) -> set[str]:
        """Return the ids that hold the words of a text."""
        _, found = await self.hits(storage, query_words(text), place)
        return {entry.id for entry in found.values()}

    async def hits(
        self, storage: MemoryStorage, words: Sequence[str], place: MemoryPlace = HOME
    ) -> tuple[dict[int, LexicalHit], dict[int, MemoryEntry]]:
        """Return what holds the words, by row."""
        hits: dict[int, LexicalHit] = {}

        def all_of_them(
            found: list[LexicalHit], _: list[int] | None, lookup: SearchLookup
        ) -> Sequence[int]:
            hits.update({hit.row: hit for hit in found})
            return list(hits)

        found = await storage.select([place], words, MemoryFilter(), all_of_them, now=T0)
        return hits, found

    async def picked(
        self,
        storage: MemoryStorage,
        place: MemoryPlace,
        rows: list[int] | None,
        where: MemoryFilter = MemoryFilter(),  # noqa: B008 - frozen
    ) -> list[str]:
        """Return the ids at some rows, or at all that pass the filter."""

        def pick(
            _: list[LexicalHit], passing: list[int] | None, lookup: SearchLookup
        ) -> Sequence[int]:
            return (passing or ()) if rows is None else rows

        found = await storage.select([place], (), where, pick, now=T0)
        return [entry.id for entry in found.values()]

    async def tokens(
        self, storage: MemoryStorage, rows: list[int], model: str, place: MemoryPlace = HOME
    ) -> dict[int, bytes | None]:
        """Return the tokens that a search can read at some rows."""
        found: dict[int, MemoryPassage] = {}
        alone: dict[int, bytes] = {}

        def look(
            _: list[LexicalHit], passing: list[int] | None, lookup: SearchLookup
        ) -> Sequence[int]:
            found.update(lookup.passages(rows, model))
            alone.update(lookup.tokens(rows, model))
            return ()

        await storage.select([place], (), MemoryFilter(), look, now=T0)
        known = {row: passage.tokens for row, passage in found.items()}
        assert alone == {row: some for row, some in known.items() if some is not None}
        return known

    # --- storing ----------------------------------------------------------------------

    async def test_everything_said_about_a_memory_comes_back(self, tmp_path: Path) -> None:
        """Everything said about a memory comes back."""
        options = MemoryOptions(
            kind="preference",
            speaker="Ada",
            importance=0.9,
            is_pinned=True,
            ttl_s=60.0,
            valid_to=T0 + 50,
            provenance=Provenance(author="Ada", tool="remember", event_seq=7, run_id="run_1"),
        )
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "tea, not coffee", options=options, metadata={"k": 1})])
            (entry,) = await storage.get("acme", ["a"])
        assert (entry.content, entry.metadata, entry.session_id) == (
            "tea, not coffee",
            {"k": 1},
            "s1",
        )
        assert (entry.kind, entry.speaker, entry.importance) == ("preference", "Ada", 0.9)
        assert (entry.is_pinned, entry.expires, entry.valid_to) == (True, T0 + 60, T0 + 50)
        assert entry.provenance == options.provenance

    async def test_a_batch_is_stored_whole_or_not_at_all(self, tmp_path: Path) -> None:
        """A batch is stored whole or not at all."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a")])
            with pytest.raises(AlreadyExists):
                await storage.add([draft("b"), draft("a")])
            assert await self.found(storage) == ["a"]
            assert await self.words(storage, "words") == {"a"}

    async def test_what_is_stored_outlives_the_object(self, tmp_path: Path) -> None:
        """What is stored outlives the object."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "apples")])
        async with self.opened(tmp_path) as storage:
            expected = {"a"} if self.is_kept else set()
            assert await self.words(storage, "apple") == expected

    async def test_a_missing_turn_before_is_refused(self, tmp_path: Path) -> None:
        """A missing turn before is refused."""
        async with self.opened(tmp_path) as storage:
            with pytest.raises(NotFound):
                await storage.add([draft("a", options=MemoryOptions(previous_id="nobody"))])
            assert await self.found(storage) == []

    # --- words ------------------------------------------------------------------------

    async def test_words_of_the_turn_before_count_as_context(self, tmp_path: Path) -> None:
        """Words of the turn before count as context."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "Did you see the comet?")])
            await storage.add(
                [draft("b", "Yes, wonderful", options=MemoryOptions(previous_id="a"))]
            )
            hits, entries = await self.hits(storage, ["comet"])
            own = {entries[row].id: hit.own > 0 for row, hit in hits.items()}
            assert own == {"a": True, "b": False}
            assert all(hit.context > 0 for hit in hits.values())

    async def test_no_operator_in_a_query_is_obeyed(self, tmp_path: Path) -> None:
        """No operator in a query is obeyed."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "plain words"), draft("b", "other", session_id="s2")])
            for text in ('"', "a OR b", "place:p*", "{own} : x", "NEAR(", "* ^ -", "') --"):
                assert "b" not in await self.words(storage, text)

    # --- isolation --------------------------------------------------------------------

    async def test_no_place_sees_another(self, tmp_path: Path) -> None:
        """No place sees another."""
        async with self.opened(tmp_path) as storage:
            await storage.add(
                [
                    draft("a", "shared secret"),
                    draft("b", "shared secret", session_id="s2"),
                    draft("a", "shared secret", tenant="other"),
                ]
            )
            rival = MemoryPlace("other", "session", "s1")
            for place, expected in (
                (HOME, 1),
                (rival, 1),
                (MemoryPlace("acme", "session", None), 2),
            ):
                hits, entries = await self.hits(storage, ["secret"], place)
                assert len(hits) == expected
                rows = await storage.changes(place, MODEL, after=0)
                assert {row.row for row in rows} == set(hits) == set(entries)
                # Picking rows of others gives nothing.
                foreign = MemoryPlace(
                    "other" if place.tenant == "acme" else "acme", "session", None
                )
                for elsewhere in (foreign, MemoryPlace(place.tenant, "session", "s3")):
                    assert await self.picked(storage, elsewhere, list(hits)) == []
            assert await storage.forget("third", ["a", "b"], now=T0, reason="") == []
            with pytest.raises(NotFound):
                await storage.pin("third", "a", True)
            with pytest.raises(NotFound):
                await storage.link("other", "a", "contradicts", "b")

    # --- truth ------------------------------------------------------------------------

    async def test_a_superseded_memory_is_true_until_then(self, tmp_path: Path) -> None:
        """A superseded memory is true until then."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", time=T0 - 100)])
            newer = MemoryOptions(supersedes="a", valid_from=T0 - 10)
            await storage.add([draft("b", options=newer)])
            assert await self.found(storage) == ["b"]
            assert await self.found(storage, MemoryFilter(as_of=T0 - 50)) == ["a"]
            assert await self.found(storage, MemoryFilter(as_of=T0 - 10)) == ["b"]
            assert await self.found(storage, MemoryFilter(include_superseded=True)) == ["b", "a"]
            old, new = await storage.get("acme", ["a", "b"])
            assert (old.superseded_by, new.supersedes) == ("b", "a")
            with pytest.raises(AlreadyExists):
                await storage.add([draft("c", options=newer)])

    async def test_links_are_kept(self, tmp_path: Path) -> None:
        """Links are kept."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a"), draft("b")])
            await storage.link("acme", "a", "contradicts", "b")
            assert (await storage.get("acme", ["a"]))[0].contradicts == ("b",)

    # --- filters ----------------------------------------------------------------------

    async def test_filters_narrow(self, tmp_path: Path) -> None:
        """Filters narrow."""
        async with self.opened(tmp_path) as storage:
            spoken = MemoryOptions(kind="turn", speaker="Ada")
            await storage.add([draft("a", options=spoken, time=T0 - 9, metadata={"n": 1})])
            await storage.add([draft("b", time=T0 - 5, metadata={"n": True, "x": "1"})])
            await storage.add([draft("c", options=MemoryOptions(ttl_s=1.0), time=T0 - 5)])
            assert await self.found(storage) == ["b", "a"], "what has expired is not found"
            for where, expected in (
                (MemoryFilter(kinds=("turn", "other")), ["a"]),
                (MemoryFilter(speakers=("Ada",)), ["a"]),
                (MemoryFilter(since=T0 - 5), ["b"]),
                (MemoryFilter(until=T0 - 5), ["a"]),
                (MemoryFilter(metadata={"n": 1}), ["a"]),
                (MemoryFilter(metadata={"n": True}), ["b"]),
                (MemoryFilter(metadata={"x": "1"}), ["b"]),
                (MemoryFilter(metadata={"x": 1}), []),
                (MemoryFilter(metadata={"' OR 1": "1"}), []),
            ):
                assert await self.found(storage, where) == expected, where
                assert sorted(await self.picked(storage, HOME, None, where)) == sorted(expected)

    async def test_pages_meet_without_gap(self, tmp_path: Path) -> None:
        """Pages meet without gap."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft(f"m{number}") for number in range(7)])
            seen: list[str] = []
            while page := await storage.find(
                [HOME], MemoryFilter(), now=T0, limit=3, after=seen[-1] if seen else ""
            ):
                seen += [entry.id for entry in page]
            assert seen == [f"m{number}" for number in reversed(range(7))]

    # --- vectors ----------------------------------------------------------------------

    async def test_vectors_replace_those_of_another_model(self, tmp_path: Path) -> None:
        """Vectors replace those of another model."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a"), draft("b")])
            waiting = await storage.list_unembedded(MODEL, 10)
            first, second = (one.row for one in waiting)
            await storage.put_vectors(MODEL, {first: vector(1, 0)}, {second: "NaN"})
            assert await storage.list_unembedded(MODEL, 10) == []
            seen = await storage.changes(HOME, MODEL, after=0)
            assert {row.row: row.vector for row in seen} == {first: vector(1, 0), second: None}
            assert (await storage.get("acme", ["a"], model=MODEL))[0].embedding == [1.0, 0.0]
            await storage.put_vectors("new/1", {first: vector(0, 1)}, {})
            assert (await storage.stats("acme")).vectors == {"new/1": 1}
            assert await storage.drop_vectors("new/1") == 1
            assert [one.row for one in await storage.list_unembedded("new/1", 10)] == [
                first,
                second,
            ]

    async def test_tokens_are_kept_beside_vectors_and_replaced_with_them(
        self, tmp_path: Path
    ) -> None:
        """Tokens are kept beside vectors, by model, and replaced with them."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a"), draft("b")])
            first, second = (one.row for one in await storage.list_unembedded(MODEL, 10))
            await storage.put_vectors(MODEL, {first: vector(1, 0), second: vector(0, 1)}, {})
            assert await storage.list_unembedded(MODEL, 10) == []
            waiting = await storage.list_unembedded(MODEL, 10, needs_tokens=True)
            assert [(one.row, one.has_vector) for one in waiting] == [(first, True), (second, True)]
            await storage.put_vectors(MODEL, {}, {}, tokens={first: b"\x01\x02", second: b""})
            assert await storage.list_unembedded(MODEL, 10, needs_tokens=True) == []
            kept, empty = await storage.get("acme", ["a", "b"], model=MODEL)
            assert (kept.embedding, kept.tokens, empty.tokens) == ([1.0, 0.0], b"\x01\x02", b"")
            assert await self.tokens(storage, [first], MODEL) == {first: b"\x01\x02"}
            assert await self.tokens(storage, [first], "new/1") == {first: None}
            await storage.put_vectors("new/1", {first: vector(0, 1)}, {}, tokens={first: b"\x03"})
            assert (await storage.stats("acme")).tokens == {"new/1": 1, MODEL: 1}
            await storage.put_vectors("new/1", {}, {second: "NaN"})
            assert (await storage.stats("acme")).tokens == {"new/1": 1}
            await storage.drop_vectors("new/1")
            assert (await storage.stats("acme")).tokens == {}

    async def test_a_search_reads_passages_of_its_places_only(self, tmp_path: Path) -> None:
        """A search reads passages of its places only, and counts words."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "apples " * 999), draft("b", "apples and pears")])
            await storage.add([draft("c", "apples", session_id="s2"), draft("d", tenant="other")])
            rows = [one.row for one in await storage.list_unembedded(MODEL, 10)]
            await storage.put_vectors(MODEL, {}, {}, tokens=dict.fromkeys(rows[1:], b"bits"))
            await storage.forget("acme", ["b"], now=T0, reason="")
            found: dict[int, MemoryPassage] = {}
            counts: list[WordCounts] = []

            def look(
                _: list[LexicalHit], passing: list[int] | None, lookup: SearchLookup
            ) -> Sequence[int]:
                found.update(lookup.passages(rows, MODEL))
                # Neither what was forgotten nor what another tenant has.
                assert set(lookup.tokens(rows, MODEL)) == {rows[2]}
                counts.append(lookup.count_words(["apples", "zebra"]))
                return ()

            assert await storage.select([HOME], (), MemoryFilter(), look, now=T0) == {}
            assert list(found) == rows[:1]
            assert found[rows[0]].tokens is None and len(found[rows[0]].content) >= 2_000
            assert counts[0].counts["zebra"] == 0 < counts[0].counts["apples"] <= counts[0].total

    async def test_plain_lines_of_a_conversation_become_turns(self, tmp_path: Path) -> None:
        """Plain lines of a conversation become turns, with speakers and neighbours."""
        lines = ("Ada: Hi, Bo", "Bo: Hi, Ada", "Ada: Tea?")
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("n", "Note: buy tea")])
            for number, line in enumerate(lines):
                await storage.add([draft(f"l{number}", line)])
            entries = await storage.get("acme", ["n", "l0", "l1", "l2"])
            assert [entry.previous_id for entry in entries] == ["", "", "l0", "l1"]
            seen = await storage.changes(HOME, MODEL, after=0)
            names = {one.row: one.speaker for one in seen}
            assert [names[row] for row in sorted(names)] == ["", "Ada", "Bo", "Ada"]
            waiting = await storage.list_unembedded(MODEL, 10)
            assert [one.content for one in waiting] == [
                "Note: buy tea",
                "Hi, Bo",
                "Hi, Ada",
                "Tea?",
            ]
            assert set(waiting[0].names) == {"Ada", "Bo"}
            hits, _ = await self.hits(storage, query_words("Tea"))
            assert len(hits) == 2

    async def test_a_space_is_known_as_long_as_it_has_vectors(self, tmp_path: Path) -> None:
        """A space is known as long as it has vectors."""
        old = VectorSpace(
            model_id="p:old/2", dimension=2, provider="p", base_url="http://h/v1", model="old"
        )
        new = msgspec.structs.replace(old, model_id="p:new/2", model="new")
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a"), draft("b"), draft("c")])
            rows = [one.row for one in await storage.list_unembedded(MODEL, 10)]
            first, second, third = rows
            assert await storage.list_spaces() == []
            await storage.put_vectors(MODEL, {third: vector(1, 0)}, {})
            both = {first: vector(1, 0), second: vector(1, 0)}
            await storage.put_vectors(old.model_id, both, {}, space=old)
            assert await storage.list_spaces() == [old, VectorSpace(model_id=MODEL)]
            moved = msgspec.structs.replace(old, base_url="http://elsewhere/v1")
            await storage.put_vectors(old.model_id, {}, {}, space=moved)
            await storage.put_vectors(new.model_id, {first: vector(0, 1)}, {}, space=new)
            assert await storage.list_spaces() == [new, moved, VectorSpace(model_id=MODEL)]
            # What the new model refuses has no vector any more, of any model.
            await storage.put_vectors(new.model_id, {}, {second: "NaN"}, space=new)
            assert await storage.list_spaces() == [new, VectorSpace(model_id=MODEL)]
            given = msgspec.structs.replace(
                draft("d"), vector=vector(1, 0), vector_model=old.model_id, vector_space=old
            )
            await storage.add([given])
            assert await storage.list_spaces() == [new, old, VectorSpace(model_id=MODEL)]

    async def test_changes_come_once(self, tmp_path: Path) -> None:
        """Changes come once."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a"), draft("b")])
            last = (await storage.changes(HOME, MODEL, after=0))[-1].revision
            assert await storage.revision() >= last
            assert await storage.changes(HOME, MODEL, after=last) == []
            await storage.forget("acme", ["a"], now=T0, reason="")
            (change,) = await storage.changes(HOME, MODEL, after=last)
            assert change.forgotten == T0

    async def test_a_vector_of_what_has_changed_meanwhile_is_not_kept(self, tmp_path: Path) -> None:
        """A vector of what has changed meanwhile is not kept, but made again."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "Ada: Hi"), draft("b", "Bo: Hi")])
            first, second = await storage.list_unembedded(MODEL, 10)
            await storage.add([draft("c", "Ada: Tea?")])  # now all three are turns
            seen = {first.row: first.revision, second.row: second.revision}
            made = {first.row: vector(1, 0), second.row: vector(1, 0)}
            bits = dict.fromkeys(made, b"bits")
            await storage.put_vectors(MODEL, made, {}, tokens=bits, revisions=seen)
            waiting = await storage.list_unembedded(MODEL, 10)
            assert [one.content for one in waiting] == ["Hi", "Hi", "Tea?"]
            seen = {one.row: one.revision for one in waiting}
            await storage.put_vectors(MODEL, made, {}, tokens=bits, revisions=seen)
            assert (await storage.stats("acme")).tokens == {MODEL: 2}

    # --- forgetting -------------------------------------------------------------------

    async def test_forgetting_leaves_a_tombstone_and_nothing_else(self, tmp_path: Path) -> None:
        """Forgetting leaves a tombstone and nothing else."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "zebra", metadata={"q": "quagga"})])
            await storage.add([draft("b", "stripes", options=MemoryOptions(previous_id="a"))])
            await storage.add([draft("s", "zebra", options=MemoryOptions(derived_from=("a",)))])
            (row, *_) = [one.row for one in await storage.list_unembedded(MODEL, 10)]
            await storage.put_vectors(MODEL, {row: vector(1, 0)}, {}, tokens={row: b"bits"})
            gone = await storage.forget("acme", ["a", "nobody"], now=T0, reason="asked")
            assert gone == ["a", "s"]
            assert await self.words(storage, "zebra") == set()
            assert await self.found(storage) == ["b"]
            tomb, summary = await storage.get("acme", ["a", "s"], model=MODEL)
            assert (tomb.content, tomb.metadata, tomb.embedding) == ("", {}, None)
            assert tomb.forgotten == summary.forgotten == T0
            await storage.put_vectors(MODEL, {row: vector(1, 0)}, {}, tokens={row: b"bits"})
            counts = await storage.stats("acme")
            assert counts.vectors == counts.tokens == {}
            assert await self.tokens(storage, [row], MODEL) == {}
            assert await storage.forget("acme", ["a"], now=T0, reason="again") == []
            assert await storage.compact()
            with pytest.raises(AlreadyExists):
                await storage.add([draft("a")])

    async def test_retention_takes_the_least_worth_and_nothing_pinned(self, tmp_path: Path) -> None:
        """Retention takes the least worth and nothing pinned."""
        pinned = MemoryOptions(is_pinned=True, importance=0.0, ttl_s=1.0)
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("p", options=pinned, time=T0 - 10)])
            await storage.add([draft("e", options=MemoryOptions(ttl_s=1.0), time=T0 - 10)])
            await storage.add([draft("low", options=MemoryOptions(importance=0.1))])
            await storage.add([draft("old", time=T0 - 1000), draft("new")])
            rule = Purge(now=T0, max_entries=3, half_life_s=100.0)
            assert set(await storage.purge("acme", rule)) == {"e", "old"}
            rule = Purge(now=T0, max_bytes=0)
            assert set(await storage.purge("acme", rule)) == {"low", "new"}
            assert (await storage.get("acme", ["p"]))[0].forgotten is None
            assert await storage.purge("acme", rule) == []

    async def test_the_index_can_be_made_anew(self, tmp_path: Path) -> None:
        """The index can be made anew."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "apples"), draft("b", "pears")])
            await storage.forget("acme", ["b"], now=T0, reason="")
            assert await storage.reindex() == 1
            assert await self.words(storage, "apples pears") == {"a"}

    async def test_tidying_changes_no_answer(self, tmp_path: Path) -> None:
        """Tidying changes no answer."""
        async with self.opened(tmp_path) as storage:
            for number in range(60):
                await storage.add([draft(f"m{number}", f"apples and word{number}")])
            await storage.forget("acme", ["m7"], now=T0, reason="")
            before = await self.hits(storage, query_words("apples word59"))
            await storage.tidy()
            assert await self.hits(storage, query_words("apples word59")) == before
            assert await self.words(storage, "word7") == set()
            await storage.add([draft("late", "apples again")])
            await storage.tidy()
            assert await self.words(storage, "again") == {"late"}

    async def test_counts_are_true(self, tmp_path: Path) -> None:
        """Counts are true."""
        async with self.opened(tmp_path) as storage:
            await storage.add([draft("a", "four"), draft("b"), draft("c", tenant="other")])
            await storage.pin("acme", "a", True)
            await storage.forget("acme", ["b"], now=T0, reason="")
            counts = await storage.stats("acme")
        assert (counts.memories, counts.forgotten, counts.pinned) == (1, 1, 1)
        assert counts.content_bytes == 4


__all__ = ["MemoryStorageConformance"]
