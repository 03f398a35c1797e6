"""The way of a turn: which files and functions of ours one turn with one tool passes.

A run of one tool call and an answer, over HTTP, in a session that the run begins, with a
client and an agent that have run before. Fewer places are quicker to read, and quicker: the
time of a turn follows the misses of the cache. Prints the path in the order in which it is
first passed; nothing here is a duration.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from _report import Result, add_arguments, report
from runtime import make_agent, our_run
from wire import Bench, served

from holdfast import AsyncClient

SOURCE = str(Path(__file__).parents[1] / "src" / "holdfast") + "/"
MOST_FILES, MOST_FUNCTIONS = 60, 230
WARM_UP = 3


class Passed:
    """Notes every function of ours that is entered, once, in order."""

    def __init__(self) -> None:
        """Nothing was passed yet."""
        self.calls = 0
        self.functions: dict[tuple[str, str, int], int] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401
        """Take one event of `sys.setprofile`."""
        if event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        self.calls += 1
        key = (code.co_filename[len(SOURCE) :], code.co_qualname, code.co_firstlineno)
        self.functions[key] = self.functions.get(key, 0) + 1

    def files(self) -> dict[str, list[str]]:
        """Return the functions by file, both in the order in which they are first passed."""
        found: dict[str, list[str]] = {}
        for (name, function, _), count in self.functions.items():
            found.setdefault(name, []).append(function + (f" x{count}" if count > 1 else ""))
        return found


def walk(run: Callable[[], None]) -> Passed:
    """Follow one run."""
    path = Passed()
    sys.setprofile(path)
    try:
        run()
    finally:
        sys.setprofile(None)
    return path


def measure() -> Passed:
    """Run a turn until everything is warm, then once more and look."""
    with served("--rounds", "1") as base_url, tempfile.TemporaryDirectory() as folder:
        bench = Bench(base_url)
        loop = bench.loop
        agent = make_agent(bench.model())
        client = AsyncClient(folder)
        try:
            for _ in range(WARM_UP):
                loop.run_until_complete(our_run(client, agent))
            return walk(lambda: loop.run_until_complete(our_run(client, agent)))
        finally:
            loop.run_until_complete(client.close())
            bench.close()


def main() -> int:
    """Print the path and its length."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    path = measure()
    files = path.files()
    if not options.json:
        for name, functions in files.items():
            sys.stdout.write(f"{name} ({len(functions)})\n    {', '.join(functions)}\n")
    passed = len(path.functions)
    return report(
        [
            Result(
                metric="files of a turn with one tool",
                value=len(files),
                goal=f"<= {MOST_FILES}",
                ok=len(files) <= MOST_FILES,
            ),
            Result(
                metric="functions of a turn with one tool",
                value=passed,
                goal=f"<= {MOST_FUNCTIONS}",
                ok=passed <= MOST_FUNCTIONS,
            ),
            Result(metric="calls of functions", value=path.calls, note="two answers, one call"),
        ],
        options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
