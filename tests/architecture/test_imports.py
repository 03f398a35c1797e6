"""Rooms only look down, and importing Holdfast costs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_every_folder_of_the_source_is_a_package() -> None:
    folders = {file.parent for file in (ROOT / "src").rglob("*.py")} - {ROOT / "src"}
    blind = [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()]
    assert blind == [], "import contracts do not see a folder without __init__.py"


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


def test_every_package_that_is_imported_is_declared() -> None:
    graph = grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)
    outside = {module for module in graph.modules if not module.startswith("holdfast")}
    outside -= {*sys.stdlib_module_names, "agent"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    # pytest: the kit's plugins run inside the user's own; pydantic pins its own core.
    declared |= {"pytest", "pydantic-core"}
    homes = packages_distributions()
    homeless = {
        module
        for module in outside
        if not {canonicalize_name(name) for name in homes.get(module, [module])} & declared
    }
    assert homeless == set(), "name them in pyproject.toml, then run ./scripts/lock"
