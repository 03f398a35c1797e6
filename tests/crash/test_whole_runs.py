"""A whole run (model, two tools, consent, answer) is killed everywhere and comes out the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import run_scenarios as scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.testing.crash import Nursery, name_scenario

_FURTHEST = 45
"""A little more than the write boundaries of one life; beyond the end nothing is killed."""


def test_a_run_killed_at_any_boundary_ends_as_if_nothing_had_happened(crash_matrix) -> None:
    report = crash_matrix(scenarios.sell, scenarios.check, random_kills=3, most=30, is_warm=True)
    named = [name.split(" ")[0] for name in report.boundaries]
    assert (named.count("model"), named.count("notes"), named.count("charges")) == (3, 1, 1)
    assert report.kills >= 25


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(name_scenario(scenarios.sell)) as started:
        yield started


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lives=st.lists(
        st.tuples(st.integers(1, _FURTHEST), st.sampled_from(["before", "after"])),
        min_size=2,
        max_size=4,
    )
)
def test_any_interleaving_of_crashes_gives_an_equivalent_transcript(
    nursery: Nursery, lives: list[tuple[int, str]]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "state"
        directory.mkdir()
        for place, when in lives:
            nursery.run(directory, kill_at=place, when=when)
        status, _ = nursery.run(directory)
        assert status == 0, Path(f"{directory}.output").read_text(errors="replace")[-2000:]
        asyncio.run(scenarios.check(directory))
        shutil.rmtree(directory)
