"""A loop whose model does not come to an end reports what it took."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.orchestration.loop import LoopLimits, LoopOptions
from holdfast.testing.fake_server import FakeServer, HoldPoint, Reply

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"


@pytest.mark.parametrize("limits", [LoopLimits(wall_s=1.5), LoopLimits(agent_wall_s=1.5)])
async def test_a_loop_that_runs_out_of_time_reports_the_tokens_of_the_open_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: LoopLimits
) -> None:
    held = [Reply(text="never", gate=HoldPoint()) for _ in range(4)]
    async with FakeServer(held, key=KEY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("AGENT_FORCE_CHAT_COMPLETIONS", "true")
        async with AsyncClient(tmp_path) as client:
            options = LoopOptions(model="openai:gpt-4o-mini", limits=limits)
            report = await client.loops.run("Write a poem.", options=options)
    assert not report.is_done
    assert report.reason
    assert report.tokens > 0
