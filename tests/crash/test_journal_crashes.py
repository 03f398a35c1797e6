"""The journal is killed at every moment at which it writes; nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import journal_scenarios as scenarios
import pytest

from holdfast.journal import Event, Journal, SqliteStore, verify
from holdfast.testing._store_samples import SAMPLE_TABLES
from holdfast.testing.crash import Nursery, name_scenario


@pytest.mark.parametrize("scenario", [scenarios.append_in_process, scenarios.append_for_power_cuts])
def test_a_kill_at_any_boundary_loses_nothing(crash_matrix, scenario) -> None:
    report = crash_matrix(scenario, scenarios.check_journal)
    assert report.kills >= 50
    assert any("COMMIT" in name for name in report.boundaries)
    assert any("replace" in name for name in report.boundaries)


async def verified_events(directory: Path) -> list[Event]:
    async with Journal(SqliteStore(directory / "journal.db", projections=SAMPLE_TABLES)) as journal:
        assert await verify(journal.store) == []
        return await journal.read_all("s1")


def test_a_thousand_acknowledged_appends_survive_fifty_kills(tmp_path: Path) -> None:
    source = random.Random(2)
    directory = tmp_path / "state"
    directory.mkdir()
    with Nursery(name_scenario(scenarios.append_many)) as nursery:
        kills = 0
        # A slow machine needs more lives for as many appends.
        while kills < 50 or (len(scenarios.acknowledged(directory)) < 1000 and kills < 500):
            status, _ = nursery.run(directory, kill_after_s=source.uniform(0.06, 0.2))
            assert status == -9
            kills += 1
    told = scenarios.acknowledged(directory)
    assert len(told) >= 1000
    events = asyncio.run(verified_events(directory))
    assert [event.session_seq for event in events] == list(range(1, len(events) + 1))
    assert set(told) <= {event.session_seq for event in events}
    assert len(told) == len(set(told))
    assert events[-1].epoch > 1
