"""Whatever a tool does, the run that called it goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading

import pytest

from holdfast import Agent, AsyncClient, tool, toolset
from holdfast.testing import ModelReply, ScriptedModel, tool_call
from holdfast.tools import Target, ToolContext, ToolResult


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Final(BaseException):
    """Neither an Exception nor one of Python's own ways to end a program."""


class Sneaky:
    """Looks like a result as long as nobody looks closely."""

    def __str__(self):
        raise SystemExit(3)

    __repr__ = __str__


def raises(error):
    @tool(effect="read", name="hostile")
    async def hostile() -> str:
        """Fail."""
        raise error

    return hostile


def raises_in_a_thread(error):
    @tool(effect="read", name="hostile")
    def hostile() -> str:
        """Fail."""
        raise error

    return hostile


def returns(make):
    @tool(effect="read", name="hostile")
    async def hostile():
        """Return something odd."""
        return make()

    return hostile


def cyclic() -> dict[str, object]:
    made: dict[str, object] = {}
    made["self"] = made
    return made


def deep() -> list[object]:
    made: list[object] = []
    for _ in range(100_000):
        made = [made]
    return made


@tool(effect="read", name="hostile", timeout_s=0.2)
async def hangs() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
    return "never"


@tool(effect="read", name="hostile", timeout_s=0.2)
def blocks(context: ToolContext) -> str:
    """Block its thread until it is told to stop."""
    while not context.cancellation.is_cancelled:
        threading.Event().wait(0.01)
    return "never"


@tool(effect="read", name="hostile")
async def floods() -> str:
    """Return far too much."""
    return "x" * 20_000_000


@tool(effect="read", name="hostile")
async def floods_progress(context: ToolContext) -> str:
    """Report far too often."""
    for number in range(20_000):
        context.report(f"{number}" * 10)
    return "done"


@tool(effect="read", name="hostile")
def forks() -> str:
    """Leave a child behind."""
    child = subprocess.Popen(["true"], start_new_session=True)
    return str(child.wait())


@tool(effect="read", name="hostile")
async def cancels_everybody() -> str:
    """Cancel every task that it can find, but for the one that waits for the test."""
    asyncio.current_task().cancel()
    await asyncio.Event().wait()
    return "never"


@tool(effect="read", name="hostile")
def moves() -> str:
    """Change the directory of the whole process."""
    os.chdir("/")
    return "moved"


def broken(*_arguments: object) -> object:
    raise RuntimeError("broken part")


async def broken_later(*_arguments: object) -> object:
    raise RuntimeError("broken part")


@tool(effect="idempotent", name="hostile", permission="allow", prepare=broken_later)
async def breaks_in_prepare() -> str:
    """Fail before it begins."""
    return "never"


@tool(effect="idempotent", name="hostile", permission="ask", preview=broken_later)
async def breaks_in_preview() -> str:
    """Fail when somebody is asked."""
    return "never"


@tool(effect="read", name="hostile", target=Target(kind="text", resolve=broken))
async def breaks_in_target() -> str:
    """Fail when it is asked what it touches."""
    return "never"


@tool(effect="read", name="hostile")
async def odd_result() -> ToolResult:
    """Return a result with the wrong things in it."""
    return ToolResult(3, title=b"x", metadata=cyclic())  # type: ignore[arg-type]


FAILING = {
    "SystemExit": raises(SystemExit(1)),
    "KeyboardInterrupt": raises(KeyboardInterrupt()),
    "GeneratorExit": raises(GeneratorExit()),
    "StopIteration": raises(StopIteration()),
    "StopAsyncIteration": raises(StopAsyncIteration()),
    "CancelledError": raises(asyncio.CancelledError()),
    "RecursionError": raises(RecursionError()),
    "MemoryError": raises(MemoryError()),
    "own BaseException": raises(Final("the end")),
    "error without text": raises(Unspeakable()),
    "huge error": raises(ValueError("x" * 5_000_000)),
    "half a character": raises(ValueError("\ud800")),
    "group": raises(BaseExceptionGroup("several", [SystemExit(1), ValueError("x")])),
    "thread: SystemExit": raises_in_a_thread(SystemExit(1)),
    "thread: KeyboardInterrupt": raises_in_a_thread(KeyboardInterrupt()),
    "thread: GeneratorExit": raises_in_a_thread(GeneratorExit()),
    "thread: StopIteration": raises_in_a_thread(StopIteration()),
    "thread: own BaseException": raises_in_a_thread(Final("the end")),
    "thread: error without text": raises_in_a_thread(Unspeakable()),
    "cyclic value": returns(cyclic),
    "deep value": returns(deep),
    "unserialisable value": returns(object),
    "sneaky value": returns(Sneaky),
    "endless numbers": returns(lambda: float("nan")),
    "odd result": odd_result,
    "hangs": hangs,
    "blocks": blocks,
    "cancels itself": cancels_everybody,
    "breaks in prepare": breaks_in_prepare,
    "breaks in preview": breaks_in_preview,
    "breaks in target": breaks_in_target,
}
WORKING = {
    "floods": floods,
    "floods progress": floods_progress,
    "forks": forks,
    "moves": moves,
}


@pytest.mark.parametrize("kind", [*FAILING, *WORKING])
async def test_the_run_survives(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    hostile = {**FAILING, **WORKING}[kind]
    model = ScriptedModel(
        ModelReply(calls=(tool_call("hostile"), tool_call("todoread"))),
        ModelReply(text="still here"),
    )
    agent = Agent("victim", model=model, tools=[hostile, *toolset("todo")])
    async with AsyncClient(tmp_path / "state") as client:
        result = await asyncio.wait_for(agent.run("go", client=client), 60)
        assert (result.status, result.response) == ("completed", "still here")
        calls = {one.tool: one for one in await client.get_execution_history(result.session_id)}
        assert calls["todoread"].state == "completed"
        one = calls["hostile"]
        # A number that JSON does not have may be told as a text instead.
        if kind in WORKING or kind == "endless numbers":
            assert one.state in ("completed", "error")
        else:
            assert one.state == "error"
            assert one.error
        assert len(one.output) + len(one.error) < 100_000
        assert one.time_end is not None


async def test_a_process_that_a_command_leaves_behind_ends_with_it(tmp_path):
    marker = f"{200_000 + os.getpid()}.5"
    command = f"bash -c 'sleep {marker} & setsid sleep {marker} & echo begun'"
    model = ScriptedModel(
        ModelReply(calls=(tool_call("bash", command=command),)), ModelReply(text="still here")
    )
    rule = {"permission": "*", "pattern": "*", "action": "allow"}
    agent = Agent("victim", model=model, permission=[rule])
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("s", directory=tmp_path)
        result = await agent.run("go", session=session.id, client=client)
        assert result.response == "still here"
        [call] = await client.get_execution_history(session.id)
    found = await asyncio.to_thread(subprocess.run, ["pgrep", "-f", marker], capture_output=True)
    assert found.stdout == b"", call
