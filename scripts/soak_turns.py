"""Run turns for a long time, and fail if anything grows with them that must not.

    python scripts/soak_turns.py [--minutes 30] [--json]

Four turns at once, each with a call of a `def` tool, eight turns in a session and then another
one. Memory, descriptors, threads and bytes on disk are sampled all the time; printed is how much
each grows per turn once the caches are full (a straight line through the samples of the later
two thirds), with the bound that it must not pass. Disk must grow: by no more than what is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import ToolPart
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel, tool_call

AT_ONCE = 4
TURNS_IN_SESSION = 8
SAMPLES = 120
SETTLING_TURNS = 600
"""As many fill the caches that are bounded by a number of conversations."""
BOUNDS = {"rss_bytes": 1_024.0, "descriptors": 0.002, "threads": 0.002, "disk_bytes": 20_000.0}
SHORT_BOUNDS = BOUNDS | {"rss_bytes": 2_048.0, "descriptors": 0.01, "threads": 0.01}
"""Below ten minutes the allocator and caches of a number of sessions have not come to rest."""


@tool(permission="allow", effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


def answer(request: ModelRequest) -> str | ToolPart:
    """Ask for the sum first, then say it."""
    last = request.messages[-1]
    return "done" if last.role == "tool" else tool_call("add", a=1, b=2)


def sample(place: Path) -> dict[str, float]:
    """Measure this process and its files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_bytes": float(pages * resource.getpagesize()),
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(threading.active_count()),
        "disk_bytes": float(sum(one.stat().st_size for one in place.rglob("*") if one.is_file())),
    }


def slope(points: list[tuple[int, float]]) -> float:
    """Return how much a value grows per turn: least squares."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


async def soak(place: Path, seconds: float) -> list[tuple[int, dict[str, float]]]:
    """Take turns for so long and return the samples with the number of turns before each."""
    samples: list[tuple[int, dict[str, float]]] = []
    turns = 0
    began = time.monotonic()

    async def work(client: AsyncClient, agent: Agent) -> None:
        nonlocal turns
        session_id = ""
        done = 0
        while time.monotonic() - began < seconds:
            if done % TURNS_IN_SESSION == 0:
                session_id = (await client.sessions.create("soak")).id
            result = await client.runs.execute(agent, session_id, f"Add {done}")
            assert result.status == "completed", result
            done += 1
            turns += 1

    async def watch() -> None:
        while True:
            await asyncio.sleep(seconds / SAMPLES)
            # The test model remembers what it was asked; that is no growth of ours.
            model.requests.clear()
            gc.collect()
            samples.append((turns, sample(place)))

    async with AsyncClient(base_dir=place) as client:
        model = FunctionModel(answer)
        agent = Agent("adder", model=model, tools=[add])
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(work(client, agent) for _ in range(AT_ONCE)))
        watching.cancel()
    return samples


def judge(samples: list[tuple[int, dict[str, float]]], bounds: dict[str, float]) -> dict[str, Any]:
    """Return slopes and bounds, and whether all hold."""
    settled = [one for one in samples if one[0] >= SETTLING_TURNS]
    later = (settled or samples)[len(settled or samples) // 3 :]
    rows = {}
    for name, bound in bounds.items():
        grown = slope([(turns, values[name]) for turns, values in later])
        first, last = later[0][1][name], later[-1][1][name]
        rows[name] = {
            "per_turn": grown,
            "bound": bound,
            "from": first,
            "to": last,
            "ok": grown <= bound,
        }
    return {
        "turns": later[-1][0],
        "measured_turns": later[-1][0] - later[0][0],
        "slopes": rows,
        "ok": all(row["ok"] for row in rows.values()),
    }


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> None:
    """Soak, print, and end with 1 if something grows too fast."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0, help="1 for the short form")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        samples = asyncio.run(soak(Path(place), chosen.minutes * 60))
    found = judge(samples, BOUNDS if chosen.minutes >= 10 else SHORT_BOUNDS)
    if chosen.json:
        _say(json.dumps(found, indent=2))
    else:
        _say(f"{found['turns']} turns, slopes over the last {found['measured_turns']}:")
        for name, row in found["slopes"].items():
            mark = "ok" if row["ok"] else "TOO MUCH"
            _say(
                f"  {name:12} {row['per_turn']:12.4f} per turn, at most {row['bound']:g}   {mark}"
                f"   ({row['from']:.0f} -> {row['to']:.0f})"
            )
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
