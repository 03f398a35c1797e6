"""A whole state directory of the release before: everything is there, and goes on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from holdfast import AsyncClient
from holdfast.journal import verify
from holdfast.settings import load_settings

HERE = Path(__file__).parent
ARCHIVE = HERE / "golden" / "state_0.1.0.tar.xz"
DIGEST = "0ac85a7a53d1397e7b0a4c6c91e049cbb074bc2b28c48c174dfd1f4abe7e316d"


def load_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_state", HERE / "make_state.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def open_client(place: Path) -> AsyncClient:
    overrides = {"workspace": str(place / "work"), "sessions.lease_ttl_s": 1.0}
    return AsyncClient(place / "state", settings=load_settings(overrides=overrides).settings)


def test_the_directory_is_as_it_was_written() -> None:
    assert hashlib.sha256(ARCHIVE.read_bytes()).hexdigest() == DIGEST


async def test_what_was_done_is_there_and_verifies(place: Path) -> None:
    async with open_client(place) as client:
        runs = {run.id: run.status for run in await client.runs.list()}
        assert (runs["done"], runs["loop"], runs["asks"]) == ("completed", "completed", "parked")
        again = await client.runs.execute("build", "", "", run_id="done")
        assert "345" in again.response
        [found] = await client.memory.search(again.session_id, "gate")
        assert found.content == "The gate is green"
        assert (await client.loops.report("loop")).is_done
        journal = await client.storage.journal()
        assert await verify(journal.store) == []
        # The trace of a run that was made before there were any.
        assert await client.runs.get("killed")


async def test_what_waited_for_a_person_is_answered_and_done(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = place / "work" / "asked.txt"
    monkeypatch.setenv("NOTES", str(notes))
    agent = load_maker().make_agent("ask")
    async with open_client(place) as client:
        for answered in ("one", "two", "three"):
            [asked] = await client.approvals.questions()
            await client.approvals.approve(asked.id, by="test")
            result = await client.execute_agent(agent, "", "", run_id="asks", on_ask="park")
            assert notes.read_text().split()[-1] == answered
        assert result.status == "completed"


async def test_what_was_killed_goes_on_and_repeats_nothing_that_was_finished(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = place / "work" / "notes.txt"
    monkeypatch.setenv("NOTES", str(notes))
    async with open_client(place) as client:
        agent = load_maker().make_agent()
        result = await client.execute_agent(agent, "", "", run_id="killed")
        assert (result.status, result.response) == ("completed", "All is noted.")
    # Of the second it is not known whether it was done: it may be repeated, and was.
    assert notes.read_text().split() == ["one", "two", "two", "three"]


def test_the_command_line_works_on_it(place: Path) -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "--json", "--state-dir", "state", *words],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    listed = call("runs", "list", "--all")
    assert {"done", "loop", "asks", "killed"} <= {row["id"] for row in json.loads(listed.stdout)}
    assert call("audit", "verify").returncode == 0
