"""Daemons of the machine cannot be reached through a socket that lies in the workspace."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.sandbox.host_sockets import list_host_sockets

CONNECT = """
import socket, sys
s = socket.socket(socket.AF_UNIX, {kind})
s.settimeout(3)
s.connect(sys.argv[1])
s.send(b'x')
print('reached')
"""


def bind(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(path)
    if kind == socket.SOCK_STREAM:
        made.listen()
    return made


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["stream", "dgram"])
async def test_a_socket_of_the_host_is_covered(level: str, kind: int, tmp_path: Path) -> None:
    work = tmp_path / "w"
    (work / "deep er").mkdir(parents=True)
    runner = SandboxRunner(Workspace(work), SandboxOptions(level=level))
    # Also one that comes up after the first command.
    assert (await runner.run_argv(["true"])).exit_code == 0
    here = os.getcwd()
    with bind(str(work / "deep er" / "s k"), kind):
        os.chdir(work)
        try:
            relative = bind("r.sock", kind)
        finally:
            os.chdir(here)
        with relative:
            script = CONNECT.format(kind=int(kind))
            for name in ("deep er/s k", "r.sock", "./deep er/../r.sock"):
                result = await runner.run_argv(["python3", "-c", script, name])
                assert "reached" not in result.stdout, (name, result)
                assert result.exit_code != 0
            moved = await runner.run_text("mv r.sock x && ln 'deep er/s k' y; mv 'deep er' z")
            assert moved.exit_code != 0
    await runner.aclose()


async def test_sockets_of_a_command_itself_work(tmp_path: Path) -> None:
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="bubblewrap"))
    own = "import socket; a = socket.socket(socket.AF_UNIX); a.bind('own'); a.listen(); "
    own += "b = socket.socket(socket.AF_UNIX); b.connect('own'); print('mine')"
    result = await runner.run_argv(["python3", "-c", own])
    assert result.stdout == "mine\n", result
    await runner.aclose()


def test_only_sockets_below_the_directories_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with bind(str(tmp_path / "a" / "s")), bind(str(tmp_path / "b" / "s")):
        assert list_host_sockets([str(tmp_path / "a")]) == [str(tmp_path / "a" / "s")]
    assert list_host_sockets([str(tmp_path / "missing")]) == []
