"""Machine instructions of a piece of work, counted by valgrind.

Time varies with whatever else the machine does; instructions hardly do. They leave out what the
kernel does and what waiting for memory costs, so they compare versions, and prove no goal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

_COUNT = [
    # Otherwise every process would order its sets differently, and work differently hard.
    *("env", "PYTHONHASHSEED=0"),
    *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
]
_TOTAL = re.compile(r"I\s+refs:\s+([\d,]+)")


def per_time(script: str, work: str, times: int) -> float:
    """Return the instructions of one time of a work.

    `script --work NAME TIMES` does it so many times. What starting costs is taken off: it is
    counted in both of two runs, of which one does the work three times as often.
    """
    if shutil.which("valgrind") is None:
        sys.exit("Counting instructions needs valgrind (Debian: apt install valgrind).")
    few, many = (
        _counted([sys.executable, script, "--work", work, str(n)]) for n in (times, 3 * times)
    )
    return (many - few) / (2 * times)


def _counted(command: Sequence[str]) -> int:
    ended = subprocess.run([*_COUNT, *command], capture_output=True, text=True, check=False)
    found = _TOTAL.findall(ended.stderr)
    if ended.returncode or not found:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    return int(found[-1].replace(",", ""))
