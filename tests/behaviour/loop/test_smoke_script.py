"""The smoke test passes over both APIs, against its own server when nothing is configured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.settings.environment import process_environment

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("force_chat", "mode"), [("false", "responses"), ("true", "chat")])
def test_the_smoke_test_passes(tmp_path: Path, force_chat: str, mode: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "scripts" / "smoke_test.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "PATH": process_environment()["PATH"],
            "HOME": str(tmp_path),
            "AGENT_FORCE_CHAT_COMPLETIONS": force_chat,
        },
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"every request used {mode}" in ended.stdout
