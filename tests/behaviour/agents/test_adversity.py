"""Whatever goes wrong in a turn, the session is usable afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.canonical import JsonObject
from holdfast.hooks import HookPayload
from holdfast.messages import Message
from holdfast.providers import RetryPolicy, use_retry_policy
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call
from holdfast.testing.fake_server import FakeServer, HoldPoint
from holdfast.testing.fake_server import Reply as Served
from holdfast.tools import Tool

SOURCE = Path(__file__).resolve().parents[3] / "src"
KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def messages(client: AsyncClient, session_id: str) -> tuple[Message, ...]:
    return (await client.list_messages(session_id, limit=500)).items


async def is_usable(client: AsyncClient, session_id: str) -> bool:
    """Say whether another turn runs in the session, and no call there lacks its result."""
    agent = Agent("next", model=ScriptedModel("here"))
    result = await client.execute_agent(agent, session_id, "are you there?")
    found = await messages(client, session_id)
    is_whole = all(part.state != "pending" for message in found for part in message.tool_calls)
    return result.response == "here" and is_whole


# --- our own faults -------------------------------------------------------------------


class Broken(Tool):
    """A tool that fails where nothing of a tool is expected to."""

    def validate(self, arguments: JsonObject) -> dict[str, Any]:
        raise ZeroDivisionError


async def test_a_run_that_fails_by_an_unforeseen_error_leaves_no_call_without_a_result(
    client: AsyncClient,
) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    session = await client.create_session("broken")
    model = ScriptedModel([tool_call("look"), tool_call("look")])
    agent = Agent("one", model=model, tools=[Broken.from_function(look)])
    result = await client.execute_agent(agent, session.id, "go")
    assert result.status == "failed"
    assert result.metadata["error"]["code"] == "holdfast.error"
    calls = [part for message in await messages(client, session.id) for part in message.tool_calls]
    assert [part.state for part in calls] == ["error", "error"]
    assert await is_usable(client, session.id)


# --- two clients ----------------------------------------------------------------------


def echo_agent(name: str) -> Agent:
    """Calls a tool once per turn, then answers with how much history it saw."""

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0)
        return "seen"

    def answer(request: ModelRequest) -> ModelReply:
        if request.messages[-1].role == "user":
            return ModelReply(text="", calls=(tool_call("look"),))
        asked = [message.text for message in request.messages if message.role == "user"]
        return ModelReply(text=f"{name} read {json.dumps(asked)}")

    return Agent(name, model=FunctionModel(answer), tools=[look])


async def test_turns_of_two_clients_are_whole_in_order_and_know_of_each_other(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path) as one, AsyncClient(tmp_path) as two:
        session = await one.create_session("shared")
        await asyncio.gather(
            *[
                client.execute_agent(echo_agent(name), session.id, f"{name} {number}")
                for number in range(4)
                for client, name in ((one, "ann"), (two, "bob"))
            ]
        )
        found = await messages(one, session.id)
    turns = [found[at : at + 3] for at in range(0, len(found), 3)]
    assert len(turns) == 8
    questions = [turn[0].text for turn in turns]
    assert sorted(questions) == sorted(f"{name} {n}" for n in range(4) for name in ("ann", "bob"))
    for place, (question, calls, answer) in enumerate(turns):
        name = question.text.split()[0]
        assert {question.run_id} == {calls.run_id, answer.run_id}
        assert [part.output for part in calls.tool_calls] == ["seen"]
        # Everything that stands before a turn was its history.
        assert answer.text == f"{name} read {json.dumps(questions[: place + 1])}"


# --- the provider ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["head", "first", "middle", "end"])
async def test_a_provider_that_dies_in_the_middle_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    answers = [Served(text="a long answer, cut off", break_at=place) for _ in range(2)]  # type: ignore[arg-type]
    async with FakeServer([*answers, Served(text="back")], key=KEY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("s")
            agent = Agent("a", model="openai:gpt-4o-mini")
            with use_retry_policy(RetryPolicy(attempts=2, wait_max_s=0)):
                result = await client.execute_agent(agent, session.id, "talk")
                assert (result.status, result.response) == ("failed", "")
                # Nothing of the broken answer is in the conversation.
                assert [m.role for m in await messages(client, session.id)] == ["user"]
                again = await client.execute_agent(agent, session.id, "again")
            assert again.response == "back"
            assert await is_usable(client, session.id)


# --- tools ----------------------------------------------------------------------------


async def test_a_tool_that_hangs_is_given_up_and_the_run_goes_on(client: AsyncClient) -> None:
    never, release = asyncio.Event(), threading.Event()

    @tool(effect="read", timeout_s=0.05)
    async def hang() -> str:
        """Hang."""
        await never.wait()
        return "never"

    @tool(effect="read", timeout_s=0.05)
    def block() -> str:
        """Hang in a thread."""
        release.wait(60)
        return "never"

    model = ScriptedModel([tool_call("hang"), tool_call("block")], "gave up")
    session = await client.create_session("s")
    agent = Agent("a", model=model, tools=[hang, block])
    try:
        result = await client.execute_agent(agent, session.id, "go")
    finally:
        release.set()
    assert result.response == "gave up"
    states = [part.state for part in model.requests[-1].messages[-1].tool_calls]
    assert states == ["error", "error"]
    assert await is_usable(client, session.id)


async def test_a_run_whose_tool_hangs_can_be_cancelled(client: AsyncClient) -> None:
    reached, release = threading.Event(), threading.Event()

    @tool(effect="unsafe", permission="allow")
    def block() -> str:
        """Hang in a thread."""
        reached.set()
        release.wait(60)
        return "never"

    session = await client.create_session("s")
    agent = Agent("a", model=ScriptedModel(tool_call("block"), "never"), tools=[block])
    run = asyncio.create_task(client.execute_agent(agent, session.id, "go", run_id="job"))
    try:
        assert await asyncio.to_thread(reached.wait, 30)
        await client.runs.cancel("job", reason="enough")
        async with asyncio.timeout(30):
            assert (await run).status == "cancelled"
    finally:
        release.set()
    assert await is_usable(client, session.id)


# --- hooks ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["on", "observe"])
async def test_hooks_that_raise_everywhere_change_nothing(client: AsyncClient, way: str) -> None:
    async def stumble(payload: HookPayload) -> None:
        raise RuntimeError("a broken hook")

    getattr(client.hooks, way)("*", stumble)
    session = await client.create_session("s")
    assert (await client.execute_agent(echo_agent("ann"), session.id, "hi")).status == "completed"
    assert (await client.hooks.registry()).failures > 0
    assert await is_usable(client, session.id)


# --- the disk -------------------------------------------------------------------------

FULL_DISK = """
import asyncio, json, resource, signal, sys
from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
numbers = iter(range(10_000))

@tool(effect="read")
async def look(number: int) -> str:
    '''Say a lot.'''
    return f"{number} " * 1500

def answer(request):
    if sum(m.role == "assistant" for m in request.messages) % 4 == 3:
        return ModelReply(text="enough")
    return ModelReply(text="", calls=(tool_call("look", number=next(numbers)),))

async def main():
    told = {"codes": [], "causes": []}
    agent = Agent("a", model=FunctionModel(answer), tools=[look])
    async with AsyncClient(sys.argv[1]) as client:
        session = await client.create_session("s")
        await client.execute_agent(agent, session.id, "while there is room")
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        for _ in range(40):
            try:
                result = await client.execute_agent(agent, session.id, "more")
                if result.status == "failed":
                    told["codes"].append(result.metadata["error"]["code"])
            except HoldfastError as error:
                told["codes"].append(error.code)
                told["causes"].append(error.context.get("cause", ""))
            if told["codes"]:
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        last = Agent("next", model=ScriptedModel("here"))
        told["same"] = (await client.execute_agent(last, session.id, "there?")).response
    async with AsyncClient(sys.argv[1]) as client:
        told["damage"] = len(await client.audit.verify())
        last = Agent("next", model=ScriptedModel("here"))
        told["new"] = (await client.execute_agent(last, session.id, "there?")).response
        found = (await client.list_messages(session.id, limit=500)).items
        told["pending"] = sum(p.state == "pending" for m in found for p in m.tool_calls)
    print(json.dumps(told))

asyncio.run(main())
"""


def test_a_full_disk_interrupts_the_run_and_the_session_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "state")],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told.pop("codes") == ["run.interrupted"]
    assert set(told.pop("causes")) & {"storage.full", "storage.failed"}
    assert told == {"same": "here", "new": "here", "damage": 0, "pending": 0}


# --- Ctrl-C ---------------------------------------------------------------------------


# Whoever starts the tests in the background of a script has Ctrl-C ignored, and so have we.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from holdfast.cli import interrupts, main
interrupts.GESTURE_S = 3600  # presses belong together, however slow the machine is
main()
"""


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_ctrl_c_in_a_command_leaves_a_session_that_goes_on(
    tmp_path: Path, times: int
) -> None:
    gate = HoldPoint()
    async with FakeServer([Served(text="x", gate=gate)], key=KEY) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LISTENING, "run", "--model", "openai:gpt-4o-mini"),
            *("talk", "--run-id", "job"),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "PYTHONPATH": str(SOURCE),
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": server.base_url,
                "AGENT_STATE_DIR": str(tmp_path / "state"),
            },
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            await gate.reached.wait()
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            # The others come in the midst of its clean-up.
            await process.stderr.readuntil(b"Stopping")
            for _ in range(times - 1):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
                await asyncio.sleep(0)
            told = await process.stderr.read()
            assert await process.wait() == 130, told
    assert b"Traceback" not in told
    async with AsyncClient(tmp_path / "state") as client:
        run = await client.runs.get("job")
        assert run.status == "cancelled"
        assert await is_usable(client, run.session_id)
