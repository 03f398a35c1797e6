"""The approval prompt at a real terminal."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import msgspec

from holdfast.sessions import PermissionRule
from holdfast.tools.gate import ApprovalAnswer

ROOT = Path(__file__).parents[3]
PROMPTER = Path(__file__).with_name("prompter.py")


def ask(folder: Path, keys: str, times: int) -> tuple[list[ApprovalAnswer | None], str]:
    """Type keys at a terminal of our own; returns the answers and what was on the screen."""
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\necho \'{"file_path": "b.txt"}\' > "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "EDITOR": str(editor),
        "VISUAL": str(editor),
        "HOME": str(folder),
        "USER": "ann",
        "LOGNAME": "ann",
    }
    answers = folder / "answers"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(PROMPTER), str(answers), str(times)],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, keys.encode())
    screen = b""
    try:
        while chunk := os.read(ours, 65_536):
            screen += chunk
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(ours)
    assert process.wait(60) == 0, screen.decode()
    given = msgspec.json.decode(answers.read_bytes(), type=list[ApprovalAnswer | None])
    return given, screen.decode()


def test_every_key_does_what_it_says(tmp_path: Path) -> None:
    keys = "y\nn\nprecious\ne\na\ny\ns\ny\na\nn\nhm\nq\n\x04"
    given, screen = ask(tmp_path, keys, 7)
    exact = PermissionRule(permission="write", pattern="a.txt", action="allow")
    whole = PermissionRule(permission="write", pattern="*", action="allow")
    assert given == [
        ApprovalAnswer(verdict="allow", by="ann"),
        ApprovalAnswer(verdict="deny", by="ann", reason="precious"),
        ApprovalAnswer(verdict="allow", by="ann", arguments={"file_path": "b.txt"}),
        ApprovalAnswer(verdict="allow", by="ann", rules=(exact,)),
        ApprovalAnswer(verdict="allow", by="ann", rules=(whole,)),
        # A rule that was shown and not wanted, a key that means nothing, then stop.
        ApprovalAnswer(verdict="stop", by="ann", reason="the run was stopped"),
        # The terminal is gone.
        None,
    ]
    assert "rule: write a.txt allow" in screen
    assert "+new" in screen


def test_preview_cannot_play_with_the_terminal(tmp_path: Path) -> None:
    _, screen = ask(tmp_path, "y\n", 1)
    assert "\x1b[2J" not in screen
    assert "\\u001b[2J" in screen
