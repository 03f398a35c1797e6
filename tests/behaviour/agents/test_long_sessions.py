"""The first turn in a session far longer than any window reads only the end of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.context import ContextBuilder, ContextDraft, HistoryStep, SessionCompacted
from holdfast.hooks import Cancel, ContextBeforeCompaction
from holdfast.messages import Message, TextPart, ToolPart, read_compaction
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.sessions import events as facts
from holdfast.testing import FunctionModel, ModelReply, tool_call

COUNT = 3_000
"""Messages; the window below has room for 2,000 if each were as short as can be."""

LONG = f"A remark that {'is as long as remarks are and ' * 8}has the number"


def make_info(*, is_llm: bool) -> ModelInfo:
    return ModelInfo(
        provider="test",
        model="small",
        context_window=8_000,
        max_output_tokens=1_000,
        is_llm=is_llm,
    )


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def fill(client: AsyncClient) -> str:
    session = await client.sessions.create("long")
    journal = await client.storage.journal()
    head = await journal.store.acquire(session.id, "me", 1_000)
    assert head is not None
    said = []
    for number in range(COUNT):
        part = TextPart(id="p", text=f"{LONG} {number}.")
        message = Message(
            id=f"msg_{number}",
            session_id="",
            role="assistant" if number % 2 else "user",
            parts=(part,),
        )
        said.append(facts.MessageCreated(message=message))
    await journal.append(session.id, said, epoch=head.epoch)
    await journal.store.release(session.id, head.epoch)
    return session.id


class Asked:
    """A model that remembers what it was shown."""

    def __init__(self, *, is_llm: bool, calls: int = 0) -> None:
        self.shown: list[list[str]] = []
        self.materials: list[str] = []
        self._calls = calls
        self.model = FunctionModel(self.answer, info=make_info(is_llm=is_llm))

    def answer(self, request: ModelRequest) -> ModelReply | ToolPart:
        if not request.tools and "summary" in request.system:
            self.materials.append(request.messages[0].text)
            return ModelReply(text="## Goal\nRemarks.")
        self.shown.append([message.text for message in request.messages])
        if self._calls:
            self._calls -= 1
            call = tool_call("calculator", expression="1+1")
            return ToolPart(call_id="call_1", tool=call.tool, input=call.input)
        return ModelReply(text="Noted.")


async def _read_compaction(client: AsyncClient, session_id: str) -> list[SessionCompacted]:
    journal = await client.storage.journal()
    found = await journal.read(session_id, kinds=frozenset({SessionCompacted.kind}))
    return [event.expect(SessionCompacted) for event in found]


@pytest.mark.parametrize("is_llm", [False, True])
async def test_a_summary_stands_for_what_was_not_read(client: AsyncClient, is_llm: bool) -> None:
    session_id = await fill(client)
    asked = Asked(is_llm=is_llm)
    agent = Agent("reader", model=asked.model)
    result = await client.runs.execute(agent, session_id, "And now?")
    assert result.response == "Noted."
    [shown] = asked.shown
    assert shown[-1] == "And now?"
    assert shown[-2] == f"{LONG} 2999."
    [made] = await _read_compaction(client, session_id)
    assert made.messages + len(shown) - 1 == COUNT + 1
    assert made.tokens_before > 8_000 > made.tokens_after
    session = await client.sessions.get(session_id)
    manager = await client.sessions.manager()
    summary = read_compaction(await manager.messages.one(session, made.message_id))
    assert summary is not None
    assert "messages of the conversation are not in this summary" in summary.summary
    assert len(asked.materials) > 3 if is_llm else not asked.materials
    # Whoever reads all of it comes to the same view.
    assert session.message_count == COUNT + 3
    assert len(await manager.messages.all(session)) == COUNT + 3
    second = await client.runs.execute(agent, session_id, "And then?")
    assert second.response == "Noted."
    assert asked.shown[1][: len(shown)] == shown
    assert len(await _read_compaction(client, session_id)) == 1


async def test_calls_get_ids_of_their_own_where_not_all_are_at_hand(client: AsyncClient) -> None:
    session_id = await fill(client)
    asked = Asked(is_llm=False, calls=1)
    agent = Agent("reader", model=asked.model)
    result = await client.runs.execute(agent, session_id, "What is it?")
    assert result.response == "Noted."
    assert result.tools_used == ("calculator",)
    journal = await client.storage.journal()
    used = await journal.read(session_id, after=COUNT, kinds=frozenset({facts.MessageCreated.kind}))
    calls = [
        part.call_id
        for event in used
        for part in event.expect(facts.MessageCreated).message.tool_calls
    ]
    assert len(calls) == 1 and calls[0] != "call_1"


async def test_a_hook_that_is_asked_sees_all_messages(client: AsyncClient) -> None:
    session_id = await fill(client)
    seen: list[int] = []

    async def look(asked: ContextBeforeCompaction) -> Cancel | None:
        seen.append(len(asked.messages))
        return None

    client.hooks.on("context.before_compaction", look)
    await client.runs.execute(
        Agent("reader", model=Asked(is_llm=False).model), session_id, "And now?"
    )
    assert seen == [COUNT + 1]


async def test_what_no_summary_can_be_made_of_is_read_whole(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await fill(client)
    asked = Asked(is_llm=False)
    # By its own count nothing is long: all of it is recent.
    monkeypatch.setattr(asked.model, "count_tokens", lambda request: 1)
    result = await client.runs.execute(Agent("reader", model=asked.model), session_id, "And now?")
    assert result.response == "Noted."
    assert [len(shown) for shown in asked.shown] == [COUNT + 1]
    assert await _read_compaction(client, session_id) == []


async def test_steps_of_ones_own_are_shown_all_messages(client: AsyncClient) -> None:
    class Latest(HistoryStep):
        async def apply(self, draft: ContextDraft) -> None:
            draft.messages = draft.history[-2:]

    builder = ContextBuilder(await client.sessions.manager())
    assert builder.shows_all
    assert not builder.with_replacement(Latest()).shows_all
