"""Whatever a caller hands over: right, or refused before anything happens."""

from __future__ import annotations

from typing import Any

import pytest
from memory_setting import opened

from holdfast.errors import UsageError
from holdfast.memory import Identity, MemoryFilter, MemoryOptions, NoEmbedder, Provenance


@pytest.mark.parametrize(
    "options",
    [
        MemoryOptions(kind=5),  # type: ignore[arg-type]
        MemoryOptions(importance="high"),  # type: ignore[arg-type]
        MemoryOptions(created="now"),  # type: ignore[arg-type]
        MemoryOptions(created=1e300),
        MemoryOptions(is_pinned="no"),  # type: ignore[arg-type]
        MemoryOptions(provenance=Provenance(author=5)),  # type: ignore[arg-type]
        MemoryOptions(derived_from="mem_x"),  # type: ignore[arg-type]
        MemoryOptions(speaker="\ud800"),
        MemoryOptions(speaker="x" * 1_001),
        5,
    ],
)
async def test_options_of_the_wrong_kind_are_refused(options: MemoryOptions) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError) as caught:
            await manager.store_memory("s1", "walnut", options=options)
        assert caught.value.code == "usage.invalid"
        assert (await manager.stats()).memories == 0


@pytest.mark.parametrize(
    "filters",
    [
        [1],
        "type=fact",
        {1: 1},
        {"a": 2**70},
        {"a": "\ud800"},
        {f"k{n}": n for n in range(101)},
        {"scope": "everybody"},
        {"scope": []},
        {"scope": 5},
        MemoryFilter(since="x"),  # type: ignore[arg-type]
        MemoryFilter(metadata={"a": [1]}),  # type: ignore[dict-item]
    ],
)
async def test_filters_of_the_wrong_kind_are_refused(filters: Any) -> None:
    async with opened(NoEmbedder()) as manager:
        await manager.store_memory("s1", "walnut")
        for refused in (manager.search_memory("s1", "walnut", filters=filters),
                        manager.list_memories("s1", filters)):  # fmt: skip
            with pytest.raises(UsageError) as caught:
                await refused
            assert caught.value.code == "usage.invalid"


@pytest.mark.parametrize("name", [5, ["s1"], "\ud800", "x" * 1_001])
async def test_ids_that_can_be_none_are_refused(name: Any) -> None:
    async with opened(NoEmbedder()) as manager:
        for refused in (
            manager.store_memory(name, "walnut"),
            manager.store_memory("s1", "walnut", memory_id=name),
            manager.search_memory(name, "walnut"),
            manager.list_memories(name),
            manager.get_memory(name),
            manager.summarize_memories(name, 0),
            manager.forget(name if isinstance(name, str) else 5),
        ):
            with pytest.raises(UsageError):
                await refused
        assert (await manager.stats()).memories == 0


@pytest.mark.parametrize("since", ["yesterday", float("nan"), None, 1e300])
async def test_a_summary_begins_at_a_time(since: Any) -> None:
    async with opened(NoEmbedder()) as manager:
        await manager.store_memory("s1", "walnut")
        with pytest.raises(UsageError) as caught:
            await manager.summarize_memories("s1", since)
        assert caught.value.code == "usage.invalid"


async def test_scopes_are_a_filter_too() -> None:
    async with opened(NoEmbedder(), identity=Identity(user="ada")) as manager:
        await manager.store_memory("s1", "walnut of the session")
        await manager.store_memory("s1", "walnut of Ada", options=MemoryOptions(scope="user"))
        assert len(await manager.search_memory("s1", "walnut")) == 1
        both = ("session", "user")
        assert len(await manager.search_memory("s1", "walnut", scopes=both)) == 2
        assert [
            one.content
            for one in await manager.search_memory("s1", "walnut", filters={"scope": "user"})
        ] == ["walnut of Ada"]
        (listed,) = await manager.list_memories("s1", {"scope": ["user", "project"]})
        assert listed.scope == "user"
        with pytest.raises(UsageError):
            await manager.search_memory(
                "s1", "walnut", filters={"scope": "user"}, scopes=["session"]
            )
