"""Rooms only look down, and importing Holdfast costs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]


def test_import_contracts_are_kept() -> None:
    script = "from importlinter.cli import lint_imports_command as run; run()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "--config", "importlinter.ini", "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_only_tools_reach_the_sandbox() -> None:
    graph = grimp.build_graph("holdfast", cache_dir=None)
    allowed = ("holdfast.sandbox", "holdfast.tools", "holdfast.testing")
    offenders = [
        f"{importer} -> {imported}"
        for imported in graph.modules
        if imported == "holdfast.sandbox" or imported.startswith("holdfast.sandbox.")
        for importer in graph.find_modules_that_directly_import(imported)
        if not importer.startswith(allowed)
    ]
    assert offenders == []


def loaded_modules(code: str) -> set[str]:
    """Run `code` in a fresh interpreter; return the top-level modules loaded at its end."""
    report = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    # Coverage would load modules of its own into the child.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    command = [sys.executable, "-c", f"{report}\n{code}"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return {name.split(".")[0] for name in ended.stderr.splitlines()[-1].split()}


HEAVY = {"asyncio", "pydantic", "rich", "aiohttp", "yaml"}


def test_importing_holdfast_loads_no_other_package() -> None:
    before = loaded_modules("import importlib, typing")
    third_party = loaded_modules("import holdfast") - before - sys.stdlib_module_names
    assert third_party == {"holdfast"}


def test_importing_holdfast_loads_nothing_heavy_of_the_standard_library() -> None:
    heavy = {"asyncio", "sqlite3", "ssl", "subprocess", "email", "logging"}
    assert loaded_modules("import holdfast") & heavy == set()


@pytest.mark.parametrize("package", ["holdfast", "agent"])
def test_help_loads_nothing_heavy(package: str) -> None:
    code = f"import runpy, sys; sys.argv = ['holdfast', '--help']; runpy.run_module({package!r}, "
    code += "run_name='__main__', alter_sys=True)"
    assert loaded_modules(code) & HEAVY == set()


def test_help_says_what_holdfast_is() -> None:
    command = [sys.executable, "-m", "holdfast", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "Usage" in ended.stdout
