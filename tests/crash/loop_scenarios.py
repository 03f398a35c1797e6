"""What is killed: a loop with two steps, each with two checks and a review.

The reviewer sends the first step back once, so that a retry is crossed by kills as well.
Outside the state directory stand the workspace that the executor writes to, and a ledger with one
line per effect, written and synced: what was done, by whom, how often.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.orchestration.loop import LoopAgents, LoopLimits, LoopSetup
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools import ToolContext

LEASE_S = 0.2
RUN = "job"
NOT_YET = "say that it is better"
PLAN = {
    "steps": [
        {
            "id": name,
            "title": f"Write {name}",
            "instruction": f"Write {name}.",
            "depends_on": before,
            "checks": [
                {"kind": "file_contains", "path": f"{name}.txt", "text": "good"},
                {"kind": "function", "function": "count"},
            ],
        }
        for name, before in (("one", []), ("two", ["one"]))
    ]
}


def ledger(directory: str) -> list[list[str]]:
    path = f"{directory}.ledger"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def enter(directory: str, *words: str) -> None:
    handle = os.open(f"{directory}.ledger", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(handle, json.dumps(words).encode() + b"\n")
    os.fsync(handle)
    os.close(handle)


def verdict_on(asked: str) -> dict[str, str]:
    """Accept anything but the first attempt at the first step."""
    if "Write one" in asked and "better" not in asked:
        return {"verdict": "retry", "reason": NOT_YET}
    return {"verdict": "accept", "reason": "it is good"}


def options(directory: str) -> LoopSetup:
    place = Path(f"{directory}.work")

    @tool(effect="idempotent")
    async def put(name: str, text: str, context: ToolContext) -> str:
        """Write a file; the same call again changes nothing."""
        if all(words[3] != context.idempotency_key for words in ledger(directory)):
            enter(directory, "put", name, text, context.idempotency_key)
        (place / f"{name}.txt").write_text(text)
        return "written"

    def answer(request: ModelRequest):
        names = (request.output_schema or {}).get("properties", {})
        asked = [message.text for message in request.messages if message.role == "user"][-1]
        if "steps" in names:
            return json.dumps(PLAN)
        if "verdict" in names:
            return json.dumps(verdict_on(asked))
        text = "good and better" if NOT_YET in asked else "good"
        if request.messages[-1].role == "tool":
            return f"I wrote it: {text}."
        name = "one" if asked.startswith("Write one") else "two"
        return tool_call("put", name=name, text=text)

    def count(evidence) -> bool:
        return bool(evidence.answer)

    model = FunctionModel(answer)
    allow = [{"permission": "*", "action": "allow"}]
    return LoopSetup(
        agents=LoopAgents(
            planner=Agent("planner", model=model, allowed_tools=["read"]),
            executor=Agent("executor", model=model, tools=[put], permission=allow),
            reviewer=Agent("reviewer", model=model, allowed_tools=["read"]),
        ),
        limits=LoopLimits(max_replans=0),
        functions={"count": count},
    )


def run_loop(directory: str) -> None:
    asyncio.run(_run(directory))


async def _run(directory: str) -> None:
    work = Path(f"{directory}.work")
    work.mkdir(exist_ok=True)
    overrides = {"sessions.lease_ttl_s": LEASE_S, "workspace": str(work)}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(directory, settings=settings) as client:
        report = await client.loops.run("Write both", run_id=RUN, options=options(directory))
        assert report.outcome == "done", report


async def check(directory: Path) -> None:
    """Nothing that was done is done again, and the report is what it would have been."""
    written = [words[:3] for words in ledger(str(directory))]
    assert written == [
        ["put", "one", "good"],
        ["put", "one", "good and better"],
        ["put", "two", "good"],
    ]
    overrides = {"workspace": f"{directory}.work"}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(directory, settings=settings) as client:
        assert await client.audit.verify() == []
        report = await client.loops.report(RUN)
        state = await client.loops.state(RUN)
        news = await client.loops.replay(RUN)
    assert report.outcome == "done"
    assert [(s.id, s.status, s.attempts, s.verdict, s.answer) for s in report.steps] == [
        ("one", "done", 2, "accept", "I wrote it: good and better."),
        ("two", "done", 1, "accept", "I wrote it: good."),
    ]
    assert [(f.path, f.change, f.added, f.removed) for f in report.files] == [
        ("one.txt", "added", 1, 0),
        ("two.txt", "added", 1, 0),
    ]
    assert [len(step.attempts) for step in state.steps.values()] == [2, 1]
    kinds = [one.fact.kind for one in news if one.fact is not None]
    for kind, number in (("plan.created", 1), ("step.started", 3), ("step.worked", 3)):
        assert kinds.count(kind) == number, kinds
    for kind, number in (("step.checked", 3), ("step.reviewed", 3), ("loop.reported", 1)):
        assert kinds.count(kind) == number, kinds
    assert (directory / f"run-{RUN}.jsonl").exists()
    kept = json.loads((directory / "reports" / f"run-{RUN}.json").read_text())
    assert kept == report.to_json()
