"""A workflow is killed at every write; it goes on at the unfinished step, with one result."""

from __future__ import annotations

import workflow_scenarios as scenarios


def test_no_completed_step_is_repeated_wherever_it_was_killed(crash_matrix) -> None:
    report = crash_matrix(
        scenarios.run_everything, scenarios.check_once, random_kills=2, most=25, is_warm=True
    )
    assert report.kills >= 25
    assert sum(name.startswith("work") for name in report.boundaries) == 5


def test_every_event_fires_once_wherever_the_loop_was_killed(crash_matrix) -> None:
    report = crash_matrix(
        scenarios.fire_orders, scenarios.check_orders, random_kills=2, most=25, is_warm=True
    )
    assert sum(name.startswith("work") for name in report.boundaries) == 1
