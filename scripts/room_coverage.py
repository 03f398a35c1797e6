"""Fail when a room that promised full branch coverage lost it.

The list only grows. Reads the combined data that `scripts/test` left behind.
"""

from __future__ import annotations

import io
import sys

import coverage

ROOMS = ["journal", "policy", "sessions", "turns"]


def missing_coverage(room: str) -> str:
    """Return the report of a room that is not wholly covered, or nothing."""
    data = coverage.Coverage()
    data.load()
    shown = io.StringIO()
    try:
        total = data.report(
            file=shown,
            include=[f"*/holdfast/{room}/*", f"*/holdfast/{room}.py"],
            show_missing=True,
            skip_covered=True,
        )
    except coverage.exceptions.NoDataError:
        return f"no line of {room} was measured\n"
    return "" if total == 100 else shown.getvalue()


def main() -> int:
    """Print one line per room, and what is missing."""
    status = 0
    for room in ROOMS:
        missing = missing_coverage(room)
        sys.stdout.write(f"{room}: {'NOT WHOLLY COVERED' if missing else '100 % of branches'}\n")
        sys.stdout.write(missing)
        status |= bool(missing)
    return status


if __name__ == "__main__":
    sys.exit(main())
