"""What surrounds a call is the same for every kind of run.

Taint labels, state, grants, hooks, budgets, redaction, events, parking: each was forgotten by
some kind when each put the surroundings of its calls together by itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kinds_of_run import (
    KINDS,
    Kind,
    World,
    agent,
    answer_all,
    batch_of,
    exceeded,
    flow_of,
    loop_check,
    loop_of,
    run_agent,
    run_loop,
    run_workflow,
    workflow_step,
    write_line,
)

from holdfast.hooks import Cancel, HookPayload
from holdfast.orchestration.workflows import Workflow
from holdfast.policy.budgets import Budget
from holdfast.runtime.trace_spans import build_trace
from holdfast.testing import tool_call
from holdfast.tools.gate import AutoConfirm

FREE = [kind for kind in KINDS if kind.is_free]
"""Kinds that call any tool: the checks of a loop neither send anything nor keep state."""

DIARY, NEWS, LETTER = tool_call("diary"), tool_call("news"), tool_call("post", text="hello")
CAREFUL = tool_call("careful", name="a")
SECRET = "sk-" + "Ab3dEf6h" * 6

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_free_kind = pytest.mark.parametrize("kind", FREE, ids=lambda kind: kind.name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- the three holes ------------------------------------------------------------------


async def test_a_workflow_resumed_elsewhere_after_private_and_untrusted_asks_before_egress(
    world: World,
) -> None:
    calls = [DIARY, NEWS, CAREFUL, LETTER]
    async with world.open() as first:
        assert await workflow_step(first, calls, None) == "parked"
        assert await answer_all(first) == ["careful"]
    async with world.open() as other:
        assert await workflow_step(other, calls, None) == "parked"
        [asked] = await other.approvals.list()
    assert (asked.permission, world.sent) == ("egress", [])


async def test_state_set_in_a_workflow_step_is_there_after_a_resume(world: World) -> None:
    calls = [tool_call("keep_value", value="42"), CAREFUL, tool_call("find_value")]
    async with world.open() as first:
        assert await workflow_step(first, calls, None) == "parked"
        await answer_all(first)
    async with world.open() as other:
        assert await workflow_step(other, calls, None) == "completed"
    assert world.recalled == ["42"]


async def test_a_guard_that_cancels_every_tool_is_asked_about_loop_checks_and_they_do_not_run(
    world: World,
) -> None:
    asked: list[object] = []

    def refuse(call: HookPayload) -> Cancel:
        asked.append(getattr(call, "arguments", {}))
        return Cancel("not today")

    async with world.open() as client:
        client.approver = AutoConfirm()
        client.hooks.on("tool.before_execution", refuse)
        ended = await loop_check(client, [write_line("a")], None)
    assert [call["command"] for call in asked] == ["echo a >> log.txt"]  # type: ignore[index]
    assert (ended, world.lines()) == ("failed", [])


# --- taint labels ---------------------------------------------------------------------


@every_free_kind
async def test_whoever_read_private_and_untrusted_things_asks_before_egress(
    world: World, kind: Kind
) -> None:
    async with world.open() as client:
        assert await kind.run(client, DIARY, NEWS, LETTER) == "parked"
        assert (await answer_all(client), world.sent) == (["egress"], [])
        assert await kind.run(client, DIARY, NEWS, LETTER) == "completed"
    assert world.sent == ["hello"]


@every_free_kind
@pytest.mark.parametrize("read", [DIARY, NEWS], ids=["private", "untrusted"])
async def test_whoever_read_only_one_of_them_asks_nobody(
    world: World, kind: Kind, read: object
) -> None:
    async with world.open() as client:
        assert await kind.run(client, read, LETTER) == "completed"  # type: ignore[arg-type]
    assert world.sent == ["hello"]


@every_free_kind
async def test_labels_are_there_after_another_client_resumed_the_run(
    world: World, kind: Kind
) -> None:
    calls = [DIARY, NEWS, CAREFUL, LETTER]
    async with world.open() as first:
        assert await kind.run(first, *calls) == "parked"
        assert await answer_all(first) == ["careful"]
    async with world.open() as second:
        assert await kind.run(second, *calls) == "parked"
        assert (await answer_all(second), world.done, world.sent) == (["egress"], ["a"], [])
    async with world.open() as third:
        assert await kind.run(third, *calls) == "completed"
    assert (world.done, world.sent) == (["a"], ["hello"])


async def test_an_agents_step_begins_with_what_the_steps_before_it_had_read(world: World) -> None:
    flow = flow_of([DIARY, NEWS]).step("send", agent=agent("worker", [LETTER]), message="go")
    async with world.open() as client:
        assert await run_workflow(client, flow, None) == "parked"
        assert (await answer_all(client), world.sent) == (["egress"], [])


async def test_a_step_that_follows_an_agents_has_read_what_the_agent_had_read(
    world: World,
) -> None:
    inner = Workflow("inner").step("look", agent=agent("worker", [DIARY]), message="go")
    flow = flow_of([NEWS]).step("ask", workflow=inner)
    flow = flow.step("send", tool="post", args={"text": "${steps.ask.output}"})
    async with world.open() as client:
        assert await run_workflow(client, flow, None) == "parked"
        assert (await answer_all(client), world.sent) == (["egress"], [])


async def test_later_steps_of_a_loop_have_read_what_the_earlier_ones_had(world: World) -> None:
    asks = {"a": [DIARY], "b": [NEWS, LETTER]}
    async with world.open() as client:
        assert await run_loop(client, loop_of(asks)) == "parked"
        assert (await answer_all(client), world.sent) == (["egress"], [])


# --- state and grants -----------------------------------------------------------------


@every_free_kind
async def test_state_is_there_after_another_client_resumed_the_run(
    world: World, kind: Kind
) -> None:
    calls = [tool_call("keep_value", value="42"), CAREFUL, tool_call("find_value")]
    async with world.open() as first:
        assert await kind.run(first, *calls) == "parked"
        await answer_all(first)
    async with world.open() as second:
        assert await kind.run(second, *calls) == "completed"
    assert (world.recalled, world.done) == (["42"], ["a"])


@every_free_kind
async def test_granted_directories_are_in_reach_after_another_client_resumed_the_run(
    world: World, kind: Kind, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("from outside")
    granted = tool_call("externaldirectory", path=str(outside))
    calls = [granted, CAREFUL, tool_call("read", file_path=str(outside / "a.txt"))]
    seen: list[str] = []
    async with world.open() as first:
        assert await kind.run(first, *calls) == "parked"
        assert await answer_all(first) == ["externaldirectory"]
        assert await kind.run(first, *calls) == "parked"
        assert await answer_all(first) == ["careful"]
    async with world.open() as second:
        second.hooks.on("tool.after_execution", lambda done: seen.append(done.output))
        assert await kind.run(second, *calls) == "completed"
    assert any("from outside" in output for output in seen)


# --- hooks and events -----------------------------------------------------------------


@every_kind
async def test_a_guard_that_cancels_a_tool_is_asked_and_the_tool_does_not_run(
    world: World, kind: Kind
) -> None:
    asked: list[str] = []

    def refuse(call: HookPayload) -> Cancel | None:
        tool = getattr(call, "tool", "")
        asked.append(tool)
        return Cancel("not today") if tool == "bash" else None

    async with world.open() as client:
        client.approver = AutoConfirm()
        client.hooks.on("tool.before_execution", refuse)
        await kind.run(client, write_line("a"))
    assert asked.count("bash") == 1
    assert world.lines() == []


@every_kind
async def test_a_guard_of_the_client_that_resumes_is_asked_about_the_call_that_waited(
    world: World, kind: Kind
) -> None:
    async with world.open() as first:
        assert await kind.run(first, write_line("a")) == "parked"
        assert await answer_all(first) == ["bash"]
    async with world.open() as second:
        second.hooks.on(
            "tool.before_execution",
            lambda call: Cancel("not today") if call.tool == "bash" else None,
        )
        await kind.run(second, write_line("a"))
    assert world.lines() == []


@every_kind
async def test_all_hooks_of_tools_are_asked(world: World, kind: Kind) -> None:
    seen: list[str] = []

    def note(payload: HookPayload) -> None:
        if getattr(payload, "tool", "") == "bash":
            seen.append(payload.point)

    async with world.open() as client:
        client.approver = AutoConfirm()
        points = ("tool.before_execution", "tool.validation", "tool.after_execution", "tool.error")
        for point in points:
            client.hooks.on(point, note)
        await kind.run(client, write_line("a"), tool_call("bash", command="exit 3"))
    begins = ["tool.before_execution", "tool.validation"]
    assert seen == [*begins, "tool.after_execution", *begins, "tool.error"]


@every_kind
async def test_hooks_change_the_arguments_of_a_call(world: World, kind: Kind) -> None:
    def change(call: HookPayload) -> object:
        if getattr(call, "tool", "") != "bash":
            return None
        return call.modify(arguments={"command": "echo changed >> log.txt"})

    async with world.open() as client:
        client.approver = AutoConfirm()
        client.hooks.on("tool.before_execution", change)
        await kind.run(client, write_line("a"))
    assert world.lines() == ["changed"]


@every_kind
async def test_subscribers_hear_that_a_tool_is_executing(world: World, kind: Kind) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with world.open() as client:
        client.approver = AutoConfirm()

        async def hear(event: object) -> None:
            if event.data["tool"] == "bash":  # type: ignore[attr-defined]
                heard.put_nowait(event)

        await client.events.subscribe("tool.executing", hear)
        assert await kind.run(client, write_line("a")) == "completed"
        event = await asyncio.wait_for(heard.get(), 10)
    assert event.data["call_id"]  # type: ignore[attr-defined]
    assert heard.empty()


# --- budgets --------------------------------------------------------------------------


@every_kind
async def test_a_call_that_does_not_fit_the_budget_is_not_made(world: World, kind: Kind) -> None:
    async with world.open() as client:
        client.approver = AutoConfirm()
        await kind.run(client, write_line("a"), write_line("b"), most_calls=1)
        assert (await exceeded(client), world.lines()) == (True, ["a"])


@every_kind
async def test_what_was_spent_before_counts_after_another_client_resumed_the_run(
    world: World, kind: Kind
) -> None:
    calls = [write_line("a"), write_line("b"), write_line("c")]
    async with world.open() as first:
        assert await kind.run(first, *calls, most_calls=2) == "parked"
        await answer_all(first)
        assert await kind.run(first, *calls, most_calls=2) == "parked"
        await answer_all(first)
    async with world.open() as second:
        second.approver = AutoConfirm()
        await kind.run(second, *calls, most_calls=2)
        assert (await exceeded(second), world.lines()) == (True, ["a", "b"])


@pytest.mark.parametrize("limited", ["session", "run"])
async def test_calls_inside_a_batch_count_after_another_client_resumed_the_run(
    world: World, limited: str
) -> None:
    first, last = batch_of("a", "b", "c"), batch_of("d", "e", "f")
    rules = [{"permission": "bash", "action": "allow"}]
    budget = Budget(max_tool_calls=6)  # the first batch with its three, `careful`, the last batch
    worker = agent(
        "worker",
        [first, CAREFUL, last],
        permission=rules,
        budget=budget if limited == "run" else None,
    )
    limit = 6 if limited == "session" else None
    async with world.open() as one:
        assert await run_agent(one, worker, limit) == "parked"
        await answer_all(one)
    async with world.open() as other:
        await run_agent(other, worker, limit)
        assert await exceeded(other)
    assert (sorted(world.lines()), world.done) == (["a", "b", "c"], ["a"])


@every_kind
async def test_the_limit_of_the_settings_holds(world: World, kind: Kind) -> None:
    async with world.open(**{"budget.max_tool_calls": kind.spent_on(1)}) as client:
        client.approver = AutoConfirm()
        await kind.run(client, write_line("a"), write_line("b"))
        assert (await exceeded(client), world.lines()) == (True, ["a"])


# --- secrets --------------------------------------------------------------------------


@every_kind
async def test_a_secret_that_a_tool_returns_is_not_stored(world: World, kind: Kind) -> None:
    (world.workspace / "key.txt").write_text(f"before {SECRET} after-the-key")
    async with world.open() as client:
        client.approver = AutoConfirm()
        ended = await kind.run(client, tool_call("bash", command="cat key.txt"))
        assert ended == "completed"
        # Looked at while the log of the database is still there.
        stored = [path.read_bytes() for path in world.state.rglob("*") if path.is_file()]
    assert any(b"after-the-key" in data for data in stored)
    assert not any(SECRET.encode() in data for data in stored)


# --- parking --------------------------------------------------------------------------


@every_kind
async def test_a_call_that_waited_is_made_once_by_whoever_resumes_the_run(
    world: World, kind: Kind
) -> None:
    async with world.open() as first:
        assert await kind.run(first, write_line("a")) == "parked"
        assert await kind.run(first, write_line("a")) == "parked"
        assert world.lines() == []
    async with world.open() as second:
        assert await answer_all(second) == ["bash"]
        assert await kind.run(second, write_line("a")) == "completed"
        assert await kind.run(second, write_line("a")) == "completed"
    async with world.open() as third:
        assert await kind.run(third, write_line("a")) == "completed"
    assert world.lines() == ["a"]


@every_kind
async def test_a_call_that_was_refused_while_it_waited_is_never_made(
    world: World, kind: Kind
) -> None:
    async with world.open() as first:
        assert await kind.run(first, write_line("a")) == "parked"
        [asked] = await first.approvals.list()
        await first.approvals.deny(asked.id, by="ada")
    async with world.open() as second:
        second.approver = AutoConfirm()
        assert await kind.run(second, write_line("a")) != "parked"
    assert world.lines() == []


@every_kind
async def test_every_call_of_every_kind_of_run_is_a_line_of_the_audit(
    world: World, kind: Kind
) -> None:
    async with world.open() as client:
        client.approver = AutoConfirm()
        assert await kind.run(client, write_line("a")) == "completed"
        calls = await client.audit.list(action="tool.call", limit=1000)
        assert await client.audit.verify_trail() == []
    [call] = [one for one in calls if one.tool == "bash"]
    assert (call.outcome, bool(call.run_id)) == ("completed", True)
    assert (call.tool_version, len(call.source_hash)) == ("1.0.0", 64)


@every_kind
async def test_every_kind_of_run_is_one_trace_without_orphans(world: World, kind: Kind) -> None:
    async with world.open() as client:
        client.approver = AutoConfirm()
        assert await kind.run(client, write_line("a")) == "completed"
        journal = await client.storage.journal()
        runs = await client.runs.list()
        below = {child.id for run in runs for child in await client.runs.children(run.id)}
        [root] = [run for run in runs if run.id not in below]
        trace = await build_trace(journal, root, tenant="default")
    keys = [span.key for span in trace.spans]
    assert len(set(keys)) == len(keys)
    assert [span.parent for span in trace.spans].count("") == 1
    assert all(span.parent in keys for span in trace.spans[1:])
    assert all(0 < span.start <= span.end for span in trace.spans)
    assert "execute_tool bash" in {span.name for span in trace.spans}
    # All runs of the family are in it.
    assert {key for key in keys if key.startswith("run:")} == {f"run:{run.id}" for run in runs}
