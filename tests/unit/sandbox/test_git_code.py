"""Commands write nothing that git would run, or be led by, outside the sandbox."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace


def git(where: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *identity, *words], cwd=where, check=True, capture_output=True, text=True
    )
    return done.stdout


def repository(path: Path) -> Path:
    path.mkdir()
    git(path, "init", "-q")
    git(path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = repository(tmp_path / "ws")
    git(made, "submodule", "--quiet", "add", str(repository(tmp_path / "other")), "part")
    git(made, "worktree", "add", "-q", str(tmp_path / "beside"))
    return made


@pytest.fixture(params=["bubblewrap", "landlock"])
async def runner(
    request: pytest.FixtureRequest, bubblewrap: str, root: Path
) -> AsyncIterator[SandboxRunner]:
    opened = SandboxRunner(Workspace(root), SandboxOptions(level=request.param))
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/modules/part/config",
        ".git/modules/part/hooks/post-checkout",
        ".git/worktrees/beside/commondir",
    ],
)
async def test_what_git_runs_cannot_be_written(
    runner: SandboxRunner, root: Path, name: str
) -> None:
    before = (root / name).read_text() if (root / name).exists() else ""
    result = await runner.run_text(f"echo planted >> {name}")
    assert result.exit_code
    result = await runner.run_text("mv .git/modules x || mv .git/modules/part y")
    assert result.exit_code
    assert before == ((root / name).read_text() if (root / name).exists() else "")


@pytest.mark.parametrize("name", [".git/commondir", ".git/modules/part/commondir"])
async def test_git_is_not_led_to_other_settings(
    runner: SandboxRunner, root: Path, tmp_path: Path, name: str
) -> None:
    text = f"""
        cp -r .git evil && echo ../evil > {name} && cp {name} .git/modules/part/commondir
        printf '[core]\\n fsmonitor = "touch {tmp_path}/ran; false"\\n' >> evil/config
    """
    result = await runner.run_text(text)
    assert f"{root / name} was removed" in result.stderr
    assert not (root / name).exists()
    await asyncio.to_thread(git, root, "status")
    assert not (tmp_path / "ran").exists()


async def test_a_pointer_outside_is_left_alone(
    runner: SandboxRunner, root: Path, tmp_path: Path
) -> None:
    kept = root / ".git" / "worktrees" / "beside" / "commondir"
    (tmp_path / "victim").mkdir()
    for name in ("HEAD", "commondir"):
        (tmp_path / "victim" / name).write_text("kept")
    text = f"ln -s {tmp_path}/victim .git/modules/link; mkdir .git/modules/new; \
        ln -s {tmp_path}/victim .git/modules/new/part; true"
    result = await runner.run_text(text)
    assert "removed" not in result.stderr
    assert (tmp_path / "victim" / "commondir").read_text() == "kept"
    assert kept.exists()


async def test_git_still_works_for_commands(runner: SandboxRunner, root: Path) -> None:
    text = "echo x > new && git add new && git -c user.name=a -c user.email=a@b commit -qm second"
    result = await runner.run_text(text)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "second" in await asyncio.to_thread(git, root, "log", "--oneline")


async def test_the_file_of_a_linked_worktree_cannot_be_replaced(
    bubblewrap: str, root: Path, tmp_path: Path
) -> None:
    for level in ("bubblewrap", "landlock"):
        runner = SandboxRunner(Workspace(tmp_path / "beside"), SandboxOptions(level=level))
        result = await runner.run_text("rm .git || mv .git x || echo gitdir: evil > .git")
        await runner.aclose()
        assert result.exit_code
    assert str(root) in (tmp_path / "beside" / ".git").read_text()
