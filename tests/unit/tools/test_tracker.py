"""The history of tool calls follows from the journal."""

from __future__ import annotations

import asyncio
import json

import pytest
from run_kit import open_run

from holdfast.errors import NotFound, UsageError
from holdfast.messages import ToolPart
from holdfast.settings import load_settings
from holdfast.sync import Client
from holdfast.testing import FakeClock
from holdfast.tools import tool
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.tracker import ToolExecution, ToolExecutionTracker


@tool(effect="read", version="3.0.0")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_calls_come_newest_first_with_times_and_provenance(tmp_path):
    clock = FakeClock()

    @tool(effect="idempotent", version="1.2.3")
    async def work(seconds: int) -> str:
        """Work."""
        clock.advance(seconds)
        return "done"

    async with open_run(tmp_path, work, clock=clock) as run:
        begun = clock.now()
        for seconds in (1, 2):
            await run.call("work", seconds=seconds)
        await run.call("work", seconds="many")
        wrong, second, first = await run.client.get_execution_history(run.session_id)
    assert (first.args, first.output, first.state) == ({"seconds": 1}, "done", "completed")
    assert (first.time_start, first.duration_s, second.duration_s) == (begun, 1, 2)
    assert (first.tool_version, first.source_hash) == ("1.2.3", work.source_hash)
    assert (wrong.state, wrong.duration_s, wrong.tool_version) == ("error", 0, "")
    assert "seconds" in wrong.error


async def test_a_call_is_pending_then_running_then_completed(tmp_path):
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect="unsafe", version="2.0.0")
    async def work() -> str:
        """Work."""
        begun.set()
        await may_end.wait()
        return "done"

    async with open_run(tmp_path, work) as run:

        async def seen() -> ToolExecution:
            [one] = await run.client.get_execution_history(run.session_id)
            return one

        calls = await run.ask(ToolPart(call_id="", tool="work"))
        assert (await seen()).state == "pending"
        task = asyncio.create_task(run.manager.execute_all(calls))
        await begun.wait()
        running = await seen()
        assert (running.state, running.tool_version, running.duration_s) == (
            "running",
            "2.0.0",
            None,
        )
        assert running.time_start is not None
        assert running.source_hash == work.source_hash
        may_end.set()
        await task
        done = await seen()
        assert (done.state, done.output) == ("completed", "done")


async def test_history_can_be_narrowed_and_bounded(tmp_path):
    @tool(effect="read")
    async def fail() -> str:
        """Fail."""
        raise ValueError("no")

    async with open_run(tmp_path, add, fail) as run:
        for number in range(120):
            await run.call("add", a=number, b=0)
        await run.call("fail")
        await run.turn.flush()
        history = run.client.get_execution_history
        assert [one.tool for one in await history(run.session_id, 2)] == ["fail", "add"]
        assert len(await history(run.session_id, 1000, tool="add")) == 120
        [failed] = await history(run.session_id, state="error")
        assert "no" in failed.error
        assert await history(run.session_id, tool="none") == []
        with pytest.raises(UsageError):
            await history(run.session_id, 0)
        with pytest.raises(UsageError):
            await history(run.session_id, state="complete")
        with pytest.raises(NotFound):
            await history("ses_none")


def test_the_blocking_client_has_it_too(tmp_path):
    with Client(tmp_path) as client:
        called = client.tools.call("calculator", {"operation": "multiply", "a": 6, "b": 7})
        [one] = client.get_execution_history(called.run.session_id)
    assert (one.tool, one.state, one.output) == ("calculator", "completed", "42")


async def test_executions_from_elsewhere_are_kept_with_their_message(tmp_path):
    async with open_run(tmp_path) as run:
        sessions = await run.client.sessions.manager()
        session = await run.client.create_session("other")
        message = await run.client.add_message(session.id, "assistant", "calling")
        tracker = ToolExecutionTracker(sessions)
        one = ToolExecution(
            id="exec_1",
            session_id=session.id,
            message_id=message.id,
            tool="calculator",
            state="running",
            args={"a": 5},
            time_start=1.0,
            tool_version="1.0.0",
            source_hash="abc",
            metadata={"host": "there"},
        )
        await tracker.persist_execution(session.id, message.id, "calculator", one)
        assert await tracker.get_execution_history(session.id) == [one]


async def test_the_layout_export_has_one_file_per_call_and_safe_names(tmp_path):
    async with open_run(tmp_path, add, registry=builtin_tools().child([add])) as run:
        await run.call_all(ToolPart(call_id="../../evil", tool="add", input={"a": 1, "b": 1}))
        inner = [{"tool": "add", "parameters": {"a": 2, "b": 2}}]
        await run.call_all(ToolPart(call_id="c1", tool="batch", input={"tool_calls": inner}))
        await run.turn.flush()
        await run.client.storage.export_layout(tmp_path / "out")
        folder = tmp_path / "out" / "storage" / "tool_execution" / run.session_id
        files = {path.name: json.loads(path.read_bytes()) for path in folder.iterdir()}
    assert {"c1.json", "c1.1.json"} < set(files)
    assert files["c1.1.json"]["output"] == "4"
    assert files["c1.json"]["session_id"] == run.session_id
    assert len(files) == 3
    assert {"id", "message_id", "tool", "state", "args", "time_start", "time_end"} <= set(
        files["c1.1.json"]
    )


def test_a_call_by_hand_stays_below_the_policies(tmp_path):
    (tmp_path / "policies").mkdir()
    rule = "rules: [{permission: calculator, action: deny}]\n"
    (tmp_path / "policies" / "tools.yaml").write_text(rule)
    settings = load_settings(overrides={"policies.dir": tmp_path / "policies"}).settings
    with Client(tmp_path / "state", settings=settings) as client:
        called = client.tools.call("calculator", {"operation": "add", "a": 1, "b": 1})
    assert called.part.state == "error"
