"""The pytest plugin of the crash kit: the fixture `crash_matrix`.

It imports the kit only when a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.crash import CrashReport

# Failures in the inherited suite then show their values, as in a test of one's own.
pytest.register_assert_rewrite(
    "holdfast.testing._conform_append",
    "holdfast.testing._conform_leases",
    "holdfast.testing._conform_rows",
    "holdfast.testing._conform_upkeep",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that repeat a failure."""
    group = parser.getgroup("holdfast crash kit")
    group.addoption("--crash-only", default="", help="repeat one kill, as a failure names it")
    group.addoption(
        "--crash-all", action="store_true", help="kill at every boundary, also where `most` is set"
    )
    group.addoption("--crash-seed", type=int, default=0, help="seed of the kills at random times")


@pytest.fixture
def crash_matrix(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CrashReport]:
    """Run a scenario in a child, kill it at every write boundary, check what is left.

    Call it with the scenario and the check; options are those of
    `holdfast.testing.crash.run_matrix`. Fails with a report when a kill broke an invariant.
    """
    from holdfast.testing import crash  # noqa: PLC0415 - costs nothing when unused

    def run(scenario: crash.Scenario, check: crash.Check, **options: Any) -> CrashReport:  # noqa: ANN401
        options.setdefault("only", request.config.getoption("--crash-only"))
        options.setdefault("seed", request.config.getoption("--crash-seed"))
        if request.config.getoption("--crash-all"):
            options["most"] = 0
        report = crash.run_matrix(scenario, check, directory=tmp_path, **options)
        if report.failures:
            raise crash.CrashFailed(report)
        return report

    return run
