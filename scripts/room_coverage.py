"""Fail when a room that promised full branch coverage lost it.

The list of rooms only grows. Reads the combined data that `scripts/test` left behind; `--tests`
prints the tests that it measures instead. A branch that only other tests reach counts as missed:
give its room a test.
"""

from __future__ import annotations

import io
import sys

import coverage

ROOMS = ["journal", "policy", "sessions", "turns"]
TESTS = [
    *(f"tests/unit/{room}" for room in ROOMS),
    "tests/contract/test_stores.py",
    "tests/upgrade",
    "tests/property/test_budgets.py",
    "tests/property/test_journal_model.py",
    "tests/property/test_journal_tampering.py",
    "tests/property/test_sessions_import_fuzz.py",
    "tests/property/test_sessions_machine.py",
    "tests/property/test_windowed_transcripts.py",
    "tests/behaviour/audit",
    "tests/behaviour/budgets",
    "tests/behaviour/test_all_in_postgres.py",
    "tests/behaviour/test_hooks.py",
    "tests/behaviour/test_moving_house.py",
    "tests/unit/client/test_audit_at_rest.py",
    "tests/unit/memory/test_postgres_memory.py",
    "tests/unit/runtime/test_anchors.py",
]


def find_missing(room: str) -> str:
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
    if sys.argv[1:] == ["--tests"]:
        sys.stdout.write("\n".join(TESTS) + "\n")
        return 0
    status = 0
    for room in ROOMS:
        missing = find_missing(room)
        sys.stdout.write(f"{room}: {'NOT WHOLLY COVERED' if missing else '100 % of branches'}\n")
        sys.stdout.write(missing)
        status |= bool(missing)
    return status


if __name__ == "__main__":
    sys.exit(main())
