"""The store is chosen by its address, for the journal and for memories. (9.1)"""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import PostgresServer

from holdfast import Agent, AsyncClient
from holdfast.errors import UsageError
from holdfast.memory import open_memory_storage
from holdfast.settings import Settings, load_settings
from holdfast.testing import ScriptedModel


def at(url: str) -> Settings:
    plain = load_settings().settings
    return plain.model_copy(update={"storage": plain.storage.model_copy(update={"url": url})})


async def test_nothing_is_written_where_everything_is_in_memory(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state", settings=at("memory://")) as client:
        result = await Agent("a", model=ScriptedModel("fine")).run("hi", client=client)
        await client.memory.store(result.session_id, "The meeting is on Friday.")
        [found] = await client.memory.search(result.session_id, "When is the meeting?")
        assert found.content == "The meeting is on Friday."
        assert (await client.runs.get(result.run_id)).status == "completed"
    assert not [one for one in tmp_path.rglob("*.db*")]


async def test_another_directory_keeps_journal_and_memories_and_is_hidden(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    async with AsyncClient(tmp_path / "state", settings=at(f"sqlite://{place}")) as client:
        session = await client.sessions.create("s", directory=tmp_path)
        await client.memory.store(session.id, "The meeting is on Friday.")
        called = await client.tools.call(
            "read", {"file_path": "elsewhere/journal.db"}, session_id=session.id
        )
        assert called.part.state == "error"
    assert {one.name for one in place.iterdir()} >= {"journal.db", "memory.db"}
    assert not [one for one in (tmp_path / "state").rglob("*.db")]


async def test_two_clients_share_a_database_and_what_is_in_it(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Sessions, state, memories, files, audit: one sees what the other does, as on one machine."""
    settings = at(postgres.url(postgres.make_database()))
    place = settings.artifacts.model_copy(update={"url": f"file://{tmp_path / 'files'}"})
    settings = settings.model_copy(update={"artifacts": place})
    async with (
        AsyncClient(tmp_path / "one", settings=settings) as one,
        AsyncClient(tmp_path / "two", settings=settings) as two,
    ):
        result = await Agent("a", model=ScriptedModel("fine")).run("hi", client=one)
        assert (await two.runs.get(result.run_id)).status == "completed"
        saved = await two.artifacts.save("a.txt", b"content", session_id=result.session_id)
        assert await one.artifacts.load(saved.id) == b"content"
        assert (await one.storage.status()).pending == ()
        await one.memory.store(result.session_id, "The meeting is on Friday.")
        assert len(await two.memory.search(result.session_id, "meeting")) == 1
        await two.sessions.delete(result.session_id)
        assert list((await one.sessions.list()).items) == []
        assert await (await two.storage.journal()).store.examine() == []
    assert not [one for one in tmp_path.rglob("*.db")]


@pytest.mark.parametrize("url", ["oracle://host/db", "sqlite", "mysql:"])
def test_an_unknown_address_is_refused_and_the_known_ones_are_named(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(UsageError) as raised:
        AsyncClient(tmp_path, settings=at(url))
    assert "sqlite://" in str(raised.value) and "memory://" in str(raised.value)
    with pytest.raises(UsageError):
        open_memory_storage(url, base_dir=tmp_path)
