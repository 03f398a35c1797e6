"""Ask a server for runs, with more and more clients at once, until it takes no more.

    ./scripts/load                       one to 256 clients, five seconds each
    ./scripts/load --quick               one to 16 clients, one second each
    ./scripts/load --to load.json        and write what was measured to a file

The server is `holdfast serve` in a process of its own, on 127.0.0.1 and a temporary directory; its
model is a script, and each run is two model calls and one tool call. The knee is the first
level from which no other brings a tenth more runs per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import aiohttp
import msgspec

from holdfast import __version__
from holdfast.client import find_token

APP = '''
from holdfast import Agent, tool
from holdfast.testing import FunctionModel, tool_call

@tool(effect="read")
def look(where: str) -> str:
    """Look somewhere."""
    return where

def answer(request):
    if request.messages[-1].role == "tool":
        return "seen"
    return tool_call("look", where="here")

agents = [Agent("looker", model=FunctionModel(answer), tools=[look])]
'''
GROWTH = 1.1


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured with so many clients at once; times in milliseconds."""

    clients: int
    runs: int
    failed: int
    runs_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


@asynccontextmanager
async def serve(place: Path) -> AsyncIterator[tuple[str, str]]:
    """Run a server; yields its address and its token."""
    (place / "app.py").write_text(APP)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--json", "--state-dir", "state", "--workspace", "."),
        *("serve", "app:agents", "--port", "0"),
        cwd=place,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            told = await process.stdout.readuntil(b"}")
        url = str(json.loads(told)["url"])
        yield url, find_token(place / "state") or ""
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def measure(http: aiohttp.ClientSession, url: str, clients: int, seconds: float) -> Level:
    """Let so many clients ask for runs, one after the other, for some seconds."""
    took: list[float] = []
    failed = 0
    end = time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal failed
        while time.perf_counter() < end:
            began = time.perf_counter()
            body = {"agent_name": "looker", "user_message": "Look."}
            async with http.post(url + "/v1/runs/wait", json=body) as response:
                answer = await response.json()
            if response.status == 200 and answer.get("status") == "completed":
                took.append(time.perf_counter() - began)
            else:
                failed += 1

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(clients)))
    lasted = time.perf_counter() - began
    cuts = quantiles(took, n=100) if len(took) > 1 else [0.0] * 99
    return Level(
        clients=clients,
        runs=len(took),
        failed=failed,
        runs_per_s=round(len(took) / lasted, 1),
        p50_ms=round(cuts[49] * 1e3, 1),
        p95_ms=round(cuts[94] * 1e3, 1),
        p99_ms=round(cuts[98] * 1e3, 1),
    )


def find_knee(levels: list[Level]) -> Level:
    """Return the first level from which more clients bring hardly more runs."""
    most = max(level.runs_per_s for level in levels)
    return next(level for level in levels if level.runs_per_s * GROWTH >= most)


async def load(most: int, seconds: float) -> list[Level]:
    """Measure level after level, two levels beyond the knee at most."""
    levels: list[Level] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-load-") as place:
        async with serve(Path(place)) as (url, token):
            connector = aiohttp.TCPConnector(limit=0)
            headers = {"Authorization": f"Bearer {token}"}
            async with aiohttp.ClientSession(connector=connector, headers=headers) as http:
                await measure(http, url, 2, min(seconds, 1.0))  # what happens once
                clients = 1
                while clients <= most:
                    levels.append(await measure(http, url, clients, seconds))
                    tell(levels[-1])
                    if clients >= 4 * find_knee(levels).clients:
                        break
                    clients *= 2
    return levels


def tell(level: Level) -> None:
    """Print a row."""
    sys.stdout.write(
        f"{level.clients:>7} {level.runs_per_s:>9.1f} {level.p50_ms:>9.1f} {level.p95_ms:>9.1f} "
        f"{level.p99_ms:>9.1f} {level.failed:>7}\n"
    )
    sys.stdout.flush()


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer clients, shorter")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the evidence as JSON")
    arguments = parser.parse_args()
    most, seconds = (16, 1.0) if arguments.quick else (256, 5.0)
    sys.stdout.write("clients    runs/s    p50 ms    p95 ms    p99 ms  failed\n")
    levels = asyncio.run(load(most, seconds))
    knee, failed = find_knee(levels), sum(level.failed for level in levels)
    sys.stdout.write(f"knee: {knee.clients} clients, {knee.runs_per_s} runs/s; {failed} failed\n")
    if arguments.to is not None:
        evidence = {
            "command": "./scripts/load" + (" --quick" if arguments.quick else ""),
            "version": __version__,
            "python": platform.python_version(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "is_held": not failed,
            "knee": msgspec.to_builtins(knee),
            "levels": msgspec.to_builtins(levels),
        }
        arguments.to.parent.mkdir(parents=True, exist_ok=True)
        arguments.to.write_text(json.dumps(evidence, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
