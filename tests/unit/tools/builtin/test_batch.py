"""Several calls at once: each through the gate, one result per call."""

from __future__ import annotations

import asyncio

import pytest
from run_kit import open_run

from holdfast.errors import SandboxFailed
from holdfast.messages import ToolPart
from holdfast.tools import Parked, ToolResult, tool
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.builtin.batch import batch
from holdfast.tools.events import NestedCallEnded, ToolAnswered, ToolStarted


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def fail() -> str:
    """Fail."""
    raise ValueError("boom")


def calls(*pairs):
    return [{"tool": name, "parameters": parameters} for name, parameters in pairs]


def open_batch(tmp_path, *tools, **options):
    registry = builtin_tools().child([add, fail, *tools])
    return open_run(tmp_path, registry=registry, **options)


async def test_success_is_success_and_failure_is_failure(tmp_path):
    """The ancestor had this the wrong way round."""
    async with open_batch(tmp_path) as run:
        good = await run.call("batch", tool_calls=calls(("add", {"a": 1, "b": 2})))
        bad = await run.call("batch", tool_calls=calls(("fail", {})))
    assert (good.state, good.metadata["succeeded"], good.metadata["failed"]) == ("completed", 1, 0)
    assert (bad.state, bad.metadata["succeeded"], bad.metadata["failed"]) == ("error", 0, 1)
    assert "boom" in bad.error


async def test_one_result_per_call_in_order_and_a_failure_hides_nothing(tmp_path):
    async with open_batch(tmp_path) as run:
        part = await run.call(
            "batch",
            tool_calls=calls(
                ("add", {"a": 1, "b": 1}),
                ("fail", {}),
                ("add", {"a": "x"}),
                ("no_such_tool", {}),
                ("batch", {"tool_calls": []}),
                ("write", {"path": "a.txt", "content": "x"}),
                ("add", {"a": 2, "b": 2}),
            ),
        )
    assert part.state == "completed"
    assert part.title == "2 of 7 calls succeeded"
    states = [call["state"] for call in part.metadata["calls"]]
    assert states == ["completed", "error", "error", "error", "error", "error", "completed"]
    assert part.output.index("[1/7] add: done\n2") < part.output.index("[7/7] add: done\n4")
    assert "cannot contain a batch" in part.output
    assert not (tmp_path / "a.txt").exists()


async def test_calls_run_at_the_same_time(tmp_path):
    both = asyncio.Barrier(2)

    @tool(effect="read")
    async def meet() -> str:
        """Wait for the other."""
        await asyncio.wait_for(both.wait(), 10)
        return "met"

    async with open_batch(tmp_path, meet) as run:
        part = await run.call("batch", tool_calls=calls(("meet", {}), ("meet", {})))
    assert part.metadata["succeeded"] == 2


async def test_every_inner_call_has_its_intent_and_its_result_in_the_journal(tmp_path):
    @tool(effect="unsafe")
    async def charge(amount: int) -> str:
        """Charge."""
        return f"charged {amount}"

    async with open_batch(tmp_path, charge) as run:
        inner = calls(("charge", {"amount": 1}), ("add", {"a": 1, "b": 1}))
        await run.call_all(ToolPart(call_id="c", tool="batch", input={"tool_calls": inner}))
        facts = await run.facts()
        history = await run.client.get_execution_history(run.session_id)
    assert [f.intent.call_id for f in facts if isinstance(f, ToolStarted)] == ["c.1"]
    ended = {f.call_id: f.part.output for f in facts if isinstance(f, NestedCallEnded)}
    assert ended == {"c.1": "charged 1", "c.2": "2"}
    assert [one.id for one in history] == ["c.2", "c.1", "c"] or [one.id for one in history] == [
        "c.1",
        "c.2",
        "c",
    ]


async def test_a_batch_that_was_interrupted_repeats_nothing_that_ended(tmp_path):
    done = []

    @tool(effect="unsafe")
    async def charge(amount: int) -> str:
        """Charge."""
        done.append(amount)
        return f"charged {amount}"

    @tool(effect="idempotent")
    async def ask() -> Parked:
        """Ask somebody."""
        return Parked(reason="question", request={"q": "?"})

    async with open_batch(tmp_path, charge, ask) as run:
        inner = calls(("charge", {"amount": 1}), ("ask", {}))
        asked = await run.ask(ToolPart(call_id="c", tool="batch", input={"tool_calls": inner}))
        [parked] = await run.manager.execute_all(asked)
        assert (parked.reason, done) == ("question", [1])
        [parked] = await run.manager.execute_all(asked, records=await run.records())
        assert (parked.reason, done) == ("question", [1])
        answered = ToolAnswered(call_id="c.2", answered_by="ann", result=ToolResult("yes"))
        await run.turn.append(answered)
        [part] = await run.manager.execute_all(asked, records=await run.records())
        assert (part.state, part.metadata["succeeded"], done) == ("completed", 2, [1])
        assert "yes" in part.output


async def test_outside_a_run_it_refuses(context):
    values = batch.validate({"tool_calls": calls(("add", {}))})
    with pytest.raises(SandboxFailed):
        await batch.call(values, context)
