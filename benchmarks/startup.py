"""What it costs to start: `import holdfast`, and `holdfast --help` against bare Python.

CPU is user plus system time of a child process, so a busy machine changes it little.
Compiled files are written before the first figure is taken.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

from _report import Result, arguments, interleave, report

SOURCE = Path(__file__).parents[1] / "src"
IMPORT_CPU_S, IMPORT_RSS_MB, HELP_RATIO = 0.15, 45.0, 7.0
HEAVY = ("asyncio", "pydantic", "rich", "aiohttp", "yaml")

BARE = ["-c", "pass"]
IMPORT = ["-c", "import holdfast"]
HELP = ["-m", "holdfast", "--help"]
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


def child_peak_mb(code: str) -> float:
    """Run this code; return the most memory that the process ever had.

    Linux counts the parent's memory into `ru_maxrss` of a child, so ask for the peak
    of its own address space.
    """
    if sys.platform == "linux":
        ask = "print(next(line for line in open('/proc/self/status') if 'VmHWM' in line))"
        per_mb = 1024
    else:
        ask = "import resource; print(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        per_mb = 1024**2
    command = [sys.executable, "-c", f"{code}\n{ask}"]
    ended = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
    return int(ended.stdout.split()[1]) / per_mb


def _environment() -> dict[str, str]:
    kept = dict(os.environ)  # noqa: TID251  # children start as a user's shell starts them
    return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}


def measure(rounds: int) -> list[Result]:
    """Take all figures in one interleaved run."""
    compileall.compile_dir(SOURCE, quiet=1)
    cases = {"bare": BARE, "import": IMPORT, "help": HELP, "everything": EVERYTHING}
    cpu = interleave({name: partial(child_cpu_s, a) for name, a in cases.items()}, rounds)
    cpu_s = {name: median(values) for name, values in cpu.items()}
    codes = {name: a[1] for name, a in cases.items() if a[0] == "-c"}
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
