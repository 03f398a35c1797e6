"""What the gate costs: a sandboxed command against a plain one, on every level.

A spawn is the wall time of `true` from `await` to its result with both outputs read. The
plain one is `asyncio.create_subprocess_exec`; the sandbox's launcher runs already, as it
does from the second command of a session on. Cases alternate in one run.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

from _report import Result, interleave

from holdfast.errors import SandboxFailed
from holdfast.policy import classify_argv, classify_command, parse_command
from holdfast.sandbox import LevelChoice, SandboxOptions, SandboxRunner, Workspace

GOALS: dict[LevelChoice, float] = {"landlock": 3.0, "bubblewrap": 8.0}
LINE = "git status -s && grep -rn 'def main' src | sort -u | head -n 20 > found.txt"


async def plain() -> None:
    """Run `true` without any sandbox."""
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/true",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await process.communicate()


async def confined(runner: SandboxRunner) -> None:
    """Run `true` in a sandbox."""
    result = await runner.run_argv(["true"])
    if result.exit_code:
        raise SystemExit(f"{runner.level_name}: {result.stderr}")


def timed(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[None]]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    loop.run_until_complete(_await(call))
    return (time.perf_counter() - started) * 1000


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()


def measure_spawns(rounds: int) -> list[Result]:
    """Plain and sandboxed spawns, in turns."""
    loop = asyncio.new_event_loop()
    root = tempfile.mkdtemp(prefix="holdfast-bench-")
    cases: dict[str, Callable[[], float]] = {"plain": partial(timed, loop, plain)}
    runners: dict[LevelChoice, SandboxRunner] = {}
    missing: list[Result] = []
    for level in GOALS:
        runner = SandboxRunner(Workspace(root), SandboxOptions(level=level))
        try:
            loop.run_until_complete(runner.start())
        except SandboxFailed as error:
            missing.append(Result(metric=f"{level} / plain spawn", value=0, note=str(error)[:80]))
            continue
        runners[level] = runner
        cases[level] = partial(timed, loop, partial(confined, runner))
    figures = {name: median(values) for name, values in interleave(cases, rounds).items()}
    for runner in runners.values():
        loop.run_until_complete(runner.aclose())
    loop.close()
    shutil.rmtree(root)
    results = [Result(metric="plain spawn, ms", value=figures["plain"], note=f"{rounds} rounds")]
    for level, runner in runners.items():
        ratio = figures[level] / figures["plain"]
        goal = GOALS[level]
        note = f"{figures[level]:.2f} ms, {runner.level_name}"
        results.append(
            Result(
                metric=f"{level} / plain spawn",
                value=ratio,
                goal=f"<= {goal:g}",
                ok=ratio <= goal,
                note=note,
            )
        )
    return results + missing


def measure_parse(rounds: int) -> list[Result]:
    """Reading and judging one command line."""

    def once() -> float:
        started = time.perf_counter()
        for _ in range(100):
            # As for a line that nobody has seen before.
            parse_command.cache_clear()
            classify_argv.cache_clear()
            classify_command(parse_command(LINE))
        return (time.perf_counter() - started) * 10_000

    value = median(interleave({"parse": once}, rounds)["parse"])
    return [Result(metric="parse and classify a line, µs", value=value, note="5 programs")]
