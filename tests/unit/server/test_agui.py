"""Runs as AG-UI events; each event is read by the protocol's own package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter
from served import Running, running

from holdfast import Agent, tool
from holdfast.server.agui.events import make_patch
from holdfast.testing import FunctionModel, ScriptedModel, tool_call
from holdfast.tools import ToolContext

EVENT: Any = TypeAdapter(Event)


@tool(permission="ask")
def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"


@tool(effect="idempotent")
async def count(context: ToolContext) -> str:
    """Count in the shared state."""
    now = int(await context.state.get("count", 0)) + 1
    await context.state.set("count", now)
    return str(now)


def make_input(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "threadId": "thread-1",
        "runId": "run-1",
        "messages": list(messages),
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        **more,
    }


def say(text: Any, id: str = "1") -> dict[str, Any]:
    return {"id": id, "role": "user", "content": text}


async def send(server: Running, body: Any, agent: str = "helper", key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with server.http.post(f"{server.url}/agui/{agent}", json=body, headers=headers) as answer:
        text = await answer.text()
        if answer.status != 200:
            return answer.status, json.loads(text)
        found = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        for one in found:
            EVENT.validate_python(one)
        return found


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in events]


def texts(events: list[dict[str, Any]]) -> str:
    return "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT")


def make_agent(*answers: Any, tools: Any = (erase,)) -> Agent:
    return Agent("helper", model=ScriptedModel(*answers), tools=list(tools))


async def test_a_run_is_told_event_by_event(tmp_path: Path) -> None:
    agent = Agent(
        "helper",
        model=ScriptedModel(tool_call("todoread"), "Hello there."),
        allowed_tools=["todoread"],
    )
    async with running(tmp_path, agents=[agent]) as server:
        events = await send(server, make_input(say("Hi.")))
        assert kinds(events)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
        assert events[0]["threadId"] == "thread-1" and events[0]["runId"] == "run-1"
        calls = [kind for kind in kinds(events) if kind.startswith("TOOL_CALL")]
        assert calls == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
        assert texts(events) == "Hello there."
        assert kinds(events).count("TEXT_MESSAGE_START") == kinds(events).count("TEXT_MESSAGE_END")
        last = events[-1]
        assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "success"})
        assert last["result"] == "Hello there."


@pytest.mark.parametrize("decision", ["approved", "refused", "cancelled"])
async def test_consent_is_an_interrupt_with_which_the_client_comes_back(
    tmp_path: Path, decision: str
) -> None:
    agent = make_agent(tool_call("erase", name="disk"), "It is over.")
    async with running(tmp_path, agents=[agent]) as server:
        events = await send(server, make_input(say("Erase it.")))
        outcome = events[-1]["outcome"]
        [interrupt] = outcome["interrupts"]
        assert (outcome["type"], interrupt["reason"]) == ("interrupt", "tool_approval")
        assert "disk" in interrupt["message"]
        [start] = [one for one in events if one["type"] == "TOOL_CALL_START"]
        assert interrupt["toolCallId"] == start["toolCallId"]
        entry: dict[str, Any] = {"interruptId": interrupt["id"], "status": "resolved"}
        entry["payload"] = {"approved": decision == "approved"}
        if decision == "cancelled":
            entry = {"interruptId": interrupt["id"], "status": "cancelled"}
        more = await send(server, make_input(say("Erase it."), resume=[entry], runId="run-2"))
        assert more[0]["runId"] == "run-2"
        [result] = [one for one in more if one["type"] == "TOOL_CALL_RESULT"]
        assert (result["content"] == "erased disk") == (decision == "approved")
        assert texts(more) == "It is over."
        again = await send(server, make_input(resume=[entry]))
        assert again[0] in (404, 409)


async def test_tools_of_the_interface_are_executed_there(tmp_path: Path) -> None:
    agent = make_agent(tool_call("paint", colour="red"), "Painted.", tools=[])
    paint = {
        "name": "paint",
        "description": "Paint the page",
        "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}},
    }
    async with running(tmp_path, agents=[agent]) as server:
        events = await send(server, make_input(say("Paint."), tools=[paint]))
        [start] = [one for one in events if one["type"] == "TOOL_CALL_START"]
        id = start["toolCallId"]
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [id]}
        call = {"id": id, "type": "function", "function": {"name": "paint", "arguments": "{}"}}
        asked = {"id": "2", "role": "assistant", "content": "", "toolCalls": [call]}
        done = {"id": "3", "role": "tool", "toolCallId": id, "content": "It is red."}
        more = await send(server, make_input(say("Paint."), asked, done, tools=[paint]))
        assert texts(more) == "Painted."


async def test_state_is_shared_both_ways(tmp_path: Path) -> None:
    agent = make_agent(tool_call("count"), "Counted.", tools=[count])
    async with running(tmp_path, agents=[agent]) as server:
        events = await send(server, make_input(say("Count."), state={"count": 4, "name": "Ada"}))
        [snapshot] = [one for one in events if one["type"] == "STATE_SNAPSHOT"]
        assert snapshot["snapshot"] == {"count": 4, "name": "Ada"}
        [delta] = [one for one in events if one["type"] == "STATE_DELTA"]
        assert delta["delta"] == [{"op": "replace", "path": "/count", "value": 5}]


async def test_conversation_and_context_come_along(tmp_path: Path) -> None:
    model = FunctionModel(lambda request: "Seen.")
    agent = Agent("helper", model=model, tools=[])
    pixel = {"type": "data", "value": "aGk=", "mimeType": "image/png"}
    async with running(tmp_path, agents=[agent]) as server:
        await send(
            server,
            make_input(
                say("My name is Ada."),
                {"id": "2", "role": "reasoning", "content": "hidden thoughts"},
                {"id": "3", "role": "assistant", "content": "Hello Ada."},
                say([{"type": "text", "text": "Look."}, {"type": "image", "source": pixel}], "4"),
                context=[{"description": "The page", "value": "/settings"}],
            ),
        )
        [request] = model.requests
        told = [one.text for one in request.messages if one.role != "system"]
        assert told == ["My name is Ada.", "Hello Ada.", "Look."]
        assert "The page: /settings" in str(request)


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ([], 400),
        (make_input(), 400),
        (make_input(say("x"), state=[]), 400),
        (make_input(say("x"), tools=[{"description": "no name"}]), 400),
        (make_input(say("x"), threadId=""), 400),
        (make_input(resume=[{"interruptId": "x", "status": "resolved"}]), 400),
        (make_input(resume=[{"interruptId": "run_x.y", "status": "resolved"}]), 404),
        (make_input({"id": "1", "role": "tool", "toolCallId": "z", "content": "x"}), 400),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_begins(
    tmp_path: Path, wrong: Any, status: int
) -> None:
    async with running(tmp_path, agents=[make_agent("Never.")]) as server:
        refused = await send(server, wrong)
        assert refused[0] == status, refused
        _, runs = await server.ask("GET", "/v1/runs")
        assert runs["items"] == []


async def test_rights_of_the_key_hold(tmp_path: Path) -> None:
    agent = make_agent(tool_call("erase", name="disk"), "I could not.")
    async with running(tmp_path, agents=[agent]) as server:
        _, viewer = await server.ask("POST", "/v1/keys", {"name": "v", "roles": ["viewer"]})
        assert (await send(server, make_input(say("x")), key=viewer["secret"]))[0] == 403
        assert (await send(server, make_input(say("x")), key="wrong"))[0] == 401
        assert (await send(server, make_input(say("x")), agent="nobody"))[0] == 404
        scopes = ["runs:write", "runs:read"]
        _, runner = await server.ask("POST", "/v1/keys", {"name": "r", "scopes": scopes})
        events = await send(server, make_input(say("Erase.")), key=runner["secret"])
        # Nobody can be asked through this key: the call is refused, the run goes on.
        assert texts(events) == "I could not."
        assert "STATE_SNAPSHOT" not in kinds(events)


async def test_interrupts_of_others_are_not_there(tmp_path: Path) -> None:
    agent = make_agent(tool_call("erase", name="disk"), "Over.")
    async with running(tmp_path, agents=[agent]) as server:
        events = await send(server, make_input(say("Erase it.")))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        scopes = ["runs:write", "runs:read", "approvals:read", "approvals:answer"]
        what = {"name": "e", "scopes": scopes, "subject": "eve"}
        _, other = await server.ask("POST", "/v1/keys", what)
        entry = {
            "interruptId": interrupt["id"],
            "status": "resolved",
            "payload": {"approved": True},
        }
        refused = await send(server, make_input(resume=[entry]), key=other["secret"])
        assert refused[0] == 404


def test_patch_turns_one_state_into_the_other() -> None:
    patch = make_patch({"a": 1, "b": 2, "c/d": 3}, {"a": 1, "b": 3, "e~": 4})
    assert patch == [
        {"op": "replace", "path": "/b", "value": 3},
        {"op": "remove", "path": "/c~1d"},
        {"op": "add", "path": "/e~0", "value": 4},
    ]
