"""Rules that hold for every test: nothing skips in CI, nothing blocks the loop."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Test files mirror the source, so two rooms may both have a test_registry.py: pytest imports
# each by its path (importlib mode). What tests share lies beside them and is imported by name.
for _helper in Path(__file__).parent.rglob("*.py"):
    if not _helper.name.startswith(("test_", "conftest", "__")):
        sys.path[:0] = [] if str(_helper.parent) in sys.path else [str(_helper.parent)]

IN_CI = bool(os.environ.get("CI"))

# CI tries the same examples each time, so that a change is judged by what it changes; everybody
# else, and ./scripts/soak most of all, looks for new ones.
settings.register_profile("default", deadline=None, max_examples=100, derandomize=IN_CI)
settings.load_profile("default")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that skips, or is expected to fail, fails."""
    report = yield
    if IN_CI and (report.skipped or hasattr(report, "wasxfail")):
        reason = getattr(report, "wasxfail", None) or str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} did not run in CI, where nothing may skip: {reason}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a whole module that skips itself fails."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped itself in CI: {report.longrepr}"
    return report


class BlockedLoop(AssertionError):
    """A call that waits was made on the thread of a running event loop."""


_BLOCKING: list[tuple[Any, str, Callable[..., bool]]] = [
    (time, "sleep", lambda seconds, *_: seconds > 0),
    (socket, "getaddrinfo", lambda *_, **__: True),
    (socket, "gethostbyname", lambda *_: True),
    (subprocess.Popen, "wait", lambda process, *_, **__: process.poll() is None),
    (subprocess.Popen, "communicate", lambda *_, **__: True),
]


@pytest.fixture(scope="session", autouse=True)
def _watch_for_blocking_calls() -> Iterator[list[str]]:
    """Replace calls that wait by ones that refuse to do so on a running loop."""
    seen: list[str] = []

    def watched(name: str, call: Callable[..., Any], waits: Callable[..., bool]) -> Any:
        @functools.wraps(call)
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if asyncio._get_running_loop() is not None and waits(*args, **kwargs):
                seen.append(name)
                raise BlockedLoop(f"{name} blocks the event loop")
            return call(*args, **kwargs)

        return refuse

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, waits in _BLOCKING:
            full_name = f"{owner.__name__}.{name}"
            patch.setattr(owner, name, watched(full_name, getattr(owner, name), waits))
        yield seen


@pytest.fixture(autouse=True)
def loop_stays_free(_watch_for_blocking_calls: list[str]) -> Iterator[list[str]]:
    """Fail a test in which something blocked the loop, even where the error was caught."""
    _watch_for_blocking_calls.clear()
    yield _watch_for_blocking_calls
    assert not _watch_for_blocking_calls, f"blocked the event loop: {_watch_for_blocking_calls}"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Postgres server of this test session."""
    from postgres_server import PostgresServer  # noqa: PLC0415 - only where it is used

    with tempfile.TemporaryDirectory(prefix="hf-pg-") as folder:
        server = PostgresServer(Path(folder) / "data")
        yield server
        server.server.cleanup()


@pytest.fixture(scope="session", autouse=os.environ.get("TEST_STORE") == "postgres")
def _keep_records_in_postgres(request: pytest.FixtureRequest) -> None:
    """Run any test on Postgres that names no store: `TEST_STORE=postgres`."""
    from postgres_memories import keep_memories_in_postgres  # noqa: PLC0415 - only where used
    from postgres_server import use_by_default  # noqa: PLC0415 - only where it is used

    use_by_default(request.getfixturevalue("postgres"))
    keep_memories_in_postgres(request.getfixturevalue("postgres"))
