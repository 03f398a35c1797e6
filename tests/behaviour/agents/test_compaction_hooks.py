"""Hooks around making room: they may forbid it, steer it, or bring the summary themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HookRefused
from holdfast.hooks import Cancel, Replace
from holdfast.hooks.points import ContextAfterCompaction, ContextBeforeCompaction
from holdfast.messages import CompactionPart
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.testing import FunctionModel, ModelReply, tool_call

INFO = ModelInfo(
    provider="test", model="small", context_window=8_000, max_output_tokens=1_000, is_llm=True
)


@tool(effect="read")
async def dump(size: int) -> str:
    """Return a long text."""
    return "data " * (size // 5)


class Talker:
    """Talks at length, and summarises when asked to."""

    def __init__(self, *calls: int, words: int = 1500) -> None:
        self.asked_for_summaries: list[str] = []
        self._calls = list(calls)
        self._words = words
        self.model = FunctionModel(self.answer, info=INFO)

    def answer(self, request: ModelRequest) -> ModelReply:
        if not request.tools and "summary" in request.system:
            self.asked_for_summaries.append(request.messages[-1].text)
            return ModelReply(text="## Goal\nthe model's summary")
        if self._calls:
            return ModelReply(text="", calls=(tool_call("dump", size=self._calls.pop(0)),))
        return ModelReply(text="hm " * self._words)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def talk(client: AsyncClient, talker: Talker, session: str, turns: int) -> list[str]:
    agent = Agent("a", model=talker.model, tools=[dump], allowed_tools=["dump"])
    return [(await client.execute_agent(agent, session, "and?")).status for _ in range(turns)]


async def summaries(client: AsyncClient, session: str) -> list[str]:
    page = await client.list_messages(session, limit=500)
    parts = [part for message in page.items for part in message.parts]
    return [part.summary for part in parts if isinstance(part, CompactionPart)]


async def test_a_hook_brings_the_summary_and_no_model_is_asked(client: AsyncClient) -> None:
    talker, told = Talker(), []

    @client.hooks.on("context.before_compaction")
    async def summarise(payload: ContextBeforeCompaction) -> Replace:
        told.append((payload.reason, payload.agent, bool(payload.run_id), payload.tokens > 1000))
        return Replace("our own summary")

    after: list[ContextAfterCompaction] = []
    client.hooks.observe("context.after_compaction", after.append)
    session = await client.create_session("long")
    assert set(await talk(client, talker, session.id, 8)) == {"completed"}
    assert talker.asked_for_summaries == []
    assert told[0] == ("overflow", "a", True, True)
    found = await summaries(client, session.id)
    assert found
    assert all("our own summary" in text for text in found)
    assert len(after) == len(told)
    assert all(each.tokens_after < each.tokens_before for each in after)
    assert "our own summary" in after[0].summary


async def test_a_cancelled_compaction_fails_the_run_that_needs_it_and_no_more(
    client: AsyncClient,
) -> None:
    async def forbid(payload: ContextBeforeCompaction) -> Cancel:
        return Cancel("the record must be read whole")

    hook = client.hooks.on("context.before_compaction", forbid)
    talker = Talker()
    session = await client.create_session("long")
    statuses = await talk(client, talker, session.id, 8)
    assert statuses[0] == "completed"
    assert statuses[-1] == "failed"
    assert await summaries(client, session.id) == []
    kinds = [event.kind for event in await client.events.list(session.id, limit=1000)]
    assert "hook.decided" in kinds
    # Without the hook the session goes on.
    client.hooks.off(hook)
    assert await talk(client, talker, session.id, 1) == ["completed"]
    assert await summaries(client, session.id)


async def test_what_a_person_asked_for_is_refused_aloud(client: AsyncClient) -> None:
    talker = Talker()
    session = await client.create_session("long")
    await talk(client, talker, session.id, 2)

    @client.hooks.on("context.before_compaction", name="archive")
    async def forbid(payload: ContextBeforeCompaction) -> Cancel:
        assert payload.reason == "requested"
        return Cancel("not today")

    with pytest.raises(HookRefused) as caught:
        await client.sessions.compact(session.id, model=talker.model)
    assert caught.value.code == HookRefused.code
    assert await summaries(client, session.id) == []


async def test_a_hook_says_what_to_pay_attention_to(client: AsyncClient) -> None:
    talker = Talker()
    session = await client.create_session("long")
    await talk(client, talker, session.id, 2)

    @client.hooks.on("context.before_compaction")
    async def steer(payload: ContextBeforeCompaction) -> object:
        return payload.modify(focus=f"{payload.focus} and prices")

    await client.sessions.compact(session.id, model=talker.model, focus="names")
    assert "names and prices" in talker.asked_for_summaries[0]


async def test_a_broken_hook_does_not_keep_room_from_being_made(client: AsyncClient) -> None:
    @client.hooks.on("context.before_compaction")
    async def stumble(payload: ContextBeforeCompaction) -> None:
        raise RuntimeError("broken")

    session = await client.create_session("long")
    assert set(await talk(client, Talker(), session.id, 8)) == {"completed"}
    assert await summaries(client, session.id)


async def test_pruning_alone_is_told_without_a_summary(client: AsyncClient) -> None:
    told: list[ContextAfterCompaction] = []
    client.hooks.observe("context.after_compaction", told.append)
    session = await client.create_session("long")
    await talk(client, Talker(*range(6_000, 6_080, 10), words=3), session.id, 1)
    assert [each.summary for each in told][:1] == [""]
    assert told[0].tokens_after < told[0].tokens_before
