"""A hostile command gets nowhere: as root and as an ordinary user, on every level."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ORDINARY = 65534
PEOPLE = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
WORKS = {"usual_work": "done", "usual_metadata": "done"}
HARMLESS = {
    "daemon": ("started",),
    "endless_fork_bomb": ("timeout",),
    "signal_everybody": ("sent", "exit -15"),  # it reaches itself at most
    "udp": ("sent",),  # into a network without anybody
}
# Without namespaces nothing in the workspace can be made read-only, and modes, owners and
# times change through descriptors only: see docs/concepts/sandbox.md.
PLAIN = {"git_hook": "done", "git_config": "done", "usual_metadata": "blocked"}


def attack_all(who: str, level: str, *, with_namespaces: bool = True) -> dict:
    command = [sys.executable, str(HERE / "attack_all.py"), level, str(int(with_namespaces))]
    if who == "ordinary" and os.geteuid() == 0:
        command[1:1] = [str(HERE / "as_user.py"), str(ORDINARY)]
    paths = os.pathsep.join([str(Path(__file__).parents[3] / "src"), str(HERE)])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def escapes(found: dict, expected: dict[str, str] | None = None) -> dict:
    """The attacks that did not end as they should."""
    assert len(found) > 40, found
    wrong = {}
    for name, told in found.items():
        wanted = {**WORKS, **(expected or {})}.get(name, "blocked")
        endings = (wanted, *HARMLESS.get(name, ()))
        if told["damage"] or not told["outcome"].startswith(endings):
            wrong[name] = told
    return wrong


@pytest.mark.parametrize("who", PEOPLE)
def test_nothing_escapes_from_bubblewrap(who, bubblewrap):
    assert escapes(attack_all(who, "bubblewrap")) == {}


@pytest.mark.parametrize("who", PEOPLE)
def test_nothing_escapes_from_landlock_with_namespaces(who):
    found = attack_all(who, "landlock")
    assert escapes(found) == {}
    assert found["tcp"]["sandbox"] == "landlock+namespaces/workspace-write"


@pytest.mark.parametrize("who", PEOPLE)
def test_landlock_alone_confines_a_user_and_refuses_root(who):
    found = attack_all(who, "landlock", with_namespaces=False)
    if who == "root":  # its workspace cannot be lent to anybody
        assert "do not run as root" in found["refused"]
        return
    del found["read_hidden"]  # nothing was hidden: that is refused, see test_runner
    assert escapes(found, PLAIN) == {}
    assert found["tcp"]["sandbox"] == "landlock/workspace-write"
