"""The steps of `scripts/newcomer`, in the environment that it has just made."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from holdfast.settings import process_environment  # noqa: E402
from holdfast.testing.fake_server import (  # noqa: E402
    FakeServer,
    HoldPoint,
    Reply,
    ScriptedCall,
)
from tests.behaviour.cli.terminal import Terminal  # noqa: E402

KEY: Final = "sk-test-3f9a8b7c6d5e4f3a2b1c"
PASTE: Final = "\x1b[200~first line\nsecond line\x1b[201~\r"
AGENT: Final = (
    "---\ndescription: asks\npermission:\n  - {permission: write, pattern: '*', action: ask}\n---\n"
    "Edit.\n"
)


def run_tutorial(place: Path) -> None:
    """Run every Python block of the tutorial, as it stands on the page."""
    page = (ROOT / "docs" / "tutorial" / "first-agent.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks, "the tutorial has no blocks"
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], cwd=place, env=around(place), check=True,
                       stdout=subprocess.DEVNULL, timeout=120)  # fmt: skip


def talk(place: Path) -> None:
    """Paste, stop, approve, leave, come back and undo, at a real terminal."""
    asyncio.run(_talk(place))


def furnish(home: Path) -> None:
    """Put a file there, and an agent that asks before it changes one."""
    (home / "a.txt").write_text("old\n")
    agents = home / ".config" / "holdfast" / "agents"
    agents.mkdir(parents=True)
    (agents / "editor.md").write_text(AGENT)


async def _talk(home: Path) -> None:
    furnish(home)
    held = HoldPoint()
    async with FakeServer(key=KEY) as server:
        environment = around(home) | {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.base_url,
            "AGENT_FORCE_CHAT_COMPLETIONS": "true",
            "PYTHONPATH": "",
        }
        arguments = json.dumps({"file_path": "a.txt", "content": "new\n"})
        server.answers.extend(
            [
                Reply(text="Two lines."),
                Reply(text="never", gate=held),
                Reply(calls=(ScriptedCall(name="write", arguments=arguments),)),
                Reply(text="Written."),
            ]
        )
        words = ("-m", "holdfast", "chat", "--model", "openai:gpt-4o-mini", "--agent", "editor")
        async with Terminal(*words, home=home, environment=environment) as terminal:
            await terminal.sees(">")
            terminal.type(PASTE)
            await terminal.sees("Two lines.")
            await terminal.sees("editor ·")
            terminal.enter("Talk")
            async with asyncio.timeout(60):
                await held.reached.wait()
            terminal.type("\x03")
            await terminal.sees("cancelled in")
            await terminal.sees("editor ·")
            terminal.enter("Change it")
            await terminal.sees("+new")
            await terminal.sees("q stop]")
            terminal.enter("y")
            await terminal.sees("Written.")
            await terminal.sees("editor ·")
            terminal.type("\x04")
            assert await terminal.ends() == 0
        assert (home / "a.txt").read_text() == "new\n"
        async with Terminal(*words, "-c", home=home, environment=environment) as terminal:
            await terminal.sees("Written.")
            await terminal.sees("editor ·")
            terminal.enter("/undo")
            await terminal.sees("restored a.txt")
            await terminal.sees("editor ·")
            terminal.type("\x04")
            assert await terminal.ends() == 0
        assert (home / "a.txt").read_text() == "old\n"
        sent = server.requests[0].json["messages"]
        assert sent[-1]["content"] == "first line\nsecond line"


def use_mcp_from_pypi(place: Path) -> None:
    """Install a server from PyPI, add it, and call its tool."""
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "mcp-server-time"], check=True, timeout=300)
    program = str(Path(sys.executable).parent / "mcp-server-time")
    holdfast(place, "mcp", "add", "time", "--yes", "--", program, "--local-timezone", "UTC")
    assert "get_current_time" in holdfast(place, "mcp", "tools", "time")


def use_mcp_from_npm(place: Path) -> None:
    """Install a server from npm, add it, and list its tools."""
    name = "@modelcontextprotocol/server-everything"
    npm = ["npm", "install", "--silent", "--prefix", str(place / "npm"), name]
    subprocess.run(npm, check=True, timeout=300)
    program = place / "npm" / "node_modules" / ".bin" / "mcp-server-everything"
    holdfast(place, "mcp", "add", "everything", "--yes", "--", str(program), "stdio")
    assert "echo" in holdfast(place, "mcp", "tools", "everything")


def holdfast(place: Path, *words: str) -> str:
    """Call the program; returns what it printed."""
    done = subprocess.run([sys.executable, "-m", "holdfast", *words], cwd=place, env=around(place),
                          capture_output=True, text=True, timeout=180, check=False)  # fmt: skip
    assert done.returncode == 0, f"holdfast {' '.join(words)}: {done.stderr}{done.stdout}"
    return done.stdout


def around(place: Path) -> dict[str, str]:
    """A home of its own, and no key of the machine."""
    kept = {name: one for name, one in process_environment().items() if name in ("PATH", "LANG")}
    return kept | {
        "HOME": str(place),
        "AGENT_STATE_DIR": str(place / "state"),
        "AGENT_WORKSPACE": str(place),
    }


STEPS: Final[tuple[tuple[str, Callable[[Path], None], float, bool], ...]] = (
    ("the tutorial", run_tutorial, 60, True),
    ("a chat: paste, Ctrl-C, approve, resume, undo", talk, 60, True),
    ("an MCP server from PyPI", use_mcp_from_pypi, 180, False),
    ("an MCP server from npm", use_mcp_from_npm, 180, False),
)


def main() -> int:
    """Take the steps; the exit code says whether all were taken in time."""
    is_quick = "--quick" in sys.argv[2:]
    place = Path(sys.argv[1]).resolve() / "home"
    place.mkdir()
    status = 0
    for name, step, most_s, is_short in STEPS:
        if is_quick and not is_short:
            continue
        started = time.monotonic()
        step(place)
        took = time.monotonic() - started
        is_late = took > most_s
        status = 1 if is_late else status
        late = f"  (more than {most_s:.0f} s)" if is_late else ""
        sys.stdout.write(f"{took:.0f} s  {name}{late}\n")
        sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
