"""Agents and records that a dashboard can show: also what the screenshots are taken of."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from typing import Any
from urllib.parse import urlencode

from served import Running

from holdfast import Agent, tool
from holdfast.messages import TokenUsage
from holdfast.providers import ModelInfo, ModelRequest
from holdfast.testing import FunctionModel, ModelReply, tool_call

EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
RELEASE_NOTES = """Version **2.4.1** is out.

| service | before | after |
|---|---|---|
| checkout | 2.4.0 | 2.4.1 |

```python
assert health("checkout") == "ok"
```
"""
WORKFLOW = """\
name: roll-out
steps:
  - id: check
    agent: releaser
    message: Is the health of the checkout good?
  - id: notes
    needs: [check]
    agent: releaser
    message: Is the health of the search good?
  - id: count
    needs: [check]
    value: 3
  - id: verdict
    needs: [notes, count]
    value: "${steps.count.output} instances"
"""
SKILL = """\
---
name: on-call
description: What to do when a service is slow at night.
---

Look at the health first.
"""


def _draw_picture(width: int = 160, height: int = 90) -> bytes:
    """Return a small PNG: columns that grow."""
    rows = b""
    for y in range(height):
        row = b""
        for x in range(width):
            is_column = x % 20 > 5 and height - y < 10 + x // 20 * 10
            row += b"\x3b\x74\xd9" if is_column else b"\xf6\xf7\xf9"
        rows += b"\0" + row

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


PICTURE = _draw_picture()


@tool(permission="ask")
def deploy(service: str, version: str) -> str:
    """Put a version of a service into production."""
    return f"{service} {version} is live; 3 of 3 instances answer"


class Gate:
    """Holds a tool up until a test opens it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()


GATE = Gate()


@tool
async def stand_by() -> str:
    """Wait for the tide."""
    GATE.begun.set()
    await GATE.opened.wait()
    return "the tide is high"


@tool
def check_health(service: str) -> str:
    """Ask a service whether it is well."""
    return f"{service}: ok, p95 41 ms, 0.02 % errors"


@tool
def read_ticket(number: int) -> str:
    """Return what a customer wrote."""
    return f"Ticket {number}: the checkout is slow. {EVIL}"


@tool
def search_logs(query: str) -> str:
    """Search the logs; the index is not always there."""
    raise RuntimeError(f"the index does not answer {EVIL}")


def answer(request: ModelRequest) -> Any:
    """Speak as the agents of the demo do: by what was asked last."""
    usage = TokenUsage(input=900 + 40 * len(request.messages), output=120, cache_read=300)
    last = request.messages[-1]
    asked = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
    if last.role == "user":
        call = _first_call(asked)
        if call is not None:
            return ModelReply(text="Let me look.", calls=(call,), usage=usage)
    if "fail" in asked:
        return RuntimeError("the model server broke the line")
    if "release" in asked:
        return ModelReply(text=RELEASE_NOTES, usage=usage, reasoning="Short, with a table.")
    if "inject" in asked:
        return ModelReply(
            text=f"You said {EVIL} [click](javascript:alert(1)) ![x](http://evil.example/p.png)",
            usage=usage,
        )
    return ModelReply(text=f"Done: {asked.split(chr(10))[0][:60]}", usage=usage)


def _first_call(asked: str) -> Any:
    if "deploy" in asked:
        return tool_call("deploy", service="checkout", version="2.4.1")
    if "stand by" in asked:
        return tool_call("stand_by")
    if "inject" in asked:
        return tool_call("read_ticket", number=7)
    if "ticket" in asked:
        return tool_call("read_ticket", number=42)
    if "logs" in asked:
        return tool_call("search_logs", query=f"level=error {EVIL}")
    if "health" in asked or "release" in asked:
        return tool_call("check_health", service="checkout")
    if "ask me" in asked:
        questions = [{"question": f"Which region first? {EVIL}", "header": "Region",
                      "options": [{"label": "eu-west", "description": "fewest users"},
                                  {"label": "us-east", "description": "most users"}]}]  # fmt: skip
        return tool_call("question", questions=questions)
    if "rewrite" in asked:
        return tool_call(
            "write", file_path="notes.md", content="# Notes\n\nThe checkout is fast again.\n"
        )
    return None


PLAN = {
    "steps": [
        {"id": "look", "title": "Look at the logs", "instruction": "Read the **logs** of an hour.",
         "checks": [{"kind": "answer_contains", "text": "slow"}]},
        {"id": "mend", "title": "Mend the query", "instruction": f"Add an index. {EVIL}",
         "depends_on": ["look"], "checks": [{"kind": "answer_contains", "text": "index"}]},
        {"id": "tell", "title": "Tell the team", "instruction": "Write a note.",
         "depends_on": ["look"], "checks": [{"kind": "answer_contains", "text": "note"}]},
        {"id": "close", "title": "Close the ticket", "instruction": "Close it.",
         "depends_on": ["mend", "tell"], "checks": [{"kind": "answer_contains", "text": "closed"}]},
    ]
}  # fmt: skip


def plan(request: ModelRequest) -> str:
    """Hand in the plan of the demo."""
    return json.dumps(PLAN)


def work(request: ModelRequest) -> str:
    """Do a step: the first try at the mending is not good enough."""
    asked = "\n".join([one.text for one in request.messages])
    if "Add an index" in asked:
        is_again = "not good enough" in asked or "Checks failed" in asked
        return f"The index is there {EVIL}" if is_again else f"It was hard {EVIL}"
    return "The checkout is slow; a note is written; the ticket is closed."


def review(request: ModelRequest) -> str:
    """Accept whatever passed its checks."""
    return json.dumps({"verdict": "accept", "reason": f"It holds. {EVIL}"})


def make_agents() -> list[Agent]:
    """Return agents whose model follows a script."""
    # The name of a model with a known price, so that there are costs to show.
    model = FunctionModel(answer, info=ModelInfo(provider="openai", model="gpt-4o"))
    own = [deploy, check_health, read_ticket, search_logs, stand_by]
    return [
        Agent("planner", description="Plans the work.", model=FunctionModel(plan)),
        Agent("worker", description="Does one step.", model=FunctionModel(work)),
        Agent("reviewer", description="Judges a step.", model=FunctionModel(review)),
        Agent("releaser", description="Brings versions to production.", model=model, tools=own),
        Agent(
            "writer",
            description="Writes notes, and asks before it does.",
            model=model,
            permission=[
                {"permission": "*", "pattern": "*", "action": "allow"},
                {"permission": "write", "pattern": "*", "action": "ask"},
                {"permission": "edit", "pattern": "*", "action": "ask"},
            ],
        ),
    ]


async def ask_agent(server: Running, message: Any, agent: str = "releaser", **more: Any) -> Any:
    """Run an agent until it ends or waits."""
    body = {"user_message": message, "agent_name": agent, "on_ask": "park", **more}
    status, found = await server.ask("POST", "/v1/runs/wait", body)
    assert status in (200, 502), found
    return found


async def fill(server: Running) -> dict[str, str]:
    """Let agents do what people would see on a busy morning; returns ids by what they are."""
    (server.app.settings.workspace / "notes.md").write_text("# Notes\n\nThe checkout is slow.\n")
    kept: dict[str, str] = {}
    done = await ask_agent(server, "Write the release notes for 2.4.1")
    kept["run"], kept["session"] = done["run_id"], done["session_id"]
    kept |= await fill_shelves(server, kept["session"])
    await ask_agent(server, "Is the health of the checkout good?")
    await ask_agent(server, "Answer ticket 42")
    hurt = await ask_agent(server, f"inject {EVIL}")
    kept["evil"] = hurt["run_id"]
    await ask_agent(server, "Search the logs for errors")
    waits = await ask_agent(server, "Please deploy checkout 2.4.1")
    kept["parked"] = waits["run_id"]
    await ask_agent(server, "rewrite the notes", "writer")
    await ask_agent(server, "ask me where to begin", "writer")
    await ask_agent(server, "fail, please")
    for text in ("The checkout is owned by team Harbour.", f"Customers dislike {EVIL}"):
        await server.ask("POST", "/v1/memory", {"session_id": kept["session"], "content": text})
    return kept


async def fill_shelves(server: Running, session_id: str) -> dict[str, str]:
    """Follow plans, and leave a picture, a file, values, a skill, a workflow and a trigger."""
    kept = {}
    crew = {"planner": "planner", "executor": "worker", "reviewer": "reviewer"}
    body = {"goal": f"Make the checkout fast again {EVIL}", "options": crew}
    status, report = await server.ask("POST", "/v1/loops/wait", body)
    assert report["outcome"] == "done", (status, report)
    kept["loop"] = report["run_id"]
    folder = server.app.settings.workspace / ".holdfast"
    (folder / "workflows").mkdir(parents=True, exist_ok=True)
    (folder / "workflows" / "roll-out.yaml").write_text(WORKFLOW)
    (folder / "skills" / "on-call").mkdir(parents=True, exist_ok=True)
    (folder / "skills" / "on-call" / "SKILL.md").write_text(SKILL)
    status, flow = await server.ask("POST", "/v1/workflows/roll-out/runs", {})
    assert status == 200, flow
    kept["flow"] = flow["run_id"]
    for name, data in (("chart.png", PICTURE), (f"notes {EVIL}.html", EVIL.encode())):
        path = f"/v1/artifacts/content?{urlencode({'name': name, 'session_id': session_id})}"
        async with server.http.post(server.url + path, data=data) as answer:
            assert answer.status == 201, await answer.text()
            kept[name[:5]] = (await answer.json())["id"]
    picture = {"type": "file", "media_type": "image/png", "name": "chart.png",
               "data": base64.b64encode(PICTURE).decode()}  # fmt: skip
    text = {"type": "text", "text": "What does the chart of the health say?"}
    seen = await ask_agent(server, [text, picture])
    kept["picture"] = seen["run_id"]
    value = {"address": "user/on-call", "value": {"name": "Ada", "note": EVIL}}
    assert (await server.ask("PUT", "/v1/state/value", value))[0] == 200
    trigger = {"trigger": {"name": "morning", "at": {"cron": "0 9 * * 1-5"}, "agent": "releaser",
                              "message": "Is the health good?"}}  # fmt: skip
    status, told = await server.ask("POST", "/v1/triggers", trigger)
    assert status == 201, told
    return kept
