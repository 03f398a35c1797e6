"""Holdfast before clients of npm: acpx drives `holdfast acp`, @ag-ui/client talks to `/agui`,
the stock OpenAI client to `/openai/v1`, and MCP Inspector calls a tool 200 times at `/mcp`.

`python faces.py TOOLS`, where TOOLS is the directory with their `node_modules`. Each step says what
it did; the first that fails ends this with exit code 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from holdfast import Agent, tool
from holdfast.client import find_token
from holdfast.server import create_app
from holdfast.server.process import make_server
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ScriptedModel, tool_call

HERE: Final = Path(__file__).parent
_LONGEST_S: Final = 120.0
_CALLS: Final = 200
_AT_ONCE: Final = 8


@tool(permission="ask")
def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"


@tool(effect="read", timeout_s=600)
async def wait_long() -> str:
    """Wait for a long time."""
    await asyncio.sleep(500)
    return "too late"


@tool(effect="read")
def add_numbers(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def make_agents() -> list[Agent]:
    """Return agents that say the same each time."""
    asking = ScriptedModel(*(tool_call("erase", name="disk"), "It is over.") * 10)
    waiting = ScriptedModel(*[tool_call("wait_long")] * 10)
    painting = ScriptedModel(tool_call("paint", colour="red"), "Painted.")
    return [
        Agent("helper", model=asking, tools=[erase]),
        Agent("sleeper", model=waiting, tools=[wait_long]),
        Agent("talker", model=FunctionModel(lambda _: "It is so."), tools=[]),
        Agent("painter", model=painting, tools=[]),
    ]


agents = make_agents()


async def run(tools: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Run a program of npm; returns its exit code, and what it said."""
    path = f"{tools / 'node_modules' / '.bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "PYTHONPATH": str(HERE)}
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_LONGEST_S):
            told, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 1, "it took too long"
    return process.returncode or 0, told.decode(errors="replace")


def check(what: str, text: str, *wanted: str) -> None:
    """Say that a step went well; raises SystemExit where it did not."""
    missing = [one for one in wanted if one not in text]
    if missing:
        raise SystemExit(f"FAIL {what}: {', '.join(missing)} is not in\n{text}")
    print(f"ok   {what}")


async def drive_acp(tools: Path, folder: Path) -> None:
    """Let acpx prompt, be asked for permission, load, and cancel."""
    command = f"holdfast --state-dir {folder / 'acp'} acp faces:agents --agent helper"

    async def acpx(*words: str) -> str:
        _, said = await run(tools, folder, "acpx", "--agent", command, *words)
        return said

    allowed = await acpx("--approve-all", "exec", "Erase the disk")
    check("acpx: prompt, permission given", allowed, "erased disk", "It is over.", "end_turn")
    denied = await acpx("--deny-all", "exec", "Erase the disk")
    check("acpx: permission refused", denied, "(failed)", "It is over.")
    await acpx("sessions", "new")
    check("acpx: a session", await acpx("--approve-all", "Erase it"), "It is over.")
    check("acpx: a command", await acpx("/status"), "messages")
    check("acpx: a mode", await acpx("set-mode", "sleeper"), "sleeper")
    sleeping = asyncio.ensure_future(acpx("Sleep"))
    for _ in range(60):
        await asyncio.sleep(1)
        if "cancel" in (said := await acpx("cancel")) and "no active" not in said.lower():
            break
    check("acpx: cancel", await sleeping, "cancelled")
    await acpx("sessions", "close")
    listed = await acpx("sessions", "list")
    check("acpx: sessions listed", listed, "ses_")


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Serve the agents, and a tool, on a free port; gives the address and the token."""
    overrides = {
        "storage.state_dir": str(folder / "served"),
        "workspace": str(folder),
        "server.port": 0,
    }
    settings = load_settings(overrides=overrides, cwd=folder).settings
    app = create_app(settings, agents=make_agents())
    app.runtimes.operator.toolbox.registry.register(add_numbers)
    server = make_server(app)
    serving = asyncio.create_task(server._serve())
    try:
        while not server.started:
            await asyncio.sleep(0.05)
        yield server.url, find_token(settings.storage_path)
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def run_module(tools: Path, folder: Path, name: str, *words: str) -> str:
    """Run a program of ours beside the packages that it imports; returns what it said."""
    program = tools / name
    program.write_text((HERE / name).read_text(encoding="utf-8"), encoding="utf-8")
    code, said = await run(tools, folder, "node", str(program), *words)
    return said if code == 0 else f"{said}\nexit code {code}"


async def drive_agui(tools: Path, folder: Path, url: str, token: str) -> None:
    """Let @ag-ui/client hold a conversation with an interrupt."""
    said = await run_module(tools, folder, "agui.mjs", f"{url}/agui/helper", token)
    check("@ag-ui/client: an interrupt", said, "interrupt: tool_approval")
    check("@ag-ui/client: resumed to the end", said, "erased disk", "It is over.", "success")


async def drive_openai(tools: Path, folder: Path, url: str, token: str) -> None:
    """Let the stock client of OpenAI do what it can."""
    said = await run_module(tools, folder, "openai.mjs", f"{url}/openai/v1", token)
    for what in (
        "models",
        "chat",
        "chat stream with usage",
        "responses",
        "responses stream",
        "tools",
        "errors",
        "retries",
    ):
        check(f"openai of node: {what}", f"\n{said}", f"\n{what}\n")


async def drive_inspector(tools: Path, folder: Path, url: str, token: str) -> None:
    """Let MCP Inspector call a tool, many at a time."""
    words = ["mcp-inspector", "--cli", f"{url}/mcp", "--transport", "http"]
    words += ["--header", f"Authorization: Bearer {token}", "--method", "tools/call"]
    turn = asyncio.Semaphore(_AT_ONCE)

    async def call(number: int) -> bool:
        async with turn:
            given = ["--tool-arg", f"a={number}", "b=1"]
            code, said = await run(tools, folder, *words, "--tool-name", "add_numbers", *given)
        return code == 0 and f'"{number + 1}"' in said

    done = await asyncio.gather(*(call(number) for number in range(_CALLS)))
    check(f"inspector: {_CALLS} calls, {_AT_ONCE} at once", f"{sum(done)} right", f"{_CALLS} right")


async def main() -> None:
    """Drive both faces."""
    tools = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        async with served(place) as (url, token):
            await drive_agui(tools, place, url, token)
            await drive_openai(tools, place, url, token)
            await drive_inspector(tools, place, url, token)
        await drive_acp(tools, place)


if __name__ == "__main__":
    asyncio.run(main())
