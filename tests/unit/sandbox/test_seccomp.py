"""The filter of system calls, loaded for real in a process of its own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

from holdfast.sandbox.launcher.seccomp import build_filter, list_network_families

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


PRIVILEGED = """
import ctypes, itertools, json, os, sys
from holdfast.sandbox.launcher.kernel import KERNEL, PR_SET_NO_NEW_PRIVS, NUMBERS, compute_number
from holdfast.sandbox.launcher.seccomp import build_filter, load_filter
KERNEL.prctl(PR_SET_NO_NEW_PRIVS, 1)
load_filter(build_filter(**json.loads(sys.argv[1])))
os.chdir(sys.argv[2])
os.umask(0)
HERE, CREATE, TEMPORARY = -100, os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY
count = itertools.count()
fresh = lambda: f"new{next(count)}".encode()
file = b"file"
fd = os.open(file, os.O_RDWR)
how = lambda mode: ctypes.create_string_buffer(
    (os.O_CREAT | os.O_WRONLY).to_bytes(8, "little") + mode.to_bytes(8, "little") + bytes(8), 24)
WAYS = {
    "chmod": lambda mode: KERNEL.call("chmod", file, mode),
    "fchmod": lambda mode: KERNEL.call("fchmod", fd, mode),
    "fchmodat": lambda mode: KERNEL.call("fchmodat", HERE, file, mode),
    "fchmodat2": lambda mode: KERNEL.call("fchmodat2", HERE, file, mode, 0),
    "open": lambda mode: KERNEL.call("open", fresh(), CREATE, mode),
    "open unnamed": lambda mode: KERNEL.call("open", b".", TEMPORARY, mode),
    "openat": lambda mode: KERNEL.call("openat", HERE, fresh(), CREATE, mode),
    "openat unnamed": lambda mode: KERNEL.call("openat", HERE, b".", TEMPORARY, mode),
    "openat2": lambda mode: KERNEL.call("openat2", HERE, fresh(), how(mode), 24),
    "creat": lambda mode: KERNEL.call("creat", fresh(), mode),
    "mknod": lambda mode: KERNEL.call("mknod", fresh(), 0o100000 | mode, 0),
    "mknodat": lambda mode: KERNEL.call("mknodat", HERE, fresh(), 0o100000 | mode, 0),
}
done = set()
for name, way in WAYS.items():
    if compute_number(name.split()[0]) < 0:
        continue
    for mode in [int(one, 8) for one in sys.argv[3:]]:
        try:
            way(mode)
            done.add(name)
        except OSError:
            pass
# Without O_CREAT the mode says nothing, and may be left over from the call before.
os.close(KERNEL.call("openat", HERE, file, os.O_RDONLY, 0o6777))
for entry in os.scandir("."):
    assert not entry.stat().st_mode & 0o6000, entry.name
json.dump(sorted(done), sys.stdout)
"""


def ways_with(tmp_path, modes: list[str], **options) -> list[str]:
    (tmp_path / "file").write_text("")
    ended = subprocess.run(
        [sys.executable, "-c", PRIVILEGED, json.dumps(options), str(tmp_path), *modes],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_no_call_makes_a_file_set_uid_or_set_gid(tmp_path):
    bits = ["4755", "2755", "6755", "4000", "2000", "6777", "7777", "37777"]
    assert ways_with(tmp_path, bits, families=None, has_own_ipc=True) == []


def test_usual_modes_are_set_by_every_call_but_the_one_that_cannot_be_looked_into(tmp_path):
    done = ways_with(tmp_path, ["755", "1777", "0"], families=None, has_own_ipc=True)
    assert {"chmod", "fchmod", "fchmodat", "open", "openat", "openat unnamed", "mknodat"} <= {
        *done,
        *(() if platform.machine() == "x86_64" else ("chmod", "open")),
    }
    assert "openat2" not in done


def test_families_are_allowed_one_by_one(tmp_path):
    families = list_network_families(has_network=True, has_unix=False)
    found = under(tmp_path, families=families)
    assert found["inet"]
    assert not found["unix"]


def test_named_processes_are_out_of_reach(tmp_path):
    found = under(tmp_path, families=None, protected=(1, 2))
    assert found["kill other"]


def test_a_filter_fits_the_pipe_that_carries_it():
    families = list_network_families(has_network=True, has_unix=True)
    program = build_filter(families=families, can_signal=False, can_change_metadata=False)
    assert len(program) % 8 == 0
    assert len(program) < 4096
