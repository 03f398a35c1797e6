"""What tools save is kept in the journal, and goes with its session."""

from __future__ import annotations

import pytest
from run_kit import open_run

from holdfast.errors import NotFound
from holdfast.tools.artifacts import JournalArtifacts
from holdfast.tools.events import ToolOutputKept


async def store(run) -> JournalArtifacts:
    return JournalArtifacts(run.turn, await run.client.journal(), run.session_id)


@pytest.mark.parametrize("data", [b"", b"short", bytes(range(256)) * 1_000])
async def test_what_is_saved_can_be_loaded(tmp_path, data):
    async with open_run(tmp_path) as run:
        artifacts = await store(run)
        handle = await artifacts.save("x.bin", data, media_type="application/octet-stream")
        assert await artifacts.load(handle) == data
        assert await run.client.tools.output(run.session_id, handle) == data


async def test_a_handle_that_names_nothing_is_not_found(tmp_path):
    async with open_run(tmp_path) as run:
        artifacts = await store(run)
        handle = await artifacts.save("x", b"x", media_type="text/plain")
        other = handle[:-1] + ("0" if handle[-1] != "0" else "1")
        for wrong in ("", "out_1_" + "0" * 16, "out_999_" + "0" * 16, other, "../../x"):
            with pytest.raises(NotFound):
                await artifacts.load(wrong)


async def test_redaction_removes_the_content(tmp_path):
    async with open_run(tmp_path) as run:
        artifacts = await store(run)
        handle = await artifacts.save("x", b"secret", media_type="text/plain")
        journal = await run.client.journal()
        await journal.redact(run.session_id, [int(handle.split("_")[1])], reason="test")
        with pytest.raises(NotFound):
            await artifacts.load(handle)
    fact = ToolOutputKept(name="x", media_type="text/plain", data=b"secret")
    assert fact.redacted().data == b""
