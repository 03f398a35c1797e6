"""An agent is killed at every moment between two charges; no charge is lost or made twice."""

from __future__ import annotations

import effect_scenarios as scenarios
import pytest


@pytest.mark.parametrize(
    ("scenario", "check"),
    [
        (scenarios.charge_idempotent, scenarios.check_once),
        (scenarios.charge_reconcile, scenarios.check_once),
        (scenarios.charge_unsafe, scenarios.check_once),
        (scenarios.charge_unsafe_again, scenarios.check_once),
        (scenarios.charge_read, scenarios.check_read),
    ],
)
def test_every_charge_happens_once_and_leaves_a_trace(crash_matrix, scenario, check) -> None:
    report = crash_matrix(scenario, check, random_kills=3, most=24, is_warm=True)
    assert report.kills >= 20
    assert sum(name.startswith("charge") for name in report.boundaries) == 2
