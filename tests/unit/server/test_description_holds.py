"""A real server is asked what its description allows, and what not: no 5xx, nothing undescribed.

The short form of `scripts/fuzz-server`, which `./scripts/soak` runs whole: every operation here,
with few examples.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_server_answers_as_its_description_says() -> None:
    words = ["--phases", "fuzzing", "--max-examples", "1", "--generation-deterministic"]
    ended = subprocess.run(
        [str(ROOT / "scripts" / "fuzz-server"), *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"HOLDFAST_LOG_LEVEL": "warning"},
    )
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
    assert "Tested: " in ended.stdout and "Fuzzing" in ended.stdout
