"""Taking back what a session did: messages, and the files that its calls changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import AsyncClient
from holdfast.errors import UsageError
from holdfast.messages import ToolPart
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel
from holdfast.tools import AutoConfirm

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"


def call(name: str, **arguments: object) -> list[ToolPart]:
    return [ToolPart(call_id=f"c-{name}-{len(str(arguments))}", tool=name, input=arguments)]


def write(path: str, content: str) -> list[ToolPart]:
    return call("write", file_path=path, content=content)


def edit(path: str, old: str, new: str) -> list[ToolPart]:
    return call("edit", file_path=path, old_string=old, new_string=new)


@pytest.fixture
def open_client(tmp_path: Path) -> Callable[[], AsyncClient]:
    def open_() -> AsyncClient:
        place = tmp_path / "work"
        place.mkdir(exist_ok=True)
        found = load_settings(
            overrides={"workspace": str(place), "storage.state_dir": str(tmp_path / "state")}
        )
        client = AsyncClient(settings=found.settings)
        client.approver = AutoConfirm()
        return client

    return open_


async def test_undo_brings_back_messages_and_files(open_client, tmp_path: Path) -> None:
    place = tmp_path / "work"
    async with open_client() as client:
        (place / "a.txt").write_text("one\r\ntwo\r\n", newline="")
        model = ScriptedModel(
            "Hello.",
            write("new/b.txt", "fresh\n"),
            edit("a.txt", "one", "three"),
            edit("a.txt", "three", "four"),
            "Done.",
        )
        first = await client.execute_agent("build", "", "Hi", model=model)
        session = first.session_id
        await client.execute_agent("build", session, "Change it", model=model)
        assert (place / "a.txt").read_bytes() == b"four\r\ntwo\r\n"
        done = await client.sessions.undo(session)
        assert (done.message, done.restored, done.left) == ("Change it", ("a.txt", "new/b.txt"), {})
        assert (place / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
        assert not (place / "new" / "b.txt").exists()
        texts = [m.text for m in (await client.list_messages(session)).items]
        assert texts == ["Hi", "Hello."]
        journal = await client.storage.journal()
        assert len(await journal.read(session, kinds=frozenset({"files.restored"}))) == 1
        # A second undo takes back the turn before, and then there is nothing left.
        assert (await client.sessions.undo(session)).message == "Hi"
        with pytest.raises(UsageError):
            await client.sessions.undo(session)


async def test_a_file_that_something_else_changed_stays(open_client, tmp_path: Path) -> None:
    place = tmp_path / "work"
    async with open_client() as client:
        (place / "a.txt").write_text("one\n")
        (place / "b.txt").write_text("one\n")
        model = ScriptedModel(
            edit("a.txt", "one", "two"),
            edit("b.txt", "one", "two"),
            "Done.",
            edit("b.txt", "mine", "theirs"),
            "Done.",
        )
        result = await client.execute_agent("build", "", "Change it", model=model)
        (place / "a.txt").write_text("mine\n")
        (place / "b.txt").write_text("mine\n")
        await client.execute_agent("build", result.session_id, "More", model=model)
        done = await client.sessions.undo(result.session_id, to=1)
        assert done.restored == ()
        assert set(done.left) == {"a.txt", "b.txt"}
        assert (place / "a.txt").read_text() == "mine\n"
        assert (place / "b.txt").read_text() == "theirs\n"


async def test_a_file_whose_content_was_not_kept_whole_stays(open_client, tmp_path: Path) -> None:
    place = tmp_path / "work"
    async with open_client() as client:
        (place / "secret.txt").write_text(f"key = {KEY}\n")
        (place / "long.txt").write_text("x" * 200_000)
        model = ScriptedModel(write("secret.txt", "gone\n"), write("long.txt", "short\n"), "Done.")
        result = await client.execute_agent("build", "", "Change it", model=model)
        done = await client.sessions.undo(result.session_id)
        assert set(done.left) == {"secret.txt", "long.txt"}
        assert (place / "secret.txt").read_text() == "gone\n"
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*.db*"))
    assert KEY.encode() not in kept


async def test_what_a_command_did_stays(open_client, tmp_path: Path) -> None:
    async with open_client() as client:
        model = ScriptedModel(call("bash", command="echo hi > made.txt"), "Done.")
        result = await client.execute_agent("build", "", "Run it", model=model)
        done = await client.sessions.undo(result.session_id)
        assert (done.restored, done.left) == ((), {})
        assert (tmp_path / "work" / "made.txt").exists()


async def test_a_link_that_was_put_in_the_way_is_not_followed(open_client, tmp_path: Path) -> None:
    place, outside = tmp_path / "work", tmp_path / "outside.txt"
    outside.write_text("two\n")
    async with open_client() as client:
        (place / "a.txt").write_text("one\n")
        model = ScriptedModel(write("a.txt", "two\n"), "Done.")
        result = await client.execute_agent("build", "", "Change it", model=model)
        (place / "a.txt").unlink()
        (place / "a.txt").symlink_to(outside)
        done = await client.sessions.undo(result.session_id)
        assert set(done.left) == {"a.txt"}
    assert outside.read_text() == "two\n"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(contents=st.lists(st.text(alphabet="ab\r\n é", max_size=6), min_size=1, max_size=4))
async def test_any_series_of_writes_is_undone_to_the_byte(
    contents: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("work")
    (place / "a.txt").write_bytes(b"first\r\nline")
    found = load_settings(overrides={"workspace": str(place), "storage.url": "memory://"})
    async with AsyncClient(settings=found.settings) as client:
        client.approver = AutoConfirm()
        parts = [
            ToolPart(
                call_id=f"c{number}", tool="write", input={"file_path": "a.txt", "content": text}
            )
            for number, text in enumerate(contents)
        ]
        model = ScriptedModel(*[[part] for part in parts], "Done.")
        result = await client.execute_agent("build", "", "Write", model=model)
        await client.sessions.undo(result.session_id)
    assert (place / "a.txt").read_bytes() == b"first\r\nline"
