"""A run is watched from another client while it works."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from loop_models import asked, crew_model, options, step

from holdfast import AsyncClient
from holdfast.cli.frame import Invocation
from holdfast.cli.runs import _watch
from holdfast.settings import load_settings
from holdfast.testing import ModelReply


async def test_watching_follows_a_run_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = {"workspace": str(tmp_path), "storage.state_dir": str(tmp_path / "state")}
    begun, released = asyncio.Event(), asyncio.Event()

    def work(request):
        begun.set()
        return ModelReply(text=asked(request)[:20], hold=released)

    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as client:
        model = crew_model([step("a"), step("b", "a")], work)
        working = asyncio.create_task(client.loops.run("Do", run_id="job", options=options(model)))
        await asyncio.wait_for(begun.wait(), 30)
        watching = asyncio.create_task(_watch(Invocation(overrides=overrides), "job"))
        released.set()
        report = await asyncio.wait_for(watching, 60)
        assert (await asyncio.wait_for(working, 60)).outcome == "done"
    assert report.outcome == "done"
    shown = capsys.readouterr().err
    assert "→ b" in shown
    assert "loop ended: done" in shown
