"""Plain lines `Name: text` become turns where names recur, and nothing is guessed elsewhere."""

from __future__ import annotations

import pytest
from memory_setting import STATIC, LetterEmbedder, opened

from holdfast.memory import MemoryManager, MemoryOptions, NoEmbedder
from holdfast.memory.dialogue import describe_label, drop_label

TALK = (
    "Caroline: Where did you go this summer?",
    "Melanie: We hiked in the Dolomites.",
    "Caroline: Lovely! With the children?",
    "Melanie: Yes, they loved the bridge.",
)


@pytest.mark.parametrize(
    ("line", "label", "rest"),
    [
        ("Caroline: Hi", "Caroline", "Hi"),
        ("Dr. Anna O'Neil: Hi", "Dr. Anna O'Neil", "Hi"),
        ("assistant: Hi", "assistant", "Hi"),
        ("李明：你好", "李明", "你好"),
    ],
)
def test_a_name_before_a_colon_is_a_label(line: str, label: str, rest: str) -> None:
    assert (describe_label(line), drop_label(line)) == (label, rest)


@pytest.mark.parametrize(
    "line",
    [
        "Note: buy milk",
        "TODO: tests",
        "Error: no such file",
        "Warning: hot",
        "the port is: 80",
        "https://example.org",
        "12:30 lunch",
        "Caroline:",
        "Four Words Are Toomany: x",
        "",
    ],
)
def test_other_beginnings_are_none(line: str) -> None:
    assert describe_label(line) == "" and drop_label(line) == line


async def stored(manager: MemoryManager, *lines: str, session: str = "s") -> list[str]:
    return [await manager.store_memory(session, line) for line in lines]


async def test_the_order_of_lines_gives_neighbours_and_their_labels_speakers() -> None:
    async with opened(NoEmbedder()) as manager:
        ids = await stored(manager, *TALK)
        entries = [await manager.get_memory(one) for one in ids]
        assert [entry.previous_id for entry in entries] == ["", *ids[:-1]]
        # What was stored stays as it was: who says it is known to searches only.
        assert [entry.speaker for entry in entries] == [""] * 4
        assert entries[1].content == TALK[1]
        found = await manager.search_memory("s", "What did Melanie hike?", 4)
        spoken = {entry.id for entry in found if entry.parts and entry.parts.speaker > 0}
        assert spoken == {ids[1], ids[3]}
        only = await manager.list_memories("s", {"speaker": "Melanie"})
        assert {entry.id for entry in only} == {ids[1], ids[3]}


async def test_a_line_is_found_by_the_words_of_the_line_before() -> None:
    async with opened(NoEmbedder()) as manager:
        ids = await stored(manager, *TALK)
        found = await manager.search_memory("s", "this summer", 4)
        assert {entry.id for entry in found} >= {ids[0], ids[1]}


@pytest.mark.parametrize(
    "lines",
    [
        ("Caroline: only one",),
        ("Database: port 5432", "Deploy: on Friday", "Budget: 500 EUR"),
        ("Note: one", "Note: two", "Note: three"),
        ("Caroline: Hi", "an unlabelled note", "Caroline: Bye"),
    ],
)
async def test_nothing_is_guessed_for_single_notes(lines: tuple[str, ...]) -> None:
    async with opened(NoEmbedder()) as manager:
        ids = await stored(manager, *lines)
        entries = [await manager.get_memory(one) for one in ids]
        assert [entry.previous_id for entry in entries] == [""] * len(lines)
        found = await manager.search_memory("s", "Caroline Database Note port", 9)
        assert all(entry.parts and entry.parts.speaker == 0 for entry in found)


async def test_sessions_and_tenants_are_conversations_of_their_own() -> None:
    async with opened(NoEmbedder()) as manager:
        await stored(manager, *TALK[:2])
        (other,) = await stored(manager, TALK[2], session="t")
        assert (await manager.get_memory(other)).previous_id == ""
        (third,) = await stored(manager, TALK[2])
        assert (await manager.get_memory(third)).previous_id != ""


async def test_what_the_caller_says_comes_first() -> None:
    async with opened(NoEmbedder()) as manager:
        first, *_ = await stored(manager, *TALK)
        options = MemoryOptions(previous_id=first, speaker="Ann")
        own = await manager.store_memory("s", "Melanie: quoted", options=options)
        entry = await manager.get_memory(own)
        assert (entry.previous_id, entry.speaker) == (first, "Ann")


async def test_labels_and_names_are_no_part_of_what_is_embedded() -> None:
    embedder = LetterEmbedder()
    async with opened(embedder) as manager:
        await stored(manager, *TALK)
        await manager.pipeline.settle()
        last = {text for batch in embedder.asked for text in batch}
        assert {drop_label(line) for line in TALK} <= last


async def test_forgetting_a_line_leaves_the_conversation_whole() -> None:
    async with opened(STATIC) as manager:
        ids = await stored(manager, *TALK)
        await manager.pipeline.settle()
        await manager.forget([ids[1]])
        found = await manager.search_memory("s", "Did the children love it?", 4)
        assert {ids[2], ids[3]} <= {entry.id for entry in found} <= {ids[0], ids[2], ids[3]}
        (more,) = await stored(manager, "Caroline: Great.")
        assert (await manager.get_memory(more)).previous_id == ids[3]
