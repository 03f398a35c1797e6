"""A loop is killed at every boundary of plan, step, check and review, and goes on."""

from __future__ import annotations

import loop_scenarios as scenarios


def test_a_killed_loop_repeats_nothing_and_reports_the_same(crash_matrix) -> None:
    report = crash_matrix(
        scenarios.run_loop, scenarios.check, random_kills=6, most=32, is_warm=True
    )
    assert report.kills >= 32
