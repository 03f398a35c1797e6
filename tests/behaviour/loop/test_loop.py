"""The loop plans, works, checks itself, and stops when the evidence says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop_models import crew_model, step

from holdfast import Agent, AsyncClient
from holdfast.orchestration.loop import LoopAgents, LoopOptions
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "README.md").write_text("# A project\n")
    return place


@pytest.fixture
async def client(tmp_path: Path, workspace: Path):
    settings = load_settings(overrides={"workspace": str(workspace)}).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as opened:
        yield opened


def options(model: FunctionModel, **more) -> LoopOptions:
    looking = {"allowed_tools": ["read"], "model": model}
    return LoopOptions(
        agents=LoopAgents(
            planner=Agent("planner", **looking),
            executor=Agent(
                "executor", model=model, permission=[{"permission": "*", "action": "allow"}]
            ),
            reviewer=Agent("reviewer", **looking),
        ),
        **more,
    )


async def test_a_goal_is_planned_worked_on_checked_reviewed_and_reported(client) -> None:
    model = crew_model([step("a"), step("b", "a"), step("c", "a")])
    report = await client.run_loop("Do everything", run_id="job", options=options(model))
    assert report.outcome == "done", report
    assert [(s.id, s.status, s.verdict) for s in report.steps] == [
        (name, "done", "accept") for name in "abc"
    ]
    assert report.tokens > 0
    assert (client.base_dir / "run-job.jsonl").exists()
    assert (client.base_dir / "reports" / "run-job.md").read_text() == report.to_markdown()
    again = await client.run_loop("Do everything", run_id="job", options=options(model))
    assert again == report
