"""The one place that executes tools: validated, gated, bounded, recorded."""

from __future__ import annotations

import asyncio

import pytest
from run_kit import open_run

from holdfast.artifacts import ArtifactSaved
from holdfast.errors import ResultNotStored, StorageFull, TellModel
from holdfast.messages import ToolPart
from holdfast.sessions.events import MessagePartUpdated
from holdfast.testing import FakeClock
from holdfast.tools import Parked, ToolContext, ToolRegistry, ToolResult, tool
from holdfast.tools.events import ToolStarted
from holdfast.tools.gate import AutoConfirm, Gate
from holdfast.tools.manager import CallLimits, ToolExecutionManager


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_registry_is_the_one_that_was_passed_in(tmp_path):
    registry = ToolRegistry([add])
    async with open_run(tmp_path, registry=registry) as run:
        assert run.manager.tool_registry is registry
        assert (await run.call("add", a=1, b=2)).output == "3"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (ToolPart(call_id="", tool="ad", input={"a": 1, "b": 1}), "add"),
        (ToolPart(call_id="", tool="x" * 5_000_000), "add"),
        (ToolPart(call_id="", tool="add", input={"a": 1}), "b: Field required"),
        (ToolPart(call_id="", tool="add", input={"a": 1, "b": "2"}), "b: "),
        (ToolPart(call_id="", tool="add", input={"a": 1, "b": 2, "c": 3}), "c: "),
        (ToolPart(call_id="", tool="add", raw_input='{"a": 1,'), "no JSON object"),
    ],
)
async def test_a_call_that_cannot_be_meant_is_told_and_has_no_effect(tmp_path, part, told):
    async with open_run(tmp_path, add) as run:
        [result] = await run.call_all(part)
        assert result.state == "error"
        assert told in result.error
        assert len(result.error) < 40_000
        assert not any(isinstance(fact, ToolStarted) for fact in await run.facts())


async def test_parallel_calls_are_bounded_concurrent_and_in_order(tmp_path):
    at_once, most = 0, 0
    turned = asyncio.Condition()

    @tool(effect="read")
    async def wait(number: int) -> int:
        """Wait until another one is here too."""
        nonlocal at_once, most
        async with turned:
            at_once += 1
            most = max(most, at_once)
            turned.notify_all()
            await turned.wait_for(lambda: most >= 3)
        await asyncio.sleep(0)
        at_once -= 1
        return number

    async with open_run(tmp_path, wait, limits=CallLimits(parallel=3)) as run:
        parts = [ToolPart(call_id="", tool="wait", input={"number": n}) for n in range(9)]
        async with asyncio.timeout(10):
            results = await run.call_all(*parts)
    assert [part.output for part in results] == [str(n) for n in range(9)]
    assert most == 3


async def test_a_failure_says_when_it_began_and_which_tool_it_was(tmp_path):
    clock = FakeClock()

    @tool(effect="read", version="2.1.0")
    async def slow() -> str:
        """Fail after a while."""
        clock.advance(2)
        raise TellModel("not today")

    async with open_run(tmp_path, slow, clock=clock) as run:
        part = await run.call("slow")
    assert (part.state, part.error, part.time_end - part.time_start) == ("error", "not today", 2)
    assert part.metadata == {"tool_version": "2.1.0", "source_hash": slow.source_hash}


async def test_a_call_that_takes_too_long_fails_by_the_lower_limit(tmp_path):
    @tool(effect="read", timeout_s=60)
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    async with open_run(tmp_path, hang, limits=CallLimits(timeout_s=0.01)) as run:
        part = await run.call("hang")
    assert "0.01 s" in part.error


class _Own:
    """Has no JSON form."""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (_Own(), "no JSON form"),
        (ToolResult(output=3), "no text"),  # type: ignore[arg-type]
        (ToolResult("x", metadata={"a": _Own()}), "no JSON form"),
        (ToolResult("x", attachments=("no file",)), "no file parts"),  # type: ignore[arg-type]
    ],
)
async def test_a_result_without_json_form_is_a_failure_of_the_tool(tmp_path, value, told):
    @tool(effect="read")
    async def odd() -> object:
        """Return something odd."""
        return value

    async with open_run(tmp_path, odd, add) as run:
        part = await run.call("odd")
        assert part.state == "error"
        assert told in part.error
        assert (await run.call("add", a=1, b=1)).output == "2"


async def test_half_characters_huge_titles_and_metadata_are_made_fit(tmp_path):
    @tool(effect="read")
    async def odd() -> ToolResult:
        """Return something odd."""
        return ToolResult("a\ud800b", title="t" * 999, metadata={"big": "x" * 300_000})

    async with open_run(tmp_path, odd) as run:
        part = await run.call("odd")
        await run.turn.flush()
    assert (part.output, len(part.title)) == ("a?b", 200)
    assert "left_out" in part.metadata


async def test_a_huge_error_is_cut(tmp_path):
    @tool(effect="read")
    async def fail() -> str:
        """Fail at length."""
        raise ValueError("begin " + "x" * 1_000_000 + "\ud800 end")

    async with open_run(tmp_path, fail, limits=CallLimits(output_chars=300)) as run:
        part = await run.call("fail")
    assert len(part.error) < 400
    assert part.error.endswith("? end")


async def test_long_output_keeps_head_and_tail_and_the_whole_survives_a_restart(tmp_path):
    text = "begin\n" + "line\n" * 50_000 + "end"

    @tool(effect="read")
    async def flood() -> str:
        """Write a lot."""
        return text

    async with open_run(tmp_path, flood, limits=CallLimits(output_chars=1_000)) as run:
        part = await run.call("flood")
        session_id = run.session_id
    assert part.output.startswith("begin\nline")
    assert part.output.endswith("line\nend")
    assert len(part.output) < 1_200
    handle = part.metadata["artifact"]
    assert handle in part.output
    async with open_run(tmp_path) as later:
        data = await later.client.tools.output(session_id, handle)
        assert data.decode() == text


async def test_output_is_not_forgotten_when_it_cannot_be_kept(tmp_path):
    """The disk is full after the effect: the run fails, and the call stays open."""

    @tool(effect="unsafe")
    async def charge() -> str:
        """Charge."""
        return "x" * 5_000

    class Full:
        def __init__(self, turn):
            self.turn = turn

        async def append(self, *payloads, **options):
            if isinstance(payloads[0], ArtifactSaved | MessagePartUpdated):
                raise StorageFull(path="here")
            return await self.turn.append(*payloads, **options)

        def defer(self, *payloads, **options):
            self.turn.defer(*payloads, **options)

    async with open_run(tmp_path, charge) as run:
        recorder = Full(run.turn)
        calls = await run.ask(*[ToolPart(call_id="", tool="charge")] * 2)
        context = run.manager._context
        for limit in (100, 100_000):
            manager = ToolExecutionManager(
                run.manager.tool_registry,
                recorder=recorder,
                context=context,
                limits=CallLimits(output_chars=limit),
            )
            with pytest.raises(ResultNotStored) as caught:
                await manager.execute_all(calls)
            assert caught.value.code == "storage.result_not_stored"
        records = await run.records()
        assert all(records[call.part.call_id].started is not None for call in calls)


async def test_cacheable_reads_are_called_once_per_run_and_arguments(tmp_path):
    calls = []

    @tool(effect="read", cacheable=True)
    async def look(place: str) -> str:
        """Look."""
        calls.append(place)
        if place == "bad":
            raise TellModel("nothing there")
        return place

    async with open_run(tmp_path, look) as run:
        for place in ("a", "b", "a", "bad", "bad"):
            part = await run.call("look", place=place)
            assert (part.output or "bad") == place
    assert calls == ["a", "b", "bad", "bad"]


async def test_intent_is_stored_before_an_effect_and_not_before_a_read(tmp_path):
    async with open_run(tmp_path, add) as run:
        seen = []

        @tool(effect="idempotent")
        async def act(context: ToolContext) -> str:
            """Act."""
            seen.extend(fact for fact in await run.facts() if isinstance(fact, ToolStarted))
            return context.idempotency_key

        run.manager.tool_registry.register(act)
        part = await run.call("act")
        await run.call("add", a=1, b=1)
        facts = await run.facts()
    assert [fact.intent.idempotency_key for fact in seen] == [part.output]
    assert sum(isinstance(fact, ToolStarted) for fact in facts) == 1


async def test_results_of_reads_are_in_the_journal_a_moment_later(tmp_path):
    async with open_run(tmp_path, add) as run:
        journal = await run.client.storage.journal()
        feed = journal.subscribe(patterns=(MessagePartUpdated.kind,))
        seen = asyncio.create_task(anext(feed))
        await asyncio.sleep(0)
        await run.call("add", a=1, b=2)
        event = await asyncio.wait_for(seen, 10)
        assert event.decode().part.output == "3"
        await feed.aclose()


async def test_cancelling_records_the_call_as_cancelled(tmp_path):
    begun = asyncio.Event()

    @tool(effect="unsafe")
    async def work() -> str:
        """Work."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with open_run(tmp_path, work) as run:
        task = asyncio.create_task(run.call("work"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [ended] = [fact for fact in await run.facts() if isinstance(fact, MessagePartUpdated)]
    assert (ended.part.state, ended.part.error) == ("error", "The call was cancelled.")


async def test_a_parked_call_is_still_waiting_when_it_is_looked_at_again(tmp_path):
    @tool(effect="unsafe")
    async def ask() -> Parked:
        """Ask somebody."""
        return Parked(reason="question", request={"q": 1})

    async with open_run(tmp_path, ask) as run:
        calls = await run.ask(ToolPart(call_id="", tool="ask"))
        [parked] = await run.manager.execute_all(calls)
        assert parked.reason == "question"
        [again] = await run.manager.execute_all(calls, records=await run.records())
        assert again == parked


async def test_strict_gate_lets_only_reads_run_without_asking(tmp_path):
    registry = ToolRegistry(scope="built-in")
    done = []

    @tool(effect="unsafe")
    async def act() -> str:
        """Act."""
        done.append(1)
        return "done"

    for one in (act, add):
        registry.register(one)
    async with open_run(tmp_path, registry=registry) as run:
        assert (await run.call("act")).state == "error"
        assert (await run.call("add", a=1, b=1)).state == "completed"
        assert done == []
    async with open_run(tmp_path, registry=registry, gate=Gate(approver=AutoConfirm())) as run:
        assert (await run.call("act")).output == "done"


async def test_a_call_that_was_told_to_stop_stops_no_other(tmp_path):
    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Say whether to stop, then stop."""
        was_cancelled = context.cancellation.is_cancelled
        context.cancellation.cancel()
        return f"{was_cancelled} {context.idempotency_key}"

    async with open_run(tmp_path, look) as run:
        first, second = (await run.call("look")).output, (await run.call("look")).output
        assert first.startswith("False ")
        assert second.startswith("False ")
        assert first != second
