"""With one address of a database, several machines share everything that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import PostgresServer

from holdfast import Agent, AsyncClient
from holdfast.errors import NotFound, StorageError
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel


async def test_machines_that_share_a_database_share_state_memories_and_artifacts(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.make_database()
    settings = load_settings(overrides={"storage.url": postgres.url(name)}).settings
    async with AsyncClient(tmp_path / "here", settings=settings) as here:
        session = await here.sessions.create("Trip")
        await here.memory.store(session.id, "The flight to Oslo leaves at 07:40")
        await here.state.set("user/language", "nb")
        saved = await here.artifacts.save("ticket.txt", b"seat 12A")
    async with AsyncClient(tmp_path / "elsewhere", settings=settings) as there:
        (found,) = await there.memory.search(session.id, "flight to Oslo")
        assert found.content == "The flight to Oslo leaves at 07:40"
        assert await there.state.get("user/language") == "nb"
        assert await there.artifacts.load(saved.id) == b"seat 12A"
        status = await there.storage.status()
        assert status.pending == ()
    assert not (tmp_path / "elsewhere" / "memory.db").exists()
    assert not (tmp_path / "elsewhere" / "artifacts").exists()


async def test_a_migration_sets_up_what_records_memories_and_artifacts_need(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.make_database()
    settings = load_settings(overrides={"storage.url": postgres.url(name)}).settings
    async with AsyncClient(tmp_path, settings=settings) as client:
        assert (await client.storage.status()).pending == ()
        applied = (await client.storage.migrate()).applied
        assert {"memories 0001_initial", "artifacts 0001_initial"} <= set(applied)
        assert (await client.storage.migrate()).applied == ()


async def test_a_server_without_pgvector_keeps_all_but_memories_and_says_so(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.make_database()
    postgres.execute("DROP EXTENSION vector", name)
    settings = load_settings(overrides={"storage.url": postgres.url(name)}).settings
    async with AsyncClient(tmp_path, settings=settings) as client:
        done = await client.storage.migrate()
        assert "artifacts 0001_initial" in done.applied
        (pending,) = done.pending
        assert pending.startswith("memories") and 'extension "vector"' in pending
        session = await client.sessions.create("Trip")
        await client.execute_agent(Agent("a", model=ScriptedModel("fine")), session.id, "Hello")
        with pytest.raises(StorageError):
            await client.memory.store(session.id, "a fact")


async def test_an_agent_on_another_machine_recalls_and_a_deleted_session_is_forgotten(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = postgres.make_database()
    settings = load_settings(overrides={"storage.url": postgres.url(name)}).settings
    fact = "The flight to Oslo leaves at 07:40"
    model = ScriptedModel("Before eight.", "Before eight.")
    agent = Agent("guide", model=model)
    async with AsyncClient(tmp_path / "empty", settings=settings) as client:
        session = await client.sessions.create("Trip")
        await client.execute_agent(agent, session.id, "When does the flight to Oslo leave?")
        assert fact not in str(model.requests[0])
    async with AsyncClient(tmp_path / "here", settings=settings) as here:
        memory_id = await here.memory.store(session.id, fact)
    async with AsyncClient(tmp_path / "elsewhere", settings=settings) as there:
        await there.execute_agent(agent, session.id, "And when does the flight to Oslo leave?")
        assert fact in str(model.requests[1])
    async with AsyncClient(tmp_path / "third", settings=settings) as third:
        await third.sessions.delete(session.id)
        with pytest.raises(NotFound):
            await third.memory.get(memory_id)
