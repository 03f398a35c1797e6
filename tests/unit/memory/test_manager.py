"""What a manager of memories promises."""

from __future__ import annotations

import asyncio
import socket

import pytest
from memory_setting import STATIC, BrokenEmbedder, LetterEmbedder, Notebook, opened

from holdfast.errors import AlreadyExists, NotFound, StorageFull, UsageError
from holdfast.memory import (
    Identity,
    InMemoryStorage,
    MemoryManager,
    MemoryOptions,
    MemoryRules,
    NoEmbedder,
)
from holdfast.memory.events import MemoryRecalled
from holdfast.memory.storage import Purge
from holdfast.messages import Message, TextPart
from holdfast.testing import FakeClock


async def contents(manager: MemoryManager, query: str, session: str = "s1", **options) -> list[str]:
    return [entry.content for entry in await manager.search_memory(session, query, **options)]


async def test_a_memory_is_found_by_its_words_at_once() -> None:
    async with opened(NoEmbedder()) as manager:
        memory_id = await manager.store_memory(
            "s1", "User prefers dark mode", {"type": "preference"}
        )
        (entry,) = await manager.search_memory("s1", "which modes does the user prefer?")
        assert (entry.id, entry.kind, entry.session_id) == (memory_id, "preference", "s1")
        assert entry.relevance_score > 0
        assert entry.parts is not None and entry.parts.lexical > 0


async def test_a_memory_is_found_by_its_meaning() -> None:
    async with opened() as manager:
        await manager.store_memory("s1", "Our physician advised more exercise", {})
        await manager.store_memory("s1", "The train leaves at nine", {})
        await manager.pipeline.settle()
        assert (await contents(manager, "doctor recommendation"))[0].startswith("Our physician")


async def test_everything_works_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    async with opened() as manager:
        await manager.store_memory("s1", "The garden gate is painted green", {})
        await manager.pipeline.settle()
        assert (await manager.stats()).vectors == {STATIC.model_id: 1}
        assert await contents(manager, "colour of the gate") != []
        summary = await manager.summarize_memories("s1", 0)
        assert (summary.method, summary.summary) == (
            "extractive",
            "The garden gate is painted green",
        )


# --- scopes --------------------------------------------------------------------------


async def test_a_session_does_not_see_another_unless_asked() -> None:
    async with opened(LetterEmbedder()) as manager:
        await manager.store_memory("s1", "the code word is walnut", {})
        await manager.store_memory("s2", "the code word is almond", {})
        await manager.pipeline.settle()
        assert await contents(manager, "code word") == ["the code word is walnut"]
        assert len(await contents(manager, "code word", across_sessions=True)) == 2
        assert len(await manager.list_memories("s2")) == 1


async def test_shared_scopes_are_seen_from_every_session_of_their_owner() -> None:
    base = Identity(tenant="acme", user="ada", project="ship")
    async with opened(LetterEmbedder(), identity=base) as manager:
        for scope in ("user", "project", "global"):
            await manager.store_memory(
                "s1", f"walnut for {scope}", {}, options=MemoryOptions(scope=scope)
            )
        assert await contents(manager, "walnut", "s9") == ["walnut for project"]
        every = ("session", "user", "project", "global")
        assert len(await contents(manager, "walnut", "s9", scopes=every)) == 3
        other = manager.act_for(Identity(tenant="acme", user="bob", project="dock"))
        assert await contents(other, "walnut", "s9") == []
        assert await contents(other, "walnut", "s9", scopes=every) == ["walnut for global"]
        rival = manager.act_for(Identity(tenant="rival", user="ada", project="ship"))
        assert await contents(rival, "walnut", "s1", across_sessions=True, scopes=every) == []
        with pytest.raises(NotFound):
            await rival.get_memory((await manager.list_memories("s1"))[0].id)


async def test_a_scope_without_an_owner_is_refused() -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.store_memory("s1", "text", {}, options=MemoryOptions(scope="user"))
        with pytest.raises(UsageError):
            await manager.store_memory("", "text", {})
        assert (await manager.stats()).memories == 0


# --- truth ---------------------------------------------------------------------------


async def test_an_update_supersedes_and_the_past_stays_true() -> None:
    clock = FakeClock()
    async with opened(LetterEmbedder(), clock=clock) as manager:
        first = await manager.store_memory("s1", "Ada lives in Paris", {"about": "Ada"})
        then = clock.now()
        clock.advance(100)
        second = await manager.update_memory(first, "Ada lives in Rome")
        assert await contents(manager, "where does Ada live") == ["Ada lives in Rome"]
        past = await contents(manager, "where does Ada live", filters={"as_of": then})
        assert past == ["Ada lives in Paris"]
        assert [entry.id for entry in await manager.history(first)] == [first, second]
        assert (await manager.get_memory(second)).metadata == {"about": "Ada"}
        with pytest.raises(AlreadyExists):
            await manager.update_memory(first, "Ada lives in Oslo")


async def test_contradictions_are_linked_and_both_kept() -> None:
    async with opened(NoEmbedder()) as manager:
        left = await manager.store_memory("s1", "the bridge is open", {})
        right = await manager.store_memory("s1", "the bridge is closed", {})
        await manager.link_contradiction(left, right)
        assert (await manager.get_memory(left)).contradicts == (right,)
        assert (await manager.get_memory(right)).contradicts == (left,)
        assert len(await contents(manager, "bridge")) == 2
        options = MemoryOptions(contradicts=(left,))
        third = await manager.store_memory("s1", "the bridge is gone", {}, options=options)
        assert (await manager.get_memory(third)).contradicts == (left,)
        assert (await manager.get_memory(left)).contradicts == (right, third)


# --- retention and forgetting --------------------------------------------------------


async def test_expired_memories_are_not_found_and_then_purged() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        await manager.store_memory("s1", "short lived", {}, options=MemoryOptions(ttl_s=10))
        clock.advance(11)
        assert await contents(manager, "short lived") == []
        assert len(await manager.purge()) == 1


async def test_what_is_pinned_is_found_beyond_its_time_to_live() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        options = MemoryOptions(ttl_s=10)
        memory_id = await manager.store_memory("s1", "short lived", {}, options=options)
        await manager.pin_memory(memory_id)
        clock.advance(11)
        await manager.purge()
        assert await contents(manager, "short lived") == ["short lived"]
        assert (await manager.list_memories("s1"))[0].id == memory_id
        await manager.pin_memory(memory_id, is_pinned=False)
        assert await contents(manager, "short lived") == []
        with pytest.raises(NotFound) as caught:
            await manager.get_memory(memory_id)
        assert caught.value.code == "usage.not_found"


async def test_retention_leaves_a_pinned_summary_of_what_it_takes() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        options = MemoryOptions(ttl_s=10)
        source = await manager.store_memory("s1", "short lived", {}, options=options)
        loose = await manager.summarize_memories("s1", 0)
        pinned = await manager.summarize_memories("s1", 0)
        await manager.pin_memory(pinned.id)
        clock.advance(11)
        assert set(await manager.purge()) == {source, loose.id}
        assert (await manager.get_memory(pinned.id)).derived_from == ()


async def test_a_newer_version_has_no_longer_to_live_than_the_older_had() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        options = MemoryOptions(ttl_s=10)
        memory_id = await manager.store_memory("s1", "the code is 1", {}, options=options)
        clock.advance(4)
        newer = await manager.get_memory(await manager.update_memory(memory_id, "the code is 2"))
        assert newer.expires == pytest.approx(clock.now() + 6)


async def test_retention_goes_on_after_it_failed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryStorage()
    tried: asyncio.Queue[None] = asyncio.Queue()

    async def purge(tenant: str, rule: Purge) -> list[str]:
        tried.put_nowait(None)
        raise StorageFull(path="memory.db")

    monkeypatch.setattr(storage, "purge", purge)
    rules = MemoryRules(purge_every_s=0)
    async with opened(NoEmbedder(), storage=storage, rules=rules), asyncio.timeout(30):
        await tried.get()
        await tried.get()


async def test_a_word_counts_however_often_others_hold_it() -> None:
    storage = InMemoryStorage()
    async with opened(NoEmbedder(), storage=storage) as manager:
        crowd = manager.act_for(Identity(tenant="crowd"))
        await storage.add([crowd._draft("c", "coffee", None, None, "") for _ in range(1_001)])
        await manager.store_memory("s1", "coffee in the morning", {})
        await manager.store_memory("s1", "tea at five", {})
        assert sorted(await contents(manager, "coffee or tea?")) == [
            "coffee in the morning",
            "tea at five",
        ]


async def test_caps_keep_what_is_pinned_or_important() -> None:
    rules = MemoryRules(max_entries=2)
    async with opened(NoEmbedder(), rules=rules) as manager:
        pinned = await manager.store_memory("s1", "pinned", {}, options=MemoryOptions(importance=0))
        await manager.pin_memory(pinned)
        await manager.store_memory("s1", "dull", {}, options=MemoryOptions(importance=0.2))
        vital = await manager.store_memory("s1", "vital", {}, options=MemoryOptions(importance=1))
        await manager.purge()
        assert {entry.id for entry in await manager.list_memories("s1")} == {pinned, vital}


async def test_forgetting_takes_the_summary_along_and_is_noted_without_content() -> None:
    notes = Notebook()
    async with opened(LetterEmbedder(), note=notes) as manager:
        memory_id = await manager.store_memory("s1", "the safe opens with 7351", {})
        await manager.summarize_memories("s1", 0)
        assert len(await manager.forget([memory_id])) == 2
        assert await contents(manager, "safe opens") == []
        with pytest.raises(NotFound):
            await manager.get_memory(memory_id)
        with pytest.raises(NotFound):
            await manager.delete_memory(memory_id)
    assert notes.kinds[:3] == ["memory.stored", "memory.stored", "memory.forgotten"]
    assert "7351" not in repr(notes.facts)


# --- hostile input -------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "  \n", "\ud800", "x" * (4 * 1024 * 1024 + 1)])
async def test_content_that_cannot_be_kept_is_refused(content: str) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.store_memory("s1", content, {})
        assert (await manager.stats()).memories == 0


@pytest.mark.parametrize(
    "options",
    [
        MemoryOptions(importance=float("nan")),
        MemoryOptions(importance=1.5),
        MemoryOptions(ttl_s=0),
        MemoryOptions(valid_from=5.0, valid_to=4.0),
        MemoryOptions(scope="everything"),  # type: ignore[arg-type]
    ],
)
async def test_options_that_cannot_be_meant_are_refused(options: MemoryOptions) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.store_memory("s1", "text", {}, options=options)


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
async def test_an_empty_query_is_refused(query: str) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.search_memory("s1", query)


@pytest.mark.parametrize("filters", [{"since": "yesterday"}, {"type": 5}, {"x": [1]}])
async def test_filters_that_do_not_fit_are_refused(filters: dict) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.search_memory("s1", "text", filters=filters)


async def test_metadata_that_is_no_json_is_refused() -> None:
    async with opened(NoEmbedder()) as manager:
        for bad in ({"x": object()}, {"x": "y" * 70_000}):
            with pytest.raises(UsageError):
                await manager.store_memory("s1", "text", bad)


async def test_a_megabyte_with_control_characters_is_kept_and_found() -> None:
    text = "needle \x00\x07\x1b[31m " + "hay " * 260_000
    async with opened() as manager:
        memory_id = await manager.store_memory("s1", text, {})
        await manager.pipeline.settle()
        assert (await manager.search_memory("s1", "needle"))[0].id == memory_id
        assert (await manager.get_memory(memory_id)).content == text


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 2.5])
async def test_a_senseless_limit_is_refused(limit: object) -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.search_memory("s1", "text", limit)  # type: ignore[arg-type]


# --- vectors -------------------------------------------------------------------------


async def test_a_vector_of_the_caller_is_kept() -> None:
    embedder = LetterEmbedder()
    async with opened(embedder) as manager:
        memory_id = await manager.store_memory("s1", "mine", {}, [1.0] + [0.0] * 25)
        await manager.pipeline.settle()
        entry = await manager.get_memory(memory_id, with_embedding=True)
        assert entry.embedding == [1.0] + [0.0] * 25
        assert embedder.asked == []


@pytest.mark.parametrize("vector", [[], [1.0], [float("nan")] * 26, [0.0] * 26, ["x"] * 26])
async def test_a_vector_that_does_not_fit_is_refused(vector: list) -> None:
    async with opened(LetterEmbedder()) as manager:
        with pytest.raises(UsageError):
            await manager.store_memory("s1", "mine", {}, vector)
        assert (await manager.stats()).memories == 0


async def test_a_search_survives_an_embedder_that_fails() -> None:
    storage = InMemoryStorage()
    async with opened(LetterEmbedder(), storage=storage) as manager:
        await manager.store_memory("s1", "walnut", {})
        await manager.pipeline.settle()
        manager._searcher._embedder = BrokenEmbedder(ConnectionError("gone"))
        assert await contents(manager, "walnut") == ["walnut"]


async def test_old_vectors_serve_until_the_new_ones_are_there() -> None:
    storage, old = InMemoryStorage(), LetterEmbedder("old/1")
    first = MemoryManager(storage, old, clock=FakeClock())
    await first.open()
    await first.store_memory("s1", "aaaa bbbb", {})
    await first.pipeline.settle()
    new = LetterEmbedder("new/1")
    second = MemoryManager(storage, new, former_embedders=[old], clock=FakeClock())
    (entry,) = await second.search_memory("s1", "aabb")
    assert entry.parts is not None and entry.parts.lexical == 0
    second.pipeline.wake()
    await second.pipeline.settle()
    assert (await second.stats()).vectors == {"new/1": 1}
    assert len(await second.search_memory("s1", "aabb")) == 1
    await second.close()
    await first.pipeline.stop()
    await first.close()


# --- conversations and context -------------------------------------------------------


def turn(number: int, role: str, text: str) -> Message:
    return Message(
        id=f"msg_{number}",
        session_id="s1",
        role=role,  # type: ignore[arg-type]
        parts=(TextPart(text=text),),
        time_created=1_700_000_000.0 + number,
    )


async def test_turns_are_remembered_once_with_speaker_time_and_turn_before() -> None:
    talk = [turn(1, "user", "Where is the key?"), turn(2, "assistant", "Under the mat.")]
    async with opened(LetterEmbedder()) as manager:
        first, second = await manager.remember_messages("s1", talk)
        assert await manager.remember_messages("s1", talk) == []
        (third,) = await manager.remember_messages("s1", [turn(3, "user", "Thanks")])
        entry = await manager.get_memory(second)
        assert (entry.kind, entry.speaker, entry.previous_id) == ("turn", "assistant", first)
        assert entry.created == 1_700_000_002.0
        assert (await manager.get_memory(third)).previous_id == second
        assert "Under the mat." in await contents(manager, "where is the key")


async def test_relevant_memories_fit_their_budget_and_are_noted() -> None:
    notes = Notebook()
    async with opened(LetterEmbedder(), note=notes) as manager:
        for number in range(20):
            await manager.store_memory("s1", f"the walnut tree number {number} is tall", {})
        found = await manager.relevant("s1", "walnut trees", 100)
        assert 0 < found.tokens <= 100
        assert found.left_out == 20 - len(found.memories) > 0
        assert all(entry.id in found.text for entry in found.memories)
        session_id, fact = notes.facts[-1]
        assert session_id == "s1" and isinstance(fact, MemoryRecalled)
        assert fact.memory_ids == tuple(entry.id for entry in found.memories)
        assert list(fact.scores) == sorted(fact.scores, reverse=True)
        assert (await manager.relevant("s1", "walnut", 0)).memories == ()
        assert (await manager.relevant("s1", " ", 100)).text == ""


async def test_a_summary_needs_something_to_sum_up() -> None:
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(NotFound):
            await manager.summarize_memories("s1", 0)
