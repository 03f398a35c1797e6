"""What a command makes in the place of a missing settings file is in doubt at every level."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.settings.unvouched import UnvouchedSettings

LEVELS = {
    "bubblewrap": SandboxOptions(level="bubblewrap"),
    "namespaces": SandboxOptions(level="landlock"),
    "landlock": SandboxOptions(level="landlock", with_namespaces=False),
}


@pytest.fixture
def root() -> Iterator[Path]:
    # Not below the directory of pytest, which every other pytest closes to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "ws").mkdir()
        yield Path(folder) / "ws"


@pytest.fixture
def gaps(tmp_path: Path, root: Path) -> UnvouchedSettings:
    files = [root / ".env", root / "holdfast.toml"]
    return UnvouchedSettings(tmp_path / "state", files=files, folders=[root / "policies"])


@pytest.fixture(params=LEVELS)
async def runner(
    request: pytest.FixtureRequest, bubblewrap: str, root: Path, gaps: UnvouchedSettings
) -> AsyncIterator[SandboxRunner]:
    given = LEVELS[request.param]
    if os.geteuid() == 0 and not given.with_namespaces:
        os.chown(root, 65534, 65534)  # without namespaces it cannot be lent to another user
    options = SandboxOptions(
        level=given.level, with_namespaces=given.with_namespaces, unvouched=gaps
    )
    opened = SandboxRunner(Workspace(root), options)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("echo ALLOW_NET=true > .env", ".env"),
        ("echo x > y && mv y holdfast.toml", "holdfast.toml"),
        ("echo x > y && ln -s y holdfast.toml", "holdfast.toml"),
        ("mkdir policies && echo x > policies/network.yaml", "policies"),
    ],
)
async def test_a_command_that_makes_settings_is_found_out(
    runner: SandboxRunner, root: Path, gaps: UnvouchedSettings, text: str, name: str
) -> None:
    result = await runner.run_text(text)
    assert result.exit_code == 0
    assert f"holdfast config trust {root / name}" in result.stderr
    assert gaps.filled() == [str(root / name)]


async def test_a_command_that_makes_something_else_leaves_nothing(
    runner: SandboxRunner, root: Path, gaps: UnvouchedSettings, tmp_path: Path
) -> None:
    result = await runner.run_text("echo x > y; echo x > .env; rm .env")
    assert (result.stderr, gaps.filled()) == ("", [])
    assert os.listdir(root) == ["y"]
    assert os.listdir(tmp_path / "state" / "gaps") == []


async def test_what_a_stopped_command_made_is_in_doubt(
    runner: SandboxRunner, root: Path, gaps: UnvouchedSettings
) -> None:
    text = "echo x > .env; exec cat /dev/zero"
    result = await runner.run_text(text, output_bytes=1_000)
    assert result.stopped == "output"
    assert gaps.filled() == [str(root / ".env")]


async def test_a_program_that_stays_is_watched_until_it_is_closed(
    runner: SandboxRunner, root: Path, gaps: UnvouchedSettings, tmp_path: Path
) -> None:
    argv = ("/bin/sh", "-c", "read x; echo ALLOW_NET=true > .env; echo done; read y")
    stream = await runner.open_program(argv, line_bytes=1_000)
    await stream.write(b"go\n")
    assert await stream.read_line() == b"done\n"
    assert gaps.filled() == [str(root / ".env")]
    await stream.aclose()
    assert gaps.filled() == [str(root / ".env")]
    assert gaps.accept(root / ".env")
    assert os.listdir(tmp_path / "state" / "gaps") == []


async def test_nothing_runs_when_it_cannot_be_noted(
    runner: SandboxRunner, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(StorageError):
        await runner.run_text("echo x > y")
    assert os.listdir(root) == []
