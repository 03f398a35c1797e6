"""Artifacts through the client: runs, forks, exports, deletion, rights, a full disk."""

from __future__ import annotations

import io
import subprocess

import pytest

from holdfast import Agent, AsyncClient, Client, tool
from holdfast.artifacts import ArtifactFilter, ArtifactOptions
from holdfast.client.channel import LocalChannel
from holdfast.client.namespaces.artifacts import ArtifactNamespace
from holdfast.errors import (
    ArtifactDenied,
    FileError,
    InvalidImport,
    NotFound,
    NotPermitted,
    StorageFull,
)
from holdfast.operations import Caller
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext

LONG = "a long output " * 20_000


@tool(effect="idempotent")
async def draw(context: ToolContext) -> str:
    """Draw a figure, and say a lot about it."""
    await context.artifacts.save("figure.png", b"\x89PNG\r\n\x1a\n" + bytes(50))
    return LONG


async def drawn(client: AsyncClient) -> str:
    """Run an agent that draws; returns its session."""
    session = await client.create_session("drawing")
    model = ScriptedModel(tool_call("draw"), "done")
    agent = Agent("painter", model=model, tools=[draw])
    assert (await client.execute_agent(agent, session.id, "go")).status == "completed"
    return session.id


async def names(client: AsyncClient, session_id: str = "") -> list[str]:
    page = await client.artifacts.list(ArtifactFilter(session_id=session_id))
    return sorted(one.name for one in page.items)


async def test_what_a_call_saves_and_what_was_cut_off_are_artifacts_of_the_session(tmp_path):
    async with AsyncClient(tmp_path) as client:
        session_id = await drawn(client)
        page = await client.artifacts.list()
        figure, output = sorted(page.items, key=lambda one: one.size)
        assert (figure.name, figure.media_type, figure.kind) == (
            "figure.png",
            "image/png",
            "tool_result",
        )
        assert figure.run_id and figure.call_id and figure.session_id == session_id
        assert (await client.artifacts.load(output.id)).decode() == LONG
        shown = str((await client.list_messages(session_id)).items)
        assert f"the whole is artifact {output.id}" in shown


async def test_a_fork_keeps_what_the_first_session_deletes(tmp_path):
    async with AsyncClient(tmp_path) as client:
        session_id = await drawn(client)
        fork = await client.fork_session(session_id)
        for one in (await client.artifacts.list(ArtifactFilter(session_id=session_id))).items:
            await client.artifacts.delete(one.id, session_id=session_id)
        assert await names(client, session_id) == []
        assert len(await names(client, fork.id)) == 2
        assert await client.artifacts.verify() == []
        await client.delete_session(session_id)
        assert (await client.artifacts.collect()).blobs_removed == 0
        later = await client.fork_session(fork.id)
        await client.delete_session(fork.id)
        assert len(await names(client, later.id)) == 2
        await client.delete_session(later.id)
        assert not [path for path in (tmp_path / "artifacts/blobs").rglob("*") if path.is_file()]


async def test_a_fork_of_a_moment_before_a_deletion_does_not_list_what_is_gone(tmp_path):
    async with AsyncClient(tmp_path) as client:
        session_id = await drawn(client)
        before = (await client.events.list(session_id))[-1].session_seq
        for one in (await client.artifacts.list()).items:
            await client.artifacts.delete(one.id)
        fork = await client.fork_session(session_id, at=before)
        assert await names(client, fork.id) == []
        assert await client.artifacts.verify() == []


async def test_an_export_carries_artifacts_and_is_checked_as_a_whole(tmp_path):
    async with AsyncClient(tmp_path / "one") as client:
        session_id = await drawn(client)
        lines = [line async for line in client.sessions.lines(session_id)]
        count = await client.sessions.export(session_id, tmp_path / "file.jsonl")
        assert count == len(await client.events.list(session_id, limit=10_000))
    whole = b"".join(lines)
    contents = [number for number, line in enumerate(lines) if line.startswith(b'{"content"')]
    assert contents and (tmp_path / "file.jsonl").read_bytes() == whole
    async with AsyncClient(tmp_path / "two") as client:
        missing = b"".join(lines[: contents[0]])
        swapped = b"".join([*lines[: contents[0]], *reversed(lines[contents[0] :])])
        changed = whole.replace(b"iVBO", b"iVBP", 1)
        for wrong in (missing, swapped, changed, whole[:-5], whole + b"x\n", whole + lines[-1]):
            with pytest.raises(InvalidImport):
                await client.sessions.load(io.BytesIO(wrong))
            assert await names(client) == []
        await client.sessions.load(io.BytesIO(whole))
        assert len(await names(client)) == 2
        assert await client.artifacts.verify() == []
        copy = await client.sessions.load(tmp_path / "file.jsonl", as_new=True)
        await client.delete_session(session_id)
        assert await client.artifacts.verify() == []
        assert len(await names(client, copy.id)) == 2


async def test_callers_need_scopes_and_see_what_is_theirs(tmp_path):
    async with AsyncClient(tmp_path) as client:
        saved = await client.artifacts.save("mine", b"mine")
        await client.artifacts.save("all", b"all", options=ArtifactOptions(scope="tenant"))

        def as_(subject: str, *scopes: str) -> ArtifactNamespace:
            caller = Caller(tenant="default", subject=subject, scopes=frozenset(scopes))
            return ArtifactNamespace(LocalChannel(client._runtime, caller))

        ann = as_("ann", "artifacts:read", "artifacts:write")
        assert [one.name for one in (await ann.list()).items] == ["all"]
        with pytest.raises(NotFound):
            await ann.load(saved.id)
        session = await client.create_session("x")
        with pytest.raises(NotFound):
            await ann.list(session_id=session.id)
        for admin_only in (ann.collect, ann.verify, ann.rekey):
            with pytest.raises(NotPermitted):
                await admin_only()
        await client.artifacts.grant(saved.id, "ann", access="read", expires_in_s=60)
        assert await ann.load(saved.id) == b"mine"
        with pytest.raises(ArtifactDenied):
            await ann.delete(saved.id)
        for pretender in ("owner", "local", f"session:{session.id}"):
            with pytest.raises(NotFound):
                await as_(pretender, "artifacts:read").load(saved.id)
        own = await ann.save("hers", b"hers")
        with pytest.raises(NotFound):
            await as_("bob", "artifacts:read").load(own.id)
        assert await as_("root", "artifacts:read", "artifacts:admin").load(own.id) == b"hers"


def test_files_go_in_and_out_with_the_blocking_client(tmp_path):
    source = tmp_path / "source.txt"
    source.write_bytes(b"content")
    with Client(tmp_path / "state") as client:
        saved = client.artifacts.upload(source)
        assert (saved.name, saved.media_type) == ("source.txt", "text/plain")
        client.artifacts.download(saved.id, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"content"
        with source.open("rb") as file:
            assert client.artifacts.upload(file, name="source.txt").id == saved.id
        assert b"".join(client.artifacts.stream(saved.id)) == b"content"
        with pytest.raises(FileError):
            client.artifacts.upload(tmp_path / "nothing")
        assert client.artifacts.usage().bytes == 7


def test_every_file_is_private(tmp_path):
    with Client(tmp_path / "state") as client:
        client.artifacts.save("x", b"x")
        files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    subprocess.run(mount, check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
async def test_a_full_disk_says_so_and_loses_nothing(tmp_path, small_disk, scheme):
    overrides = {"artifacts.url": f"{scheme}://{small_disk}", "artifacts.compress": False}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        kept = await client.artifacts.save("kept", b"k" * 100_000)
        with pytest.raises(StorageFull):
            await client.artifacts.save("large", b"x" * 8_000_000)
        assert await names(client) == ["kept"]
        assert await client.artifacts.verify() == []
        await client.artifacts.collect()
        again = await client.artifacts.save("small", b"s" * 100_000)
        assert await client.artifacts.load(kept.id) == b"k" * 100_000
        assert await client.artifacts.load(again.id) == b"s" * 100_000
