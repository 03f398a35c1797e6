"""Run every attack in a sandbox and print what became of each, as JSON.

`python attack_all.py LEVEL WITH_NAMESPACES`; `outcome` is what the attack said, `damage`
what is wrong outside afterwards.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import attacks

from holdfast.errors import SandboxFailed
from holdfast.sandbox import SandboxLimits, SandboxOptions, SandboxRunner, Workspace

SHORT = {"endless_fork_bomb": 2.0}
READ_ONLY = {"write_inside"}
PYTHON = os.path.realpath(sys.executable)
NAMES = [
    name
    for name, value in vars(attacks).items()
    if callable(value)
    and value.__module__ == "attacks"
    and name not in ("syscall", "tell", "is_open")
]


class Outside:
    """Things of the same user that must stay as they are."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "outside"
        self.directory.mkdir()
        self.secret = self.directory / "secret"
        self.secret.write_text("planted-secret")
        self.victim = subprocess.Popen(
            ["/bin/sh", "-c", "read wait"],
            stdin=subprocess.PIPE,
            env={"PLANTED": "1"},
        )
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.directory / "socket"))
        self.unix.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0holdfast-{os.getpid()}")
        self.abstract.listen()
        self.before = self._state()

    def facts(self) -> str:
        return json.dumps(
            {
                "outside": str(self.directory),
                "secret": str(self.secret),
                "victim": self.victim.pid,
                "tcp": self.tcp.getsockname()[1],
                "udp": self.udp.getsockname()[1],
                "unix": str(self.directory / "socket"),
                "abstract": f"holdfast-{os.getpid()}",
            }
        )

    def _state(self) -> list:
        info = self.secret.stat() if self.secret.exists() else None
        kept = info and (info.st_mode, info.st_mtime_ns, info.st_size, info.st_nlink)
        return [sorted(os.listdir(self.directory)), kept]

    def damage(self) -> str:
        if self._state() != self.before:
            return f"files changed: {self._state()}"
        if self.victim.poll() is not None:
            return "a process outside was ended"
        try:
            return f"a datagram arrived: {self.udp.recv(100)!r}"
        except BlockingIOError:
            return ""

    def close(self) -> None:
        self.victim.kill()
        self.victim.communicate()
        for one in (self.tcp, self.udp, self.unix, self.abstract):
            one.close()


def make_workspace(base: Path) -> Path:
    root = base / "workspace"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("")
    (root / "state").mkdir()
    (root / "state" / "secret").write_text("planted-secret")
    shutil.copy(Path(__file__).with_name("attacks.py"), root / "attacks.py")
    return root


def make_runner(root: Path, profile: str, options: dict) -> SandboxRunner:
    return SandboxRunner(
        Workspace(root),
        SandboxOptions(
            profile=profile,
            limits=SandboxLimits(processes=64),
            readable=(os.path.realpath(sys.base_prefix),),
            hidden=(str(root / "state"),) if options["with_namespaces"] else (),
            **options,
        ),
    )


async def attack(runner: SandboxRunner, root: Path, outside: Outside, name: str) -> dict:
    command = [PYTHON, "-I", "-S", "attacks.py", name, outside.facts()]
    result = await runner.run_argv(command, timeout_s=SHORT.get(name, 60.0))
    again = await runner.run_argv(["true"], timeout_s=60.0)
    return {
        "outcome": result.stdout.strip() or result.stopped or f"exit {result.exit_code}",
        "errors": result.stderr[-300:],
        "sandbox": result.sandbox,
        "damage": outside.damage() or survivors(root) or ("" if not again.exit_code else "broken"),
    }


def survivors(root: Path) -> str:
    lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "a daemon survived"
    finally:
        os.close(lock)
    return ""


async def main(level: str, with_namespaces: bool) -> dict:
    base = Path(tempfile.mkdtemp(prefix="holdfast-attacks-", dir="/var/tmp"))
    root = make_workspace(base)
    outside = Outside(base)
    options = {"level": level, "with_namespaces": with_namespaces}
    profiles = ("read-only", "workspace-write")
    runners = {profile: make_runner(root, profile, options) for profile in profiles}
    found = {}
    try:
        for name in sys.argv[3:] or NAMES:
            profile = "read-only" if name in READ_ONLY else "workspace-write"
            found[name] = await attack(runners[profile], root, outside, name)
    except SandboxFailed as error:
        return {"refused": str(error)}
    finally:
        for runner in runners.values():
            await runner.aclose()
        outside.close()
        shutil.rmtree(base, ignore_errors=True)
    return found


if __name__ == "__main__":
    os.environ["PLANTED_SECRET"] = "planted-in-environment"
    json.dump(asyncio.run(main(sys.argv[1], sys.argv[2] == "1")), sys.stdout, indent=1)
