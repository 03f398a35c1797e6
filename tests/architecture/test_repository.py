"""What may and may not stand in tracked files."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not find itself.
REGISTRIES = ["py" + "pi.org", "python" + "hosted.org", "registry.npm" + "js.org"]
MACHINE_PATHS = ["/root/.py" + "env", "/opt/py" + "pi", "/opt/wh" + "eels", "/tmp/ve" + "nv"]


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def find_in_tracked_files(needles: list[str]) -> list[str]:
    pattern = re.compile("|".join(re.escape(needle) for needle in needles).encode())
    return [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        if (match := pattern.search(path.read_bytes()))
    ]


def test_no_tracked_file_names_a_package_registry() -> None:
    assert find_in_tracked_files(REGISTRIES) == []


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    paths = [*MACHINE_PATHS]
    if len(ROOT.parts) > 2:  # a checkout in `/src` would find every `/src`
        paths.append(f"{ROOT}/")
    assert find_in_tracked_files(paths) == []


LOCKS = ["requirements.lock", "requirements-run.lock"]


def pins(lock: str) -> dict[str, list[Requirement]]:
    """Return the pinned requirements of a lock file by name."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            pin = Requirement(line.removesuffix("\\").strip())
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_pins_and_hashes_only(lock: str) -> None:
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        pin = re.fullmatch(r"[a-z0-9._-]+==[A-Za-z0-9.+]+( ; [^\\]+)? \\", line)
        sha = re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)
        assert pin or sha, line


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_brings_no_gpu_stack(lock: str) -> None:
    heavy = re.compile(r"torch|nvidia|cuda|tensorflow|jax")
    assert [name for name in pins(lock) if heavy.search(name)] == []


def declared(groups: list[str], extras: list[str]) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = list(project["project"]["dependencies"])
    for extra in extras or project["project"]["optional-dependencies"]:
        texts += project["project"]["optional-dependencies"][extra]
    for group in groups:
        texts += [t for t in project["dependency-groups"][group] if isinstance(t, str)]
    return [need for need in map(Requirement, texts) if need.name != "holdfast"]


@pytest.mark.parametrize(
    ("lock", "groups", "extras"),
    [
        ("requirements.lock", ["build", "dev"], []),
        ("requirements-run.lock", ["build"], ["fast", "memory"]),
    ],
)
def test_a_lock_fits_what_pyproject_declares(
    lock: str, groups: list[str], extras: list[str]
) -> None:
    locked = pins(lock)
    stale = []
    for need in declared(groups, extras):
        versions = [
            next(iter(pin.specifier)).version
            for pin in locked.get(canonicalize_name(need.name), [])
            if pin.marker is None or pin.marker.evaluate(default_environment())
        ]
        if not versions or not all(need.specifier.contains(v, prereleases=True) for v in versions):
            stale.append(f"{need} (locked: {versions})")
    assert stale == [], "run ./scripts/lock"


def test_both_locks_pin_the_same_versions() -> None:
    full, small = (
        {f"{name}{pin.specifier}" for name, found in pins(lock).items() for pin in found}
        for lock in LOCKS
    )
    assert small - full == set()


def test_the_extra_all_holds_every_other_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(extras) - {"all"}


# What a package is imported as, or read from, where that is not its name.
MODULES = {
    "pyjwt": "jwt",
    "psycopg-pool": "psycopg_pool",
    "ast-grep-py": "ast_grep_py",
    "bpe-openai": "bpe_openai",
    "prometheus-client": "prometheus_client",
    "mcp-types": "mcp_types",
    "opentelemetry-proto": "opentelemetry",
    "prompt-toolkit": "prompt_toolkit",
    "agent-client-protocol": "acp",
    "pyyaml": "yaml",
    "genai-prices": "genai_prices",
    "typing-extensions": "typing_extensions",
    "tree-sitter": "tree_sitter",
    "tree-sitter-bash": "tree_sitter_bash",
}


def test_every_dependency_and_extra_is_there_because_something_imports_it() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))
    )
    needs = {canonicalize_name(need.name) for need in declared([], [])}
    unused = [
        name
        for name in sorted(needs)
        if not re.search(
            rf"^\s*(?:import|from) {(module := MODULES.get(name, name))}\b|\"{module}[.\"]",
            sources,
            re.M,
        )
    ]
    assert unused == []


def test_every_python_that_is_promised_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={promised[0]}"
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == promised


def test_entry_points_lead_to_modules_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plugins = project.get("entry-points", {}).get("pytest11", {})
    for target in [*project["scripts"].values(), *plugins.values()]:
        module, _, name = target.partition(":")
        assert hasattr(importlib.import_module(module), name or "__name__")


def test_every_pytest_plugin_of_the_kit_is_announced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    announced = set(project.get("entry-points", {}).get("pytest11", {}).values())
    files = (ROOT / "src/holdfast/testing").glob("*_plugin.py")
    assert announced == {f"holdfast.testing.{file.stem}" for file in files}


def test_changelog_fragments_are_one_sentence_each() -> None:
    wrong = []
    for fragment in sorted((ROOT / "changelog.d").glob("*.md")):
        text = fragment.read_text(encoding="utf-8")
        prose = re.sub(r"`[^`]*`", "", text.strip())
        is_one_line = re.fullmatch(r"[A-Z`][^\n]*[.!]\n", text)
        if not is_one_line or re.search(r"[.!?] [A-Z]", prose):
            wrong.append(fragment.name)
    assert wrong == [], "one line, one sentence, with its full stop"


def test_a_release_takes_what_was_unreleased_and_every_fragment(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "changelog.d").mkdir()
    for name in ("scripts/changelog", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    fragment = tmp_path / "changelog.d/room-topic.md"
    fragment.write_text("A new thing.\n", encoding="utf-8")
    subprocess.run([tmp_path / "scripts/changelog", "9.9.0", "2030-01-01"], check=True)
    before = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    after = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "<!-- releases -->\n\n## 9.9.0 (2030-01-01)\n\n- A new thing.\n" in after
    assert "## Unreleased" not in after
    assert set(before.splitlines()) - set(after.splitlines()) <= {"## Unreleased"}
    assert not fragment.exists()


DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_choice_and_price(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Choice", "Price"]
    assert re.fullmatch(r"[0-9]{4}-[a-z0-9-]+", decision.stem)
    assert text.startswith(f"# {int(decision.stem[:4])}. ")


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.stem[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))


def test_scripts_are_executable_and_sound() -> None:
    shell = [path for path in tracked_files() if path.read_bytes().startswith(b"#!/usr/bin/env ba")]
    assert {path.name for path in shell} >= {"install", "run", "test", "check", "lint", "docs"}
    for path in [*shell, ROOT / "scripts/_setup"]:
        subprocess.run(["bash", "-n", str(path)], check=True)
    assert [path.name for path in shell if not path.stat().st_mode & 0o100] == []
