"""The applications of the seeds, and the ways to share state, print what they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

APPLICATION = """\
  begun: A day at the office
  custom_calculator {'operation': 'multiply', 'a': 15, 'b': 23}
15 × 23 = 345 (accountant)
  skill {'name': 'what-to-wear'}
  custom_weather {'city': 'Oslo'}
Rain in Oslo: take a coat. (forecaster)
You are planning a trip to Oslo. (secretary)
remembered: The user is planning a trip to Oslo
used: custom_weather (completed)
used: skill (completed)
used: custom_calculator (completed)
  put away: A day at the office
"""


HEARD = """\
ann heard 'The build is red' from speaker
ann heard 'The build is green' from speaker
bob heard 'The build is red' from speaker
bob heard 'The build is green' from speaker
"""
WRITTEN = """\
{'costs': 'Low.', 'risks': 'None.', 'summary': 'Short.'}
state.conflict
"""
PIPED = """\
{'item': 'kettle', 'price': 40.0, 'total': 50.0}
kettle
1 set 0.0
2 update 50.0
"""
REPORTED = """\
mole: the ground is wet; owl: the night is clear
news: None
"""


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("math_help.py", "15 * 23 = 345\n"),
        ("custom_agent_app.py", APPLICATION),
        ("state_broadcast.py", HEARD),
        ("state_request_response.py", "What is six times seven? 42\n"),
        ("state_collaborative.py", WRITTEN),
        ("state_pipeline.py", PIPED),
        ("state_hierarchical.py", REPORTED),
    ],
)
def test_an_application_prints_what_it_should(name: str, printed: str, tmp_path: Path) -> None:
    own = ("AGENT_", "OPENAI", "XDG_", "COV")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=kept | {"HOME": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (0, printed), ended.stderr
