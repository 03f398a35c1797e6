"""AsyncClient: where it keeps things, how it opens and closes, what it forwards."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.errors import (
    AlreadyExists,
    InvalidImport,
    InvalidTransition,
    NotFound,
    StorageReadOnly,
    UsageError,
)
from holdfast.journal import Event
from holdfast.messages import TextPart
from holdfast.sessions import PermissionRule, RetentionPolicy, SessionFilter
from holdfast.settings import load_settings
from holdfast.turns import Turn, TurnCompleted

WAIT_S = 20


def databases(folder: Path) -> list[Path]:
    return list(folder.rglob("*.db"))


async def test_a_client_without_arguments_uses_the_standard_place(home: Path) -> None:
    """The bug of the first SDK: storage was made without its `base_dir`."""
    async with AsyncClient() as client:
        session = await client.create_session("Math Help")
        place = client.base_dir
    assert place.is_relative_to(home)
    assert (place / "journal.db").exists()
    async with AsyncClient() as client:
        assert (await client.get_session(session.id)).title == "Math Help"
        assert session.directory == str(home)


async def test_the_place_can_be_given_by_either_name(state: Path, home: Path) -> None:
    for client in (AsyncClient(state), AsyncClient(base_dir=str(state))):
        assert client.base_dir == state
    async with AsyncClient(storage_path=state) as client:
        assert client.base_dir == state
        await client.create_session("Here")
    assert (state / "journal.db").exists()
    assert stat.S_IMODE((state / "journal.db").stat().st_mode) == 0o600
    assert databases(home) == []


async def test_the_environment_names_the_place(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_STATE_DIR", str(state))
    async with AsyncClient() as client:
        await client.create_session("Here")
        assert client.base_dir.is_relative_to(state)
    settings = load_settings().settings
    assert AsyncClient(settings=settings).base_dir == settings.storage_path


def test_two_places_are_refused(state: Path) -> None:
    with pytest.raises(UsageError):
        AsyncClient(state, storage_path=state)


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    for place in (file / "state", Path("/proc/nonexistent/state"), Path("/dev/null/state")):
        with pytest.raises(StorageReadOnly) as caught:
            await AsyncClient(place).create_session("Nowhere")
        assert caught.value.hint
    assert file.read_text() == "in the way"


async def test_making_a_client_touches_nothing(state: Path) -> None:
    client = AsyncClient(state)
    await client.close()
    assert state.name not in os.listdir(state.parent)
    with pytest.raises(UsageError):
        await client.list_sessions()
    assert state.name not in os.listdir(state.parent)


async def test_a_closed_client_says_so(state: Path) -> None:
    client = AsyncClient(state)
    await client.create_session("Once")
    await client.close()
    await client.close()
    with pytest.raises(UsageError):
        await client.list_sessions()
    with pytest.raises(UsageError):
        async with client:
            raise AssertionError


async def test_many_first_calls_open_once(state: Path) -> None:
    client = AsyncClient(state)
    sessions = await asyncio.gather(*(client.create_session(f"s{n}") for n in range(10)))
    assert len({session.id for session in sessions}) == 10
    await client.close()


async def test_a_client_can_be_tried_again_after_opening_failed(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("in the way")
    client = AsyncClient(file)
    with pytest.raises(StorageReadOnly):
        await client.list_sessions()
    file.unlink()
    await client.create_session("Now")
    await client.close()


async def test_sessions_from_end_to_end(client: AsyncClient, state: Path) -> None:
    rule = PermissionRule(permission="bash")
    parent = await client.create_session("Parent", directory=state)
    session = await client.create_session(
        "Child", parent_id=parent.id, project_id="p", permission=[rule], metadata={"a": 1}, ttl_s=99
    )
    assert (session.parent_id, session.project_id, session.permission) == (parent.id, "p", (rule,))
    await client.update_session(session.id, title="New", summary="s", metadata={"b": 2}, ttl_s=0)
    found = await client.get_session(session.slug)
    assert (found.title, found.metadata, found.expires_at) == ("New", {"a": 1, "b": 2}, 0.0)
    page = await client.list_sessions(SessionFilter(project_id="p"), sort="title", limit=5)
    assert page.items == (found,)
    recent = await client.sessions.most_recent()
    assert recent is not None
    assert recent.id == session.id
    assert (await client.sessions.change_state(session.id, "suspended")).state == "suspended"
    assert (await client.archive_session(session.id, reason="r")).state_reason == "r"
    with pytest.raises(InvalidTransition):
        await client.sessions.change_state(session.id, "failed")
    assert (await client.restore_session(session.id)).state == "active"
    await client.delete_session(parent.id)
    with pytest.raises(NotFound):
        await client.get_session(parent.id)


async def test_messages_from_end_to_end(client: AsyncClient) -> None:
    session = await client.create_session("Talk")
    first = await client.add_message(session.id, "user", "one")
    second = await client.add_message(session.id, "assistant", [TextPart(id="a", text="two")])
    page = await client.list_messages(session.id, limit=1)
    assert page.items == (first,)
    rest = await client.list_messages(session.slug, cursor=page.next_cursor)
    assert rest.items == (second,)
    newest = await client.list_messages(session.id, limit=1, newest_first=True)
    assert newest.items == (second,)
    changed = await client.messages.update_part(session.id, second.id, TextPart(id="a", text="2"))
    assert await client.get_message(session.id, second.id) == changed
    number = await client.events.count(session.id)
    fork = await client.fork_session(session.id, at=2, title="Fork")
    assert fork.message_count == 1
    await client.delete_message(session.id, first.id)
    assert (await client.revert_session(session.id, to=number)).message_count == 2
    kinds = [event.kind for event in await client.events.list(session.id, after=1, limit=2)]
    assert kinds == ["message.created", "message.created"]


async def test_a_session_travels_in_a_file(client: AsyncClient, tmp_path: Path) -> None:
    session = await client.create_session("Travel")
    await client.add_message(session.id, "user", "x" * 50_000)
    file = tmp_path / "new" / "session.jsonl"
    assert await client.sessions.export(session.slug, file) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [line async for line in client.sessions.lines(session.id)]
    assert b"".join(lines) == file.read_bytes()
    assert await client.sessions.export(session.id, file) == 2
    assert os.listdir(file.parent) == ["session.jsonl"]
    with pytest.raises(AlreadyExists):
        await client.sessions.load(file)
    copy = await client.sessions.load(str(file), as_new=True)
    assert copy.id != session.id
    await client.delete_session(session.id)
    with file.open("rb") as source:
        assert (await client.sessions.load(source)).id == session.id


async def test_an_import_that_cannot_be_read_changes_nothing(
    client: AsyncClient, tmp_path: Path
) -> None:
    before = await client.storage.stats()
    closed = io.BytesIO(b"")
    closed.close()
    for source in (tmp_path / "none", tmp_path, "a\0b", closed, io.BytesIO(b"junk")):
        with pytest.raises(InvalidImport):
            await client.sessions.load(source)
    assert await client.storage.stats() == before


async def test_an_export_that_cannot_be_written_leaves_nothing(
    client: AsyncClient, tmp_path: Path
) -> None:
    session = await client.create_session("Travel")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "file" / "x", tmp_path / "folder"):
        with pytest.raises(UsageError):
            await client.sessions.export(session.id, target)
    assert list((tmp_path / "folder").iterdir()) == []
    with pytest.raises(NotFound):
        await client.sessions.export("ses_none", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "home", "state"]


async def test_upkeep_from_end_to_end(client: AsyncClient, tmp_path: Path) -> None:
    session = await client.create_session("Kept")
    await client.add_message(session.id, "user", "secret")
    heads = await client.audit.heads()
    assert session.id in json.loads(heads)["heads"]
    walked: list[tuple[str, int]] = []
    assert await client.audit.verify(heads=heads, progress=lambda *step: walked.append(step)) == []
    assert (session.id, 2) in walked
    assert await client.audit.verify(session_id=session.slug) == []
    assert await client.storage.rebuild() == 2
    assert (await client.storage.stats())["events"] == 2
    assert await client.storage.export_layout(tmp_path / "out") == 2
    assert (tmp_path / "out/storage/session" / f"{session.id}.json").exists()
    assert (await client.storage.clean_up()).events_redacted == 0
    assert (await client.storage.clean_up(RetentionPolicy(event_ttl_s=0))).events_redacted == 1
    assert await client.runs.interrupted() == []
    assert (await client.storage.journal()).store is (await client.sessions.manager()).journal.store


async def test_a_watcher_sees_what_happens_without_gaps(client: AsyncClient) -> None:
    session = await client.create_session("Watched")
    seen: list[Event] = []

    async def watch() -> None:
        def is_last(event: Event) -> bool:
            return event.kind == "message.created"

        async for event in client.events.watch(after=0, session_id=session.id, until=is_last):
            seen.append(event)

    watching = asyncio.create_task(watch())
    await client.update_session(session.id, summary="s")
    await client.add_message(session.id, "user", "end")
    await asyncio.wait_for(watching, WAIT_S)
    assert [event.kind for event in seen] == [
        "session.created",
        "session.updated",
        "message.created",
    ]


async def test_two_clients_of_one_place_in_one_loop_keep_turns_apart(state: Path) -> None:
    async with AsyncClient(state) as one, AsyncClient(state) as two:
        session = await one.create_session("Shared")
        running = 0

        async def turn(client: AsyncClient, number: int) -> None:
            async def handler(turn: Turn) -> TurnCompleted:
                nonlocal running
                running += 1
                assert running == 1
                await asyncio.sleep(0)
                running -= 1
                return TurnCompleted(result={"n": number})

            queue = await client.runs.turns()
            run = await queue.submit(session.id)
            assert (await queue.run(run.id, handler)).result == {"n": number}

        work = [turn((one, two)[n % 2], n) for n in range(20)]
        await asyncio.wait_for(asyncio.gather(*work), 60)
        assert await one.audit.verify() == []
