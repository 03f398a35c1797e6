"""A client's own settings say which model answers, not those of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.settings import load_settings
from holdfast.testing.fake_server import FakeServer, Reply

KEY = "sk-test-0123456789abcdef"


async def test_settings_that_were_handed_over_choose_the_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with FakeServer(key=KEY) as server:
        server.answers.append(Reply(text="from here"))
        given = {
            "model.name": "openai:fake-model",
            "model.openai_base_url": server.base_url,
            "model.force_chat_completions": True,
        }
        settings = load_settings(overrides=given).settings
        async with AsyncClient(tmp_path, settings=settings) as client:
            session = await client.create_session("One")
            result = await client.execute_agent("", session.id, "go")
        assert result.response == "from here"
