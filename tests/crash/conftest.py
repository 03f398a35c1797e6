"""Children of a matrix are not measured: those that are killed could not tell anyway."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def children_of_a_matrix_are_not_measured(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let their lives cost a third less; what they execute is measured by other tests."""
    if "crash_matrix" in request.fixturenames:
        for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
            monkeypatch.delenv(name)
