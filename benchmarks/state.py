"""What state costs: a get beside a bare SELECT, a set beside a bare INSERT.

    python benchmarks/state.py [--quick] [--json]

Both sides keep the same JSON value by key in SQLite with the same settings (WAL, durability
`process`), one transaction for each write. Ours is `ScopedState` with the journal on: the fact in
its hash chain, secrets looked for, the row, the version checked. The bare side is one statement
of the standard library and the JSON. Figures that are compared alternate in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _report import Result, add_arguments, report

from holdfast import AsyncClient
from holdfast.state import ScopedState

GET_GOAL = 2.0
SET_GOAL = 3.0
KEYS = 64
VALUE = {
    "language": "de",
    "theme": "dark",
    "steps": [1, 2, 3],
    "note": "a value of usual size " * 4,
}


class Bare:
    """Keeps values with one statement each."""

    def __init__(self, path: Path) -> None:
        """Open a file as the journal's is opened."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(
            "CREATE TABLE state (key TEXT PRIMARY KEY, version INTEGER, value BLOB) WITHOUT ROWID"
        )
        self._connection.execute(
            "CREATE TABLE log (seq INTEGER PRIMARY KEY, key TEXT, time REAL, value BLOB)"
        )

    def fill(self) -> None:
        """Store every key once."""
        for number in range(KEYS):
            data = json.dumps(VALUE).encode()
            self._connection.execute("INSERT INTO state VALUES (?, 1, ?)", (f"k{number}", data))

    def get(self, key: str) -> object:
        """Read one value."""
        found = self._connection.execute(
            "SELECT value, version FROM state WHERE key = ?", (key,)
        ).fetchone()
        value: object = json.loads(found[0])
        return value

    def insert(self, key: str) -> None:
        """Store one value, in a transaction of its own."""
        data = json.dumps(VALUE).encode()
        self._connection.execute(
            "INSERT INTO log (key, time, value) VALUES (?, ?, ?)", (key, 0.5, data)
        )

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()


async def measure(quick: bool) -> list[Result]:
    """Compare in blocks that alternate; returns the medians of the ratios."""
    rounds, calls = (15, 150) if quick else (60, 400)
    with tempfile.TemporaryDirectory() as place:
        bare = Bare(Path(place) / "bare.db")
        bare.fill()
        async with AsyncClient(Path(place) / "state") as client:
            state = (await client.state.manager()).scope("user")
            for number in range(KEYS):
                await state.set(f"k{number}", VALUE)
            results = await compare(state, bare, rounds, calls)
        bare.close()
    return results


async def compare(state: ScopedState, bare: Bare, rounds: int, calls: int) -> list[Result]:
    """Time blocks of calls, ours and bare ones in turn."""
    spent: dict[str, list[float]] = {"get": [], "select": [], "set": [], "insert": []}
    keys = [f"k{number % KEYS}" for number in range(calls)]
    for _ in range(rounds + 2):
        begun = time.process_time()
        for key in keys:
            await state.get(key)
        spent["get"].append(time.process_time() - begun)
        spent["select"].append(timed(bare.get, keys))
        begun = time.process_time()
        for key in keys:
            await state.set(key, VALUE)
        spent["set"].append(time.process_time() - begun)
        spent["insert"].append(timed(bare.insert, keys))
    # The first rounds warm the caches of both.
    per_call = {name: 1e6 * statistics.median(times[2:]) / calls for name, times in spent.items()}
    get = statistics.median(
        a / b for a, b in zip(spent["get"][2:], spent["select"][2:], strict=True)
    )
    set_ = statistics.median(
        a / b for a, b in zip(spent["set"][2:], spent["insert"][2:], strict=True)
    )
    return [
        Result(
            metric="state get ÷ bare SELECT",
            value=get,
            goal=f"≤ {GET_GOAL:g}",
            ok=get <= GET_GOAL,
            note=f"{per_call['get']:.1f} µs and {per_call['select']:.1f} µs",
        ),
        Result(
            metric="state set ÷ bare INSERT, journal on",
            value=set_,
            goal=f"≤ {SET_GOAL:g}",
            ok=set_ <= SET_GOAL,
            note=f"{per_call['set']:.1f} µs and {per_call['insert']:.1f} µs",
        ),
    ]


def timed(function: Callable[[str], object], keys: list[str]) -> float:
    """Return the seconds that a block of calls takes."""
    begun = time.process_time()
    for key in keys:
        function(key)
    return time.process_time() - begun


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What state costs.")
    add_arguments(parser)
    options = parser.parse_args()
    return report(asyncio.run(measure(options.quick)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
