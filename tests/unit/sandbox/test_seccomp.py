"""The filter of system calls, loaded for real in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from holdfast.sandbox.launcher.seccomp import build_filter, network_families

SOURCE = str(Path(__file__).parents[3] / "src")
CHILD = """
import ctypes, json, os, signal, socket, sys
from holdfast.sandbox.launcher.kernel import KERNEL, PR_SET_NO_NEW_PRIVS
from holdfast.sandbox.launcher.seccomp import build_filter, load_filter
KERNEL.prctl(PR_SET_NO_NEW_PRIVS, 1)
load_filter(build_filter(**json.loads(sys.argv[1])))
open("/proc/self/status").close()
found = {}
for name, attempt in {
    "inet": lambda: socket.socket().close(),
    "unix": lambda: socket.socket(socket.AF_UNIX).close(),
    "pair": lambda: [one.close() for one in socket.socketpair()],
    "kill other": lambda: os.kill(os.getppid(), 0),
    "kill group": lambda: os.kill(0, 0),
    "chmod": lambda: os.chmod(sys.argv[2], 0o600),
    "fchmod": lambda: os.fchmod(os.open(sys.argv[2], os.O_RDONLY), 0o600),
    "utime": lambda: os.utime(sys.argv[2]),
    "futime": lambda: os.utime(os.open(sys.argv[2], os.O_RDONLY)),
    "fork": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "unshare": lambda: KERNEL.call("unshare", 0x10000000),
    "shared memory": lambda: KERNEL.call("shmget", 0, 4096, 0o1600),
}.items():
    try:
        attempt()
        found[name] = True
    except OSError:
        found[name] = False
json.dump(found, sys.stdout)
"""


def under(tmp_path, **options) -> dict[str, bool]:
    (tmp_path / "file").write_text("")
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(options), str(tmp_path / "file")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE},
        start_new_session=True,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def allowed(found: dict[str, bool]) -> set[str]:
    return {name for name, is_allowed in found.items() if is_allowed}


def test_the_strictest_filter_leaves_what_every_program_needs(tmp_path):
    found = under(tmp_path, families=[], can_signal=False, can_change_metadata=False)
    assert allowed(found) == {"pair", "kill group", "fchmod", "futime", "fork"}


def test_the_widest_filter_still_denies_namespaces(tmp_path):
    found = under(tmp_path, families=None, has_own_ipc=True)
    assert set(found) - allowed(found) == {"unshare"}


def test_families_are_allowed_one_by_one(tmp_path):
    families = network_families(has_network=True, has_unix=False)
    found = under(tmp_path, families=families)
    assert found["inet"]
    assert not found["unix"]


def test_named_processes_are_out_of_reach(tmp_path):
    found = under(tmp_path, families=None, protected=(1, 2))
    assert found["kill other"]


def test_a_filter_fits_the_pipe_that_carries_it():
    families = network_families(has_network=True, has_unix=True)
    program = build_filter(families=families, can_signal=False, can_change_metadata=False)
    assert len(program) % 8 == 0
    assert len(program) < 4096
