"""Agents and records that a dashboard can show: also what the screenshots are taken of."""

from __future__ import annotations

import asyncio
from typing import Any

from served import Running

from holdfast import Agent, tool
from holdfast.messages import TokenUsage
from holdfast.providers import ModelRequest
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


@tool(permission="ask")
def deploy(service: str, version: str) -> str:
    """Put a version of a service into production."""
    return f"{service} {version} is live; 3 of 3 instances answer"


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


def make_agents() -> list[Agent]:
    """Return agents whose model follows a script."""
    model = FunctionModel(answer)
    own = [deploy, check_health, read_ticket, search_logs]
    return [
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


async def ask_agent(server: Running, message: str, agent: str = "releaser", **more: Any) -> Any:
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
    await asyncio.sleep(0)
    return kept
