"""What the rules keep from being read is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import SandboxFailed
from holdfast.sandbox import PathRules
from holdfast.sandbox.unreadable import MOST, report_unreadable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("src/a.py", "src/.env", "docs/one.md", "docs/deep/two.txt", "secret/key"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("secret/key")
    return tmp_path


def found(root: Path, **rules: tuple[str, ...]) -> list[str]:
    paths = report_unreadable(str(root), PathRules(**rules))
    return sorted(str(Path(path).relative_to(root)) for path in paths)


def test_without_rules_nothing_is_looked_for(root: Path) -> None:
    assert found(root) == []


def test_plain_paths_are_found_without_a_walk_and_links_are_left_out(root: Path) -> None:
    assert found(root, blocked=("./secret/", "gone", "link")) == ["secret"]


def test_globs_find_the_topmost_paths(root: Path) -> None:
    assert found(root, blocked=("**/.env", "secret/**")) == ["secret", "src/.env"]


def test_a_directory_without_anything_allowed_counts_as_one(root: Path) -> None:
    assert found(root, allowed=("src/**",), blocked=("**/.env",)) == ["docs", "secret", "src/.env"]
    assert found(root, allowed=("**/*.md",)) == ["docs/deep", "secret", "src"]


def test_a_directory_stays_although_all_that_is_in_it_is_blocked(root: Path) -> None:
    assert found(root, blocked=("secret/*",)) == ["secret/key"]


def test_more_than_can_be_hidden_is_refused(root: Path) -> None:
    for number in range(MOST + 1):
        (root / f"{number}.pem").touch()
    with pytest.raises(SandboxFailed) as refused:
        found(root, blocked=("*.pem",))
    assert refused.value.code == "sandbox.failed"
