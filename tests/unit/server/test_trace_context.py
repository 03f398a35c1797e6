"""W3C Trace Context: a run goes on in the trace of who asked for it, in every process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from served import Running, running

from holdfast import Agent
from holdfast.observability import make_span_id, make_trace_id, parse_traceparent
from holdfast.runtime.trace_spans import build_trace
from holdfast.testing import ScriptedModel, tool_call

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ANYTHING = {"permission": "*", "action": "allow"}
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (GIVEN, True),
        (f"cc-{TRACE}-{SPAN}-00", True),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (GIVEN.upper(), False),
        (f"{GIVEN}\n", False),
        (f"{GIVEN}-more", False),
        ("", False),
    ],
)
def test_only_what_the_standard_allows_is_a_place_in_a_trace(text: str, is_one: bool) -> None:
    assert (parse_traceparent(text) is not None) == is_one


async def make_trace(server: Running, run_id: str) -> tuple[str, bytes]:
    runtime = server.app.runtimes.operator
    run = await runtime.turns.get(run_id)
    trace = await build_trace(runtime.journal, run, tenant="default")
    return trace.trace_id.hex(), trace.parent


async def test_a_run_keeps_the_trace_of_its_request_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        asked = {"user_message": "What is 15 times 23?"}
        own, other, wrong = await asyncio.gather(
            *(
                server.ask("POST", "/v1/runs/wait", asked, headers=headers)
                for headers in ({"traceparent": GIVEN}, {}, {"traceparent": "00-nonsense"})
            )
        )
    async with running(tmp_path) as again:
        assert await make_trace(again, own[1]["run_id"]) == (TRACE, bytes.fromhex(SPAN))
        for one in (other, wrong):
            expected = (make_trace_id(one[1]["run_id"]).hex(), b"")
            assert await make_trace(again, one[1]["run_id"]) == expected


async def test_a_run_below_another_one_is_in_its_trace(tmp_path: Path) -> None:
    child = Agent("child", model=ScriptedModel("done"), description="Does it.", mode="subagent")
    answers = (tool_call("task", prompt="do it", subagent_type="child"), "over")
    parent = Agent("parent", model=ScriptedModel(*answers), permission=[ANYTHING])
    async with running(tmp_path, agents=[parent, child]) as server:
        asked = {"agent_name": "parent", "user_message": "go"}
        headers = {"traceparent": GIVEN}
        status, found = await server.ask("POST", "/v1/runs/wait", asked, headers=headers)
        assert (status, found["status"]) == (200, "completed"), found
        _, runs = await server.ask("GET", "/v1/runs")
        ids = [one["id"] for one in runs["items"]]
        assert found["run_id"] in ids
        assert {(await make_trace(server, one))[0] for one in ids} == {TRACE}


async def test_a_webhook_tells_the_trace_of_its_run(tmp_path: Path) -> None:
    from receiver import receiving  # noqa: PLC0415 - that of the webhooks' tests

    async with (
        receiving() as receiver,
        running(tmp_path, webhook_networks=["127.0.0.0/8"]) as server,
    ):
        status, _ = await server.ask("POST", "/v1/webhooks", {"url": receiver.url})
        assert status == 201
        asked = {"user_message": "What is 15 times 23?"}
        _, done = await server.ask("POST", "/v1/runs/wait", asked, headers={"traceparent": GIVEN})
        [(headers, _)] = await receiver.wait_for(1)
        run_id = done["run_id"]
        span = make_span_id(run_id, f"run:{run_id}").hex()
        assert headers["traceparent"] == f"00-{TRACE}-{span}-01"
