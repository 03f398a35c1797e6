"""Agents that let others work are killed at every moment; nothing is lost or done twice."""

from __future__ import annotations

import delegation_scenarios as scenarios
import pytest


@pytest.mark.parametrize(
    ("scenario", "check", "errands"),
    [
        (scenarios.delegate, scenarios.check_one, 1),
        (scenarios.side_by_side, scenarios.check_two, 2),
        (scenarios.by_task_tool, scenarios.check_two, 2),
        (scenarios.with_consent, scenarios.check_one, 1),
    ],
)
def test_every_child_works_once_whenever_its_parent_is_killed(
    crash_matrix, scenario, check, errands
) -> None:
    report = crash_matrix(scenario, check, random_kills=3, most=20, is_warm=True)
    assert report.kills >= 15
    assert sum(name.startswith("work") for name in report.boundaries) == errands


@pytest.mark.parametrize(
    ("scenario", "check"),
    [
        (scenarios.as_tool, scenarios.check_one),
        (scenarios.hand_off, scenarios.check_hand_off),
    ],
)
def test_agent_in_a_tool_works_once_whenever_its_caller_is_killed(
    crash_matrix, scenario, check
) -> None:
    # The way down is the task tool's, which the test above crosses more closely.
    report = crash_matrix(scenario, check, random_kills=1, most=8)
    assert report.kills >= 8
    assert sum(name.startswith("work") for name in report.boundaries) == 1
