"""What `pip install holdfast` brings, without any extra, is enough for the key paths.

Issue 20, 11; SPEC 6.2. The environment is made of links to the packages that the base
requirements lead to, so that nothing else can be imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the base packages, and what they need, only."""
    folder = tmp_path_factory.mktemp("base")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    seen: set[str] = set()
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name in seen or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        waiting += map(Requirement, found.requires or ())
        for top in {Path(path).parts[0] for path in found.files or () if ".." not in str(path)}:
            place = Path(str(found.locate_file(top)))
            if top not in ("bin", "__pycache__") and place.exists() and not (folder / top).exists():
                (folder / top).symlink_to(place)
    # Our own metadata: what `doctor` reads about extras.
    own = importlib.metadata.distribution("holdfast")
    info = next(Path(path).parts[0] for path in own.files or () if ".dist-info" in str(path))
    (folder / info).symlink_to(Path(str(own.locate_file(info))))
    return folder


def run(packages: Path, state: Path, *command: str) -> subprocess.CompletedProcess[str]:
    keep = ("PATH", "LANG")
    return subprocess.run(
        [sys.executable, "-S", *command],
        env={
            **{name: os.environ[name] for name in keep if name in os.environ},
            "PYTHONPATH": f"{packages}{os.pathsep}{ROOT / 'src'}",
            "HOME": str(state),
        },
        cwd=state,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_package_of_an_extra_is_there(packages: Path, tmp_path: Path) -> None:
    for name in ("numpy", "tokenizers", "wordllama", "uvicorn", "mcp", "regex", "stamina"):
        done = run(packages, tmp_path, "-c", f"import {name}")
        assert "ModuleNotFoundError" in done.stderr, name


def test_every_room_can_be_imported(packages: Path, tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil, holdfast\n"
        "for one in pkgutil.iter_modules(holdfast.__path__):\n"
        "    if one.name not in ('__main__', 'testing'):\n"
        "        importlib.import_module(f'holdfast.{one.name}')\n"
        "from holdfast import *\n"
    )
    done = run(packages, tmp_path, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_agent_runs_with_its_tool(packages: Path, tmp_path: Path) -> None:
    code = (
        "from holdfast import Agent, tool\n"
        "@tool(effect='read')\n"
        "def multiply(a: int, b: int) -> int:\n"
        "    'Multiply two numbers.'\n"
        "    return a * b\n"
        "print(Agent('helper', tools=[multiply]).run_sync('What is 15 times 23?').response)\n"
    )
    done = run(packages, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "345" in done.stdout


def test_memories_are_found_by_words_and_what_is_missing_is_told_once(
    packages: Path, tmp_path: Path
) -> None:
    code = (
        "from holdfast import Client\n"
        "with Client('state') as client:\n"
        "    one = client.sessions.create('Trip').id\n"
        "    client.memory.store(one, 'The flight to Oslo leaves at 07:40', {'type': 'fact'})\n"
        "    client.memory.store(one, 'The hotel is near the harbour')\n"
        "    for query in ('when is the flight', 'harbour hotel'):\n"
        "        print(client.memory.search(one, query)[0].content)\n"
        "    print(client.memory.stats().memories)\n"
    )
    done = run(packages, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "The flight to Oslo leaves at 07:40",
        "The hotel is near the harbour",
        "2",
    ]
    told = [line for line in done.stderr.splitlines() if "memory.by_words_only" in line]
    assert len(told) == 1 and "holdfast[memory]" in told[0]
    again = run(packages, tmp_path, "-c", code)
    assert again.returncode == 0 and "by_words_only" not in again.stderr


def test_command_line_works_and_doctor_names_the_extra_once(packages: Path, tmp_path: Path) -> None:
    assert run(packages, tmp_path, "-m", "holdfast", "--help").returncode == 0
    doctor = run(packages, tmp_path, "-m", "holdfast", "doctor", "--json")
    checks = {one["name"]: one for one in json.loads(doctor.stdout)["checks"]}
    assert checks["memory search"]["status"] == "warn"
    assert checks["memory search"]["fix"] == "pip install 'holdfast[memory]'"
    added = run(packages, tmp_path, "-m", "holdfast", "memory", "add", "The gate is green")
    assert added.returncode == 0, added.stderr
    found = run(packages, tmp_path, "-m", "holdfast", "memory", "search", "which gate")
    assert "The gate is green" in found.stdout, found.stderr
    assert "holdfast[memory]" in found.stderr
    found = run(packages, tmp_path, "-m", "holdfast", "memory", "search", "which gate")
    assert "The gate is green" in found.stdout and "by_words_only" not in found.stderr
    done = run(packages, tmp_path, "-m", "holdfast", "run", "What is 15 times 23?")
    assert done.returncode == 0, done.stderr


def test_what_needs_an_extra_names_it(packages: Path, tmp_path: Path) -> None:
    done = run(packages, tmp_path, "-m", "holdfast", "serve")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert re.search(r"holdfast\[server\]", done.stderr)
