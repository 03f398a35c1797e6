"""Artifacts are killed at every boundary of save, delete, collect and rekey."""

from __future__ import annotations

import sys
from pathlib import Path

import artifact_scenarios as scenarios
import pytest
from postgres_server import PostgresServer

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from s3_server import serve_s3


@pytest.mark.parametrize("scenario", [scenarios.keep_files, scenarios.keep_rows])
def test_a_kill_at_any_boundary_leaves_no_damage_and_no_orphan(crash_matrix, scenario) -> None:
    report = crash_matrix(scenario, scenarios.check, most=24, is_warm=True)
    assert report.kills >= 24
    assert any("COMMIT" in name for name in report.boundaries)


def test_a_kill_around_any_request_to_a_bucket_leaves_no_damage_and_no_orphan(
    crash_matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_s3() as address:
        monkeypatch.setenv("TEST_S3", address)
        report = crash_matrix(scenarios.keep_objects, scenarios.check, most=8, random_kills=2)
    requests = {name.split()[0] for name in report.boundaries}
    assert {"PUT", "POST", "DELETE"} <= requests
    assert any("partNumber" in name or "uploadId" in name for name in report.boundaries)


def test_a_kill_around_any_change_of_a_database_leaves_no_damage_and_no_orphan(
    crash_matrix, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_POSTGRES", postgres.url(postgres.make_database()))
    report = crash_matrix(scenarios.keep_shared_rows, scenarios.check, most=10, random_kills=2)
    names = " ".join(report.boundaries)
    assert "INSERT INTO" in names
    assert "DELETE FROM" in names
