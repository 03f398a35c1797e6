"""Streams that say what they yield, and the result at their end."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from holdfast import Agent, AgentResult, AsyncClient, RunFailed
from holdfast.errors import LLMBadRequest, UsageError
from holdfast.testing import ScriptedModel


class Ticket(BaseModel):
    """What a caller wants."""

    title: str


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        yield client


async def test_text_comes_in_pieces_and_the_result_at_the_end(client):
    agent = Agent("writer", model=ScriptedModel("once upon a time"))
    run = agent.stream_text("Tell", client=client)
    pieces = [text async for text in run]
    result = await run.result()
    assert len(pieces) > 1
    assert "".join(pieces) == result.response == "once upon a time"


async def test_the_result_can_be_had_without_reading_the_text(client):
    agent = Agent("clerk", model=ScriptedModel('{"title": "late"}'), output=Ticket)
    result = await agent.stream_text("File it", client=client).result()
    assert result.output.title == "late"


async def test_a_stream_of_items_has_its_result_too(client):
    run = Agent("writer", model=ScriptedModel("a")).stream("Tell", client=client)
    items = [item async for item in run]
    assert isinstance(items[-1], AgentResult)
    assert await run.result() is items[-1]


async def test_leaving_early_cancels_the_run_and_there_is_no_result(client):
    agent = Agent("writer", model=ScriptedModel("once upon a time"))
    async with agent.stream_text("Tell", client=client, run_id="tale") as run:
        async for _ in run:
            break
    with pytest.raises(UsageError, match="left before its end"):
        await run.result()
    assert (await client.runs.get("tale")).status == "cancelled"


async def test_a_failed_run_raises_at_the_end_unless_that_is_switched_off(client):
    refused = LLMBadRequest(provider="scripted", detail="no")
    with pytest.raises(RunFailed):
        await Agent("x", model=ScriptedModel(refused)).stream_text("Go", client=client).result()
    run = Agent("x", model=ScriptedModel(refused)).stream_text(
        "Go", client=client, raise_on_failure=False
    )
    assert [text async for text in run] == []
    assert (await run.result()).status == "failed"


async def test_a_stream_opens_a_client_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    run = Agent("writer", model=ScriptedModel("a b")).stream_text("Tell")
    assert "".join([text async for text in run]) == "a b"
