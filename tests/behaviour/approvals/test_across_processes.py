"""Consent across processes: one parks and is killed, one answers, one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JANITOR = Path(__file__).with_name("janitor.py")


class World:
    """A state directory, a record of effects, and programs that work on them."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.effects = folder / "effects"
        self.effects.touch()
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "AGENT_STATE_DIR": str(self.state),
            "HOME": str(folder),
            "NO_COLOR": "1",
        }

    def janitor(self, how: str) -> subprocess.Popen[str]:
        words = [sys.executable, str(JANITOR), str(self.state), str(self.effects), how]
        return subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, text=True)

    def park_and_kill(self) -> None:
        """Let a process park its run, then kill it without warning."""
        process = self.janitor("first")
        assert process.stdout is not None
        with process, process.stdout:
            assert process.stdout.readline().startswith("parked ")
            process.send_signal(signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL

    def resume(self) -> str:
        process = self.janitor("again")
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out.split()[0]

    def holdfast(self, *words: str, code: int = 0) -> str:
        """Run a command of ours in a process of its own and return what it printed."""
        ended = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def waiting(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.holdfast("approvals", "list", "--json"))
        return found

    @property
    def deleted(self) -> list[str]:
        return self.effects.read_text().split()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_effect_happens_once_after_the_parked_process_was_killed(world: World) -> None:
    world.park_and_kill()
    assert world.resume() == "parked"
    [item] = world.waiting()
    assert (item["waits for"], item["tool"]) == ("approval", "delete")
    shown = world.holdfast("approvals", "show", str(item["id"]))
    assert "a.txt" in shown and "delete a.txt allow" in shown
    said = world.holdfast("approvals", "approve", str(item["id"]), "--by", "ann")
    assert "holdfast run --run-id job" in said
    assert world.deleted == []
    assert world.resume() == "completed"
    assert world.resume() == "completed"
    assert world.deleted == ["a.txt"]
    assert world.waiting() == []
    world.holdfast("approvals", "approve", str(item["id"]), "--by", "bob", code=6)


def test_refusal_and_edit_work_from_the_command_line(world: World) -> None:
    world.park_and_kill()
    [item] = world.waiting()
    world.holdfast("approvals", "approve", str(item["id"]), "--edit", "[1]", code=2)
    world.holdfast("approvals", "approve", str(item["id"]), "--edit", '{"path": "b.txt"}')
    assert world.resume() == "completed"
    assert world.deleted == ["b.txt"]


def test_refused_call_never_runs(world: World) -> None:
    world.park_and_kill()
    [item] = world.waiting()
    world.holdfast("approvals", "deny", str(item["id"]), "--reason", "precious")
    assert world.resume() == "completed"
    assert world.deleted == []
    [kept] = json.loads(world.holdfast("approvals", "list", "--all", "--json"))
    assert kept["waits for"] == "denied"
