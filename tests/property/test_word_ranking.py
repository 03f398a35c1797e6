"""The ranking of the base install, without numpy, gives what the other one gives by words."""

from __future__ import annotations

import asyncio
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.memory import (
    Identity,
    InMemoryStorage,
    MemoryEntry,
    MemoryManager,
    MemoryOptions,
    MemoryRules,
    NoEmbedder,
    index_cache,
    vector_index,
    word_ranking,
)
from holdfast.testing import FakeClock

WORDS = st.sampled_from(["boat", "harbour", "dawn", "red", "Oslo", "you", "I", "at 7", "May 5"])
LINES = st.lists(
    st.tuples(
        st.lists(WORDS, min_size=1, max_size=6).map(" ".join),
        st.sampled_from(["", "Ann", "Bob"]),
        st.sampled_from(["s1", "s2", "s3"]),
        st.integers(0, 700),  # days
        st.booleans(),  # follows the one before in its session
        st.floats(0, 1),
        st.booleans(),  # forgotten
    ),
    min_size=1,
    max_size=14,
)
QUERIES = st.sampled_from(
    ["when does the boat leave", "harbour at dawn", "what did Ann say in May", "red Oslo 5 May"]
)
DAY_S = 86_400.0
YEAR_2023 = 1_672_531_200.0


async def search(lines, query: str, limit: int, recency: float) -> list[MemoryEntry]:  # type: ignore[no-untyped-def]
    clock = FakeClock(start=YEAR_2023 + 800 * DAY_S)
    rules = MemoryRules(recency=recency)
    async with MemoryManager(
        InMemoryStorage(), NoEmbedder(), identity=Identity(project="p"), rules=rules, clock=clock
    ) as manager:
        last: dict[str, str] = {}
        gone = []
        for number, (text, speaker, session, day, follows, importance, forgotten) in enumerate(
            lines
        ):
            options = MemoryOptions(
                scope="project",
                speaker=speaker,
                created=YEAR_2023 + day * DAY_S,
                previous_id=last.get(session, "") if follows else "",
                importance=importance,
            )
            made = await manager.store_memory(
                session, text, options=options, memory_id=f"mem_{number}"
            )
            last[session] = made
            if forgotten:
                gone.append(made)
        if gone:
            await manager.forget(gone)
        return await manager.search_memory("", query, limit)


@settings(max_examples=60, deadline=None)
@given(LINES, QUERIES, st.integers(1, 8), st.sampled_from([0.0, 0.3]), st.booleans())
def test_both_rankings_find_the_same_with_the_same_scores(lines, query, limit, recency, is_large):  # type: ignore[no-untyped-def]
    whole = 0 if is_large else 4_096
    with (
        mock.patch.object(vector_index, "WHOLE", whole),
        mock.patch.object(word_ranking, "WHOLE", whole),
    ):
        with_numpy = asyncio.run(search(lines, query, 50, recency))
        with mock.patch.object(index_cache, "has_numpy", lambda: False):
            without = asyncio.run(search(lines, query, 50, recency))
            some = asyncio.run(search(lines, query, limit, recency))
    told = {one.id: one for one in with_numpy}
    assert {one.id for one in without} == set(told)
    for one in without:
        other = told[one.id]
        assert abs(one.relevance_score - other.relevance_score) < 1e-4
        assert one.parts is not None and other.parts is not None
        for name in ("lexical", "lexical_context", "session", "neighbours", "time", "when"):
            assert abs(getattr(one.parts, name) - getattr(other.parts, name)) < 1e-4
    scores = [one.relevance_score for one in without]
    assert scores == sorted(scores, reverse=True)
    assert len(some) == min(limit, len(without))
