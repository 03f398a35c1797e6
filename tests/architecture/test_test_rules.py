"""The rules of tests/conftest.py work themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


async def test_a_blocking_call_on_the_loop_is_refused(loop_stays_free: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"time\.sleep blocks"):
        time.sleep(0.001)  # noqa: ASYNC251
    assert loop_stays_free == ["time.sleep"]
    loop_stays_free.clear()


def test_a_blocking_call_beside_the_loop_is_allowed(loop_stays_free: list[str]) -> None:
    time.sleep(0.0001)
    assert loop_stays_free == []


SKIPPING = """
import pytest

@pytest.mark.skip(reason="no reason")
def test_marked(): ...

def test_skips_itself():
    pytest.skip("later")

@pytest.mark.xfail(reason="known")
def test_known_to_fail():
    assert False
"""


MODULE = "import pytest\npytest.skip('all of it', allow_module_level=True)\n"


def run_pytest(folder: Path, text: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "CI": ci}
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


def test_skipped_and_expected_failures_fail_in_ci(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, SKIPPING, ci="true")
    assert "2 failed, 1 error" in ended.stdout, ended.stdout
    assert ended.returncode == 1


def test_skipping_is_allowed_outside_ci(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, SKIPPING, ci="")
    assert "2 skipped, 1 xfailed" in ended.stdout, ended.stdout
    assert ended.returncode == 0


def test_a_module_that_skips_itself_fails_in_ci(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, MODULE, ci="true")
    assert "skipped itself in CI" in ended.stdout, ended.stdout
    assert ended.returncode != 0
