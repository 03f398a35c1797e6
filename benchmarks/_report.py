"""What every benchmark shares: measure in turns, take medians, print one table.

A benchmark builds a list of `Result` and hands it to `report`. Figures that are
compared come from one run in which the cases alternate (`interleave`), so that a
busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure with its goal in words; `ok` is None when it only informs."""

    metric: str
    value: float
    goal: str = ""
    ok: bool | None = None
    note: str = ""


def arguments(description: str = "") -> argparse.Namespace:
    """Parse `--quick` (done within a minute) and `--json` (one JSON list on stdout)."""
    parser = argparse.ArgumentParser(description=description)
    add_arguments(parser)
    return parser.parse_args()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser of a benchmark's own take the same."""
    parser.add_argument("--quick", action="store_true", help="fewer rounds; below a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON list, nothing else")


def interleave(cases: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure every case once per round, in turns, after one round that does not count."""
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, measure in cases.items():
            value = measure()
            if turn:
                figures[name].append(value)
    return figures


def report(results: Sequence[Result], as_json: bool = False) -> int:
    """Print the results; return 1 if a goal was missed, for `sys.exit`."""
    if as_json:
        sys.stdout.write(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    else:
        sys.stdout.write(_table(results))
    return int(any(result.ok is False for result in results))


def _table(results: Sequence[Result]) -> str:
    verdict = {True: "ok", False: "MISSED", None: ""}
    rows = [("metric", "value", "goal", "", "note")]
    rows += [(r.metric, f"{r.value:,.4g}", r.goal, verdict[r.ok], r.note) for r in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].rjust(widths[1])]
        cells += [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"
