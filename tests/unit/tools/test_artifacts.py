"""What tools save is an artifact of their session, and goes with it."""

from __future__ import annotations

import hashlib

import pytest
from run_kit import open_run

from holdfast.errors import NotFound
from holdfast.tools.events import ToolOutputKept


@pytest.mark.parametrize("data", [b"", b"short", bytes(range(256)) * 1_000])
async def test_what_is_saved_can_be_loaded(tmp_path, data):
    async with open_run(tmp_path) as run:
        artifacts = run.manager._context.artifacts
        handle = await artifacts.save("x.bin", data, media_type="application/octet-stream")
        assert await artifacts.load(handle) == data
        assert b"".join([piece async for piece in artifacts.stream(handle)]) == data
        assert [one.id for one in await artifacts.list("X.BIN")] == [handle]
        assert await run.client.tools.output(run.session_id, handle) == data
        await artifacts.delete(handle)
        with pytest.raises(NotFound):
            await artifacts.load(handle)


async def test_a_handle_that_names_nothing_is_not_found(tmp_path):
    async with open_run(tmp_path) as run:
        artifacts = run.manager._context.artifacts
        handle = await artifacts.save("x", b"x")
        other = handle[:-1] + ("0" if handle[-1] != "0" else "1")
        for wrong in ("", "out_1_" + "0" * 16, "out_999_" + "0" * 16, other, "../../x"):
            with pytest.raises(NotFound):
                await artifacts.load(wrong)
            with pytest.raises(NotFound):
                await run.client.tools.output(run.session_id, wrong)


async def test_another_session_does_not_find_it(tmp_path):
    async with open_run(tmp_path) as run:
        handle = await run.manager._context.artifacts.save("x", b"x")
        other = await run.client.create_session("other")
        with pytest.raises(NotFound):
            await run.client.tools.output(other.id, handle)


async def test_redaction_removes_the_content(tmp_path):
    async with open_run(tmp_path) as run:
        artifacts = run.manager._context.artifacts
        handle = await artifacts.save("x", b"gone soon")
        journal = await run.client.storage.journal()
        events = await journal.read_all(run.session_id)
        [saved] = [one.session_seq for one in events if one.kind == "artifact.saved"]
        await journal.redact(run.session_id, [saved], reason="test")
        with pytest.raises(NotFound):
            await artifacts.load(handle)
        assert (await run.client.artifacts.collect()).blobs_removed == 1


async def test_secrets_are_taken_out_of_text_and_other_bytes_stay(tmp_path):
    secret = b"ghp_" + b"9zY8xW7v" * 5
    async with open_run(tmp_path) as run:
        artifacts = run.manager._context.artifacts
        text = await artifacts.save("log.txt", b"token " + secret)
        assert secret not in await artifacts.load(text)
        raw = await artifacts.save("raw.bin", b"\xff\xfe" + secret)
        assert await artifacts.load(raw) == b"\xff\xfe" + secret


async def test_handles_of_earlier_versions_are_read_for_ever(tmp_path):
    async with open_run(tmp_path) as run:
        fact = ToolOutputKept(name="x", media_type="text/plain", data=b"kept in the journal")
        [event] = await run.turn.append(fact)
        handle = f"out_{event.session_seq}_{hashlib.sha256(fact.data).hexdigest()[:16]}"
        artifacts = run.manager._context.artifacts
        assert await artifacts.load(handle) == fact.data
        assert [piece async for piece in artifacts.stream(handle)] == [fact.data]
        assert await run.client.tools.output(run.session_id, handle) == fact.data
    assert fact.redacted().data == b""
