"""Rooms only look down, and importing Holdfast costs next to nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections import Counter
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


def declared_packages(*groups: str) -> set[str]:
    """Return what pyproject.toml names: the base, all extras, and these groups."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = list(content["project"]["dependencies"])
    texts += sum(content["project"]["optional-dependencies"].values(), [])
    for group in groups:
        texts += [text for text in content["dependency-groups"][group] if isinstance(text, str)]
    # pytest: the kit's plugins run inside the user's own; pydantic pins its own core.
    return {canonicalize_name(Requirement(text).name) for text in texts} | {
        "pytest",
        "pydantic-core",
    }


def undeclared(modules: set[str], declared: set[str]) -> set[str]:
    homes = packages_distributions()
    return {
        module
        for module in modules - sys.stdlib_module_names
        if not {canonicalize_name(name) for name in homes.get(module, [module])} & declared
    }


def test_every_package_that_is_imported_is_declared() -> None:
    graph = grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)
    outside = {module for module in graph.modules if not module.startswith("holdfast")}
    missing = undeclared(outside, declared_packages())
    assert missing == set(), "name them in pyproject.toml, then run ./scripts/lock"


def test_every_package_that_tests_and_benchmarks_import_is_declared() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    # Peers run in an environment of their own.
    files = [file for file in files if file.parent.name != "_peers"]
    own = {"holdfast", "tests", *(file.stem for file in files)}
    imported = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    come_along = {"grimp", "packaging"}  # with import-linter and pytest
    missing = undeclared(imported - own - come_along, declared_packages("dev", "build"))
    assert missing == set(), "name them in the group dev of pyproject.toml"


def test_what_tests_share_has_names_of_its_own() -> None:
    shared = Counter(
        path.stem
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith(("test_", "conftest", "__"))
    )
    assert [name for name, count in shared.items() if count > 1] == []
    assert set(shared) & sys.stdlib_module_names == set()
