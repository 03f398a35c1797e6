"""How often a turn writes: what belongs together is stored together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.journal import SqliteStore
from holdfast.policy.budgets import Budget
from holdfast.testing import FunctionModel, ScriptedModel
from holdfast.turns import Outcome, Turn, TurnExecutor
from holdfast.turns import turn as deferred


async def writer(client: AsyncClient) -> sqlite3.Connection:
    store = (await client.storage.journal()).store
    assert isinstance(store, SqliteStore) and store._writer is not None
    return store._writer._connection


async def test_an_answer_is_stored_with_the_end_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred, "_MOMENT_S", 3600.0)
    commits: list[str] = []
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s")
        agent = Agent("a", model=ScriptedModel("one", "two"))
        await client.execute_agent(agent, session.id, "go")
        connection = await writer(client)
        connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        await client.execute_agent(agent, session.id, "go")
        connection.set_trace_callback(None)
        events = await (await client.storage.journal()).read_all(session.id)
        assert commits == ["COMMIT"] * 2  # it begins, and it ends
        assert [event.kind for event in events[-3:]] == [
            "message.created",
            "message.created",
            "run.completed",
        ]


async def test_where_a_budget_counts_an_answer_is_stored_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the run gives its budget back, the journal is all that knows what was spent."""
    monkeypatch.setattr(deferred, "_MOMENT_S", 3600.0)
    found: list[str] = []
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s")
        journal = await client.storage.journal()
        end = TurnExecutor.end

        async def look_and_end(executor: TurnExecutor, turn: Turn, outcome: Outcome) -> list[str]:
            found.extend(event.kind for event in await journal.read(session.id))
            return await end(executor, turn, outcome)

        monkeypatch.setattr(TurnExecutor, "end", look_and_end)
        agent = Agent("a", model=ScriptedModel("done"), budget=Budget(max_calls=2))
        await client.execute_agent(agent, session.id, "go")
    assert found.count("message.created") == 2


async def test_who_steers_while_the_last_answer_is_given_is_heard_by_the_same_run(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s")

        async def answer(request: object) -> str:
            asked.append("")
            if len(asked) == 1:
                await client.runs.steer(session.id, "and then?")
            return f"answer {len(asked)}"

        result = await client.execute_agent(
            Agent("a", model=FunctionModel(answer)), session.id, "go"
        )
        assert result.response == "answer 2"
        texts = [message.text for message in (await client.list_messages(session.id)).items]
        assert texts == ["go", "answer 1", "and then?", "answer 2"]
