"""Killed, stopped and misled processes: each effect happens once, and questions are true.

The whole of it is in `scripts/soak`: 1,000 kills, 100 stopped processes, 20 steps of the clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STORM = Path(__file__).with_name("lease_storm.py")


@pytest.mark.parametrize(
    ("what", "count"), (("kills", 12), ("zombies", 4), ("steps", 2)), ids=("kill", "stop", "step")
)
def test_no_effect_happens_twice_and_none_is_lost(what: str, count: int) -> None:
    numbers = {"kills": 0, "zombies": 0, "steps": 0, what: count}
    words = [word for name, wanted in numbers.items() for word in (f"--{name}", str(wanted))]
    ended = subprocess.run(
        [sys.executable, str(STORM), *words], capture_output=True, text=True, timeout=290
    )
    told = json.loads(ended.stdout)
    assert told["troubles"] == [], ended.stderr
    assert ended.returncode == 0
    assert told[what] >= count
