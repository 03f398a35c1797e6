"""Times that a query names."""

from __future__ import annotations

import pytest

from holdfast.memory import InMemoryStorage, MemoryManager, MemoryOptions, NoEmbedder
from holdfast.memory.times import NamedTime, find_named_times


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("What happened in July 2023?", [NamedTime(2023, 7, 0)]),
        ("on 5 May", [NamedTime(0, 5, 5)]),
        ("May 5th, 2022 was a Thursday", [NamedTime(2022, 5, 5)]),
        ("the 2nd of march", [NamedTime(0, 3, 2)]),
        ("log of 2023-07-05", [NamedTime(2023, 7, 5)]),
        ("log of 2023-07", [NamedTime(2023, 7, 0)]),
        ("may I go?", []),
        ("what happened in May?", [NamedTime(0, 5, 0)]),
        ("version 2023-99-01", []),
        ("nothing 2023", []),
    ],
)
def test_months_and_days_are_read(text: str, wanted: list[NamedTime]) -> None:
    assert list(find_named_times(text)) == wanted


async def test_what_was_said_then_comes_first_and_the_score_says_so() -> None:
    june, july = 1_686_000_000.0, 1_689_000_000.0
    async with MemoryManager(InMemoryStorage(), NoEmbedder()) as manager:
        then = MemoryOptions(created=june, speaker="Ada")
        wanted = await manager.store_memory("s", "We went to the lake", options=then)
        later = MemoryOptions(created=july, speaker="Ada")
        await manager.store_memory("s", "We went to the lake", options=later)
        for query in ("lake in June 2023", "lake on 6 June", "lake 2023-06-05"):
            found = await manager.search_memory("s", query)
            assert found[0].id == wanted
            assert found[0].parts is not None and found[0].parts.time > 0.1
        plain = await manager.search_memory("s", "lake")
        assert all(entry.parts is not None and entry.parts.time == 0 for entry in plain)


async def test_impossible_days_do_no_harm() -> None:
    async with MemoryManager(InMemoryStorage(), NoEmbedder()) as manager:
        odd = MemoryOptions(created=-5e9)
        memory_id = await manager.store_memory("s", "A lake", options=odd)
        found = await manager.search_memory("s", "lake on 99 February 9999 and 0000-01-31")
        assert [entry.id for entry in found] == [memory_id]
