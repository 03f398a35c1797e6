"""What memories in Postgres do beyond the suite that every storage passes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from memory_setting import STATIC
from postgres_server import APP, PostgresServer

from holdfast.errors import StorageError, UsageError
from holdfast.memory import (
    MemoryFilter,
    MemoryManager,
    MemoryOptions,
    NoEmbedder,
    erase_memories,
    grant_memory_role,
    holds_memories,
    migrate_memory_storage,
    open_memory_storage,
)
from holdfast.memory.stores.postgres import PostgresMemoryStorage

THINGS = ("kettle", "violin", "harbour", "glacier", "tulip", "engine", "lantern", "compass")
PLACES = ("the attic", "the old market", "a wooden box", "the ferry", "her garden")


class Shared:
    """A database that several processes keep memories in."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = server.make_database()

    @contextlib.asynccontextmanager
    async def opened(
        self, *, is_large: bool = False, url: str = "", **query: str
    ) -> AsyncIterator[MemoryManager]:
        at = url or self.server.url(self.name, **query)
        storage = open_memory_storage(at, base_dir=Path("/"))
        assert isinstance(storage, PostgresMemoryStorage)
        if is_large:
            storage.most_in_memory = 0
        async with MemoryManager(storage, STATIC) as manager:
            yield manager

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.server.url(self.name), autocommit=True) as connection:
            connection.execute("SELECT set_config('holdfast.tenant', 'default', false)")
            return connection.execute(statement).fetchall()


@pytest.fixture
def shared(postgres: PostgresServer) -> Shared:
    return Shared(postgres)


async def tell(manager: MemoryManager) -> None:
    """Store some sentences, turn after turn, of two sessions."""
    before = ""
    for number, thing in enumerate(THINGS * 5):
        text = f"The {thing} number {number} is kept in {PLACES[number % 5]}."
        options = MemoryOptions(
            speaker=("Ada", "Bo")[number % 2], previous_id=before if number % 9 else ""
        )
        before = await manager.store_memory(
            f"s{number // 9 % 2}", text, {"odd": bool(number % 2)}, options=options
        )
    await manager.pipeline.settle()


async def test_a_large_place_is_searched_by_indexes_and_gives_the_same_answers(
    shared: Shared,
) -> None:
    async with shared.opened() as held, shared.opened(is_large=True) as asked:
        await tell(held)
        for question in ("Where is the violin?", "What did Ada say of a boat?", "flowers", "9"):
            for where in (MemoryFilter(), MemoryFilter(metadata={"odd": True})):
                answers = [
                    await one.search_memory("", question, 8, where, across_sessions=True)
                    for one in (held, asked)
                ]
                assert [one.id for one in answers[0]] == [one.id for one in answers[1]]
                assert [one.relevance_score for one in answers[0]] == pytest.approx(
                    [one.relevance_score for one in answers[1]], abs=1e-3
                )
                if where.metadata:
                    assert all(one.metadata["odd"] is True for one in answers[1])


async def test_what_another_process_stores_and_forgets_is_seen_at_once(shared: Shared) -> None:
    async with shared.opened() as one, shared.opened() as two:
        memory_id = await one.store_memory("s1", "the lighthouse is painted red")
        (found,) = await two.search_memory("s1", "lighthouse", 5)
        assert found.id == memory_id
        assert await two.forget([memory_id]) == [memory_id]
        assert await one.search_memory("s1", "lighthouse", 5) == []


async def test_of_a_forgotten_memory_no_row_of_any_table_holds_a_word(shared: Shared) -> None:
    async with shared.opened() as manager:
        secret = await manager.store_memory("s1", "quokkaburra zanzibar", {"k": "xylophon"})
        await manager.store_memory(
            "s1", "an ordinary reply", options=MemoryOptions(previous_id=secret)
        )
        await manager.pipeline.settle()
        await manager.forget([secret])
    tables = [name for (name,) in shared.ask(
        "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast_memory'::regnamespace "
        "AND relkind = 'r' AND relname LIKE 'all_%'"
    )]  # fmt: skip
    assert len(tables) == 9
    for table in tables:
        rows = shared.ask(f"SELECT t::text FROM holdfast_memory.{table} t")
        assert [row for row in rows if any(w in str(row) for w in ("quokk", "zanz", "xylo"))] == []


async def test_what_somebody_still_reads_is_said_not_to_be_cleaned_yet(shared: Shared) -> None:
    url = shared.server.url(shared.name)
    storage = open_memory_storage(url, base_dir=Path("/"))
    async with MemoryManager(storage, NoEmbedder()) as manager:
        secret = await manager.store_memory("s1", "quokkaburra")
        with psycopg.connect(url) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM holdfast_memory.all_memories")
            await manager.forget([secret])
            assert not await storage.compact()
        assert await storage.compact()


async def test_tenants_of_one_database_share_nothing_not_even_how_rare_a_word_is(
    shared: Shared,
) -> None:
    async with shared.opened(holdfast_tenant="one") as one, shared.opened(
        holdfast_tenant="two"
    ) as two:  # fmt: skip
        first = await one.store_memory("s1", "the comet was seen at dawn")
        for number in range(20):
            await two.store_memory("s1", f"a comet again, {number}")
        assert [found.id for found in await one.search_memory("s1", "comet", 30)] == [first]
        assert len(await two.search_memory("s1", "comet", 30)) == 20
        assert await two.forget([first]) == []
        assert (await one.stats()).memories == 1
        assert (await one.stats()).vectors == {STATIC.model_id: 1}


async def test_a_role_that_serves_requests_is_granted_views_only_and_sees_its_tenant(
    shared: Shared,
) -> None:
    async with shared.opened(holdfast_tenant="one") as owner:
        await owner.store_memory("s1", "what only one may see")
    server = shared.server
    await grant_memory_role(server.url(shared.name), APP)
    async with shared.opened(url=server.url(shared.name, role=APP, holdfast_tenant="two")) as two:
        mine = await two.store_memory("s1", "what only two may see")
        assert [one.id for one in await two.search_memory("s1", "may see", 5)] == [mine]
        assert await two.forget([mine]) == [mine]
    with (
        psycopg.connect(server.url(shared.name, role=APP), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT * FROM holdfast_memory.all_words")


async def test_what_a_deleted_tenant_had_is_erased_and_nothing_of_others(shared: Shared) -> None:
    async with (
        shared.opened(holdfast_tenant="one") as one,
        shared.opened(holdfast_tenant="two") as two,
    ):
        await one.store_memory("s1", "of one")
        await two.store_memory("s1", "of two")
        url = shared.server.url(shared.name, holdfast_tenant="one")
        assert await holds_memories(url, base_dir=Path("/"))
        await erase_memories(url)
        assert not await holds_memories(url, base_dir=Path("/"))
        assert (await two.stats()).memories == 1


async def test_a_restart_of_the_server_costs_no_memory(shared: Shared) -> None:
    async with shared.opened() as manager:
        first = await manager.store_memory("s1", "before the restart")
        await asyncio.to_thread(shared.server.restart)
        assert [one.id for one in await manager.search_memory("s1", "restart", 5)] == [first]
        second = await manager.store_memory("s1", "after the restart")
        found = await manager.search_memory("s1", "restart", 5)
        assert {one.id for one in found} == {first, second}


async def test_a_text_that_no_column_can_hold_is_refused_before_any_effect(shared: Shared) -> None:
    async with shared.opened() as manager:
        with pytest.raises(UsageError):
            await manager.store_memory("s1", "a NUL \0 in it")
        assert (await manager.stats()).memories == 0


async def test_a_database_without_pgvector_is_refused_and_says_what_to_do(
    postgres: PostgresServer,
) -> None:
    name = postgres.make_database()
    postgres.execute("DROP EXTENSION vector", name)
    with pytest.raises(StorageError) as refused:
        await open_memory_storage(postgres.url(name), base_dir=Path("/")).open()
    assert 'extension "vector"' in str(refused.value)


async def test_the_schema_is_migrated_and_shown_by_name(shared: Shared) -> None:
    url = shared.server.url(shared.name)
    before = await migrate_memory_storage(url, base_dir=Path("/"), is_dry=True)
    assert before is not None
    assert (before.version, before.pending) == (0, ("0001_initial",))
    after = await migrate_memory_storage(url, base_dir=Path("/"), is_dry=False)
    assert after is not None and after.applied == ("0001_initial",) and after.pending == ()
    assert await migrate_memory_storage("sqlite://", base_dir=Path("/"), is_dry=True) is None
    storage = open_memory_storage(url, base_dir=Path("/"))
    async with MemoryManager(storage, NoEmbedder()) as manager:
        assert (await manager.stats()).memories == 0
