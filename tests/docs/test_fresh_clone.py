"""A stranger clones the repository, and its two commands work.

Slow on purpose: it installs everything twice, as the README promises it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 900


class Stranger:
    """Somebody with a fresh clone, an empty home and no settings of ours."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.clone = place / "clone"
        self.home.mkdir()
        own = ("AGENT_", "HOLDFAST_", "COV", "PYTEST", "PYTHON", "VIRTUAL_ENV", "XDG_", "GIT_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        path = [p for p in kept["PATH"].split(os.pathsep) if not p.startswith(str(ROOT))]
        path.insert(0, f"{sys.base_prefix}/bin")  # their python3 is the one that tests
        # Wheels that were fetched before may be used again; nothing else of the old home.
        for name, folder in (("PIP_CACHE_DIR", "pip"), ("UV_CACHE_DIR", "uv")):
            kept[name] = kept.get(name) or str(Path.home() / ".cache" / folder)
        kept |= {"HOME": str(self.home), "PATH": os.pathsep.join(path)}
        kept |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory"}
        self.environment = {**kept, "GIT_CONFIG_VALUE_0": "*"}

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            command,
            cwd=cwd or self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended

    def installed(self) -> dict[str, int]:
        """What an installation would change: the stamps and the installed packages."""
        venv = self.clone / ".venv"
        seen = [*venv.glob("stamp-*"), *venv.glob("lib/python*/site-packages/*.dist-info")]
        return {str(path.relative_to(venv)): path.lstat().st_mtime_ns for path in seen}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    person = Stranger(tmp_path_factory.mktemp("stranger"))
    person.run("git", "clone", "--quiet", str(ROOT), str(person.clone), cwd=person.home)
    return person


def readme_command() -> list[str]:
    """Return the first command that the README shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\./scripts/run .*?(?=\s+#|$)", readme, re.MULTILINE)
    assert found, "the README starts with ./scripts/run"
    return shlex.split(found.group())


# One test, because each step needs the one before it and xdist may part them.
def test_the_two_commands_of_the_readme_work_in_a_fresh_clone(stranger: Stranger) -> None:
    first = stranger.run("./scripts/run", "--version")
    assert re.search(r"\d+\.\d+\.\d+", first.stdout)
    assert "installing" in first.stderr

    before = stranger.installed()
    assert any(name.startswith("stamp-") for name in before)
    version = "{}.{}".format(*sys.version_info)
    assert any(name.startswith(f"lib/python{version}/") for name in before)
    second = stranger.run("./scripts/run", "--version")
    assert second.stdout == first.stdout
    assert second.stderr == ""
    stranger.run(*readme_command())
    assert stranger.installed() == before, "a later call installs nothing"

    tested = stranger.run("./scripts/test", "tests/unit/test_ids.py", "-q")
    assert "passed" in tested.stdout
    with_everything = stranger.installed()
    assert stranger.run("./scripts/run", "--version").stdout == first.stdout
    stranger.run("./scripts/test", "tests/unit/test_ids.py", "-q", "-p", "no:cacheprovider")
    assert stranger.installed() == with_everything

    assert stranger.run("git", "status", "--porcelain").stdout == "", "leaves no untracked file"
