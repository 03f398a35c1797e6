"""What it costs to start: a program with an agent, its first answer, and the command line.

CPU is user plus system time of a child process, interpreter included, so a busy machine
changes it little. Everybody but the first to start has compiled files, of Holdfast and of what
it depends on: each program runs once before the first figure is taken, and writes them. What is
put off is not saved: "ready" (agent and client are made) and "first answer" are both printed.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from _report import Result, arguments, interleave, report

SOURCE = Path(__file__).parents[1] / "src"
IMPORT_CPU_S, IMPORT_RSS_MB, HELP_RATIO = 0.15, 45.0, 5.0
AGENT_CPU_S, AGENT_MB = 0.30, 50.0
ANSWER_CPU_S, ANSWER_MB = 0.45, 58.0
HEAVY = ("asyncio", "pydantic", "rich", "aiohttp", "yaml")

BARE = ["-c", "pass"]
IMPORT = ["-c", "import holdfast"]
HELP = ["-m", "holdfast", "--help"]
AGENT = """
from holdfast import Agent, tool

@tool(effect="read")
def multiply(a: int, b: int) -> int:
    \"\"\"Multiply two numbers.\"\"\"
    return a * b

agent = Agent("helper", model="offline", tools=[multiply])
"""
# Said by name, because a model server on this machine would be asked otherwise. Where the
# program stands is noted in a file, with what it took until then.
ANSWER = (
    AGENT
    + """
import asyncio, sys, time
from holdfast import AsyncClient

def note(name):
    with open(sys.argv[1] + "/notes", "a") as notes:
        print(name, time.process_time(), file=notes)

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        note("ready")
        result = await agent.run("What is 15 times 23?", client=client)
        note("answer")
    assert "345" in result.response, result

asyncio.run(main())
"""
)
EVERYTHING = ["-c", "import holdfast as h\nfor name in h.__all__: getattr(h, name)"]


def child_cpu_s(arguments: list[str]) -> float:
    """Run Python with these arguments; return its CPU seconds."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    command = [sys.executable, *arguments]
    pid = os.posix_spawn(sys.executable, command, _environment(), file_actions=silent)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return usage.ru_utime + usage.ru_stime


def answer_cpu_s(notes: dict[str, list[float]]) -> float:
    """Run the program that asks, in a folder of its own; note when it was how far."""
    with tempfile.TemporaryDirectory() as folder:
        took_s = child_cpu_s(["-c", ANSWER, folder])
        for line in (Path(folder) / "notes").read_text().splitlines():
            name, _, at = line.partition(" ")
            notes.setdefault(name, []).append(float(at))
    return took_s


def child_peak_mb(code: str) -> float:
    """Run this code with a folder of its own; return the most memory that it ever had.

    Linux counts the parent's memory into `ru_maxrss` of a child, so ask for the peak
    of its own address space.
    """
    if sys.platform == "linux":
        ask = "print(next(line for line in open('/proc/self/status') if 'VmHWM' in line))"
        per_mb = 1024
    else:
        ask = "import resource; print(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        per_mb = 1024**2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", f"{code}\n{ask}", folder]
        ended = subprocess.run(
            command, env=_environment(), capture_output=True, text=True, check=True
        )
    return int(ended.stdout.split()[-2 if sys.platform == "linux" else -1]) / per_mb


def _environment() -> dict[str, str]:
    kept = dict(os.environ)  # noqa: TID251  # children start as a user's shell starts them
    return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}


def measure(rounds: int) -> list[Result]:
    """Take all figures in one interleaved run."""
    compileall.compile_dir(SOURCE, quiet=1)
    cases = {"bare": BARE, "import": IMPORT, "help": HELP, "everything": EVERYTHING}
    cases["agent"] = ["-c", AGENT]
    for first in cases.values():
        child_cpu_s(first)
    answer_cpu_s({})
    notes: dict[str, list[float]] = {}
    measures = {name: partial(child_cpu_s, a) for name, a in cases.items()}
    cpu = interleave({**measures, "answer": partial(answer_cpu_s, notes)}, rounds)
    cpu_s = {name: median(values) for name, values in cpu.items()}
    codes = {name: a[1] for name, a in cases.items() if a[0] == "-c"} | {"answer": ANSWER}
    memory_mb = {name: median(child_peak_mb(c) for _ in range(5)) for name, c in codes.items()}
    ratio = cpu_s["help"] / cpu_s["bare"]
    return [
        Result(metric="python -c pass, CPU s", value=cpu_s["bare"], note="what the rest adds to"),
        Result(
            metric="import holdfast, CPU s",
            value=cpu_s["import"],
            goal=f"<= {IMPORT_CPU_S}",
            ok=cpu_s["import"] <= IMPORT_CPU_S,
            note="interpreter included",
        ),
        Result(
            metric="import holdfast, MB",
            value=memory_mb["import"],
            goal=f"<= {IMPORT_RSS_MB:g}",
            ok=memory_mb["import"] <= IMPORT_RSS_MB,
            note=f"bare Python: {memory_mb['bare']:.1f}",
        ),
        *_programs(cpu_s, memory_mb, {name: median(values) for name, values in notes.items()}),
        Result(
            metric="every public name, CPU s",
            value=cpu_s["everything"],
            note=f"what first use adds; {memory_mb['everything']:.1f} MB",
        ),
        Result(
            metric="holdfast --help / python -c pass",
            value=ratio,
            goal=f"<= {HELP_RATIO:g}",
            ok=ratio <= HELP_RATIO,
            note=f"{cpu_s['help'] * 1000:.0f} ms, CPU, medians of {rounds} rounds",
        ),
        _heavy_modules(),
    ]


def _programs(
    cpu_s: dict[str, float], memory_mb: dict[str, float], at_s: dict[str, float]
) -> list[Result]:
    """What users do: a program that makes an agent, and one that asks it once."""
    rows = []
    for name, what, most_s, most_mb, note in (
        ("agent", "Agent(...)", AGENT_CPU_S, AGENT_MB, "the agent is made, nothing is asked"),
        ("answer", "one offline run", ANSWER_CPU_S, ANSWER_MB, "AsyncClient(), closed again"),
    ):
        rows += [
            Result(
                metric=f"program with {what}, CPU s",
                value=cpu_s[name],
                goal=f"<= {most_s:g}",
                ok=cpu_s[name] <= most_s,
                note=note,
            ),
            Result(
                metric=f"program with {what}, MB",
                value=memory_mb[name],
                goal=f"<= {most_mb:g}",
                ok=memory_mb[name] <= most_mb,
            ),
        ]
    ready = Result(metric="  ready, CPU s", value=at_s["ready"], note="agent and client are made")
    answer = Result(metric="  first answer, CPU s", value=at_s["answer"], note="by then, in all")
    return [*rows, ready, answer]


def _heavy_modules() -> Result:
    code = "import runpy, sys; sys.argv[1:] = ['--help']\n"
    code += "try: runpy.run_module('holdfast', run_name='__main__')\n"
    code += f"except SystemExit: pass\nsys.exit(sum(name in sys.modules for name in {HEAVY!r}))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, env=_environment(), capture_output=True).returncode
    return Result(
        metric="heavy modules loaded by --help",
        value=loaded,
        goal="0",
        ok=loaded == 0,
        note=f"of {', '.join(HEAVY)}; a test checks it too",
    )


if __name__ == "__main__":
    options = arguments(__doc__ or "")
    sys.exit(report(measure(rounds=7 if options.quick else 41), options.json))
