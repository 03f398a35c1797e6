"""Artifacts are killed at every boundary of save, delete, collect and rekey."""

from __future__ import annotations

import artifact_scenarios as scenarios
import pytest


@pytest.mark.parametrize("scenario", [scenarios.keep_files, scenarios.keep_rows])
def test_a_kill_at_any_boundary_leaves_no_damage_and_no_orphan(crash_matrix, scenario) -> None:
    report = crash_matrix(scenario, scenarios.check, most=24, is_warm=True)
    assert report.kills >= 24
    assert any("COMMIT" in name for name in report.boundaries)
