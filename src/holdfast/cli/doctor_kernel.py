"""Checks of what confines tools: bubblewrap, Landlock, seccomp, openat2.

The kernel is asked directly, because version numbers say little: containers and
distributions switch these off one by one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from holdfast.cli.doctor_check import DoctorCheck, Patient

# The same numbers on every Linux architecture that came after 2019's unification.
_SYS_OPENAT2: Final = 437
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_VERSION_QUERY: Final = 1
_RESOLVE_BENEATH: Final = 0x08
_TIMEOUT_S: Final = 5

_NOT_LINUX: Final = "only Linux has it"


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def _call_system(number: int, *arguments: object) -> tuple[int, int]:
    """The result of a system call, and errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    return result, ctypes.get_errno()


def _is_linux() -> bool:
    return sys.platform.startswith("linux")


def check_bubblewrap(_patient: Patient) -> DoctorCheck:
    """Run `bwrap` for real: installed is not the same as permitted."""
    means = "Shell commands of agents run with Landlock instead, or are refused unattended."
    fix = "apt install bubblewrap (or: dnf install bubblewrap)"
    program = shutil.which("bwrap")
    if program is None:
        return DoctorCheck(
            name="bubblewrap", status="warn", found="not installed", means=means, fix=fix
        )
    try:
        done = subprocess.run(
            [program, "--ro-bind", "/", "/", "true"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        found = f"{program} does not run: {type(error).__name__}"
        return DoctorCheck(name="bubblewrap", status="warn", found=found, means=means, fix=fix)
    if done.returncode == 0:
        return DoctorCheck(name="bubblewrap", status="ok", found=f"{program} works")
    complaint = done.stderr.decode("utf-8", "replace").strip()[:200]
    return DoctorCheck(
        name="bubblewrap",
        status="warn",
        found=f"{program} fails: {complaint or f'exit code {done.returncode}'}",
        means=means,
        fix="Allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with "
        "--security-opt seccomp=unconfined or a profile that permits them.",
    )


def check_landlock(_patient: Patient) -> DoctorCheck:
    """Ask the kernel for its Landlock version."""
    means = "Without bubblewrap, processes cannot be confined to the workspace."
    fix = "Use Linux 5.13 or newer with landlock in the kernel parameter lsm=."
    if not _is_linux():
        return DoctorCheck(name="landlock", status="warn", found=_NOT_LINUX, means=means, fix=fix)
    version, number = _call_system(
        _SYS_LANDLOCK_CREATE_RULESET,
        ctypes.c_void_p(None),
        ctypes.c_size_t(0),
        ctypes.c_uint32(_LANDLOCK_VERSION_QUERY),
    )
    if version >= 1:
        return DoctorCheck(
            name="landlock", status="ok", found=f"version {version} of its interface"
        )
    reason = {
        errno.ENOSYS: "not built into this kernel",
        errno.EOPNOTSUPP: "built in, but switched off at boot",
    }.get(number, f"the kernel answers {errno.errorcode.get(number, str(number))}")
    return DoctorCheck(name="landlock", status="warn", found=reason, means=means, fix=fix)


def check_seccomp(_patient: Patient) -> DoctorCheck:
    """Look whether the kernel can filter system calls."""
    means = "System calls of confined processes cannot be filtered."
    fix = "Use a kernel built with CONFIG_SECCOMP_FILTER."
    if not _is_linux():
        return DoctorCheck(name="seccomp", status="warn", found=_NOT_LINUX, means=means, fix=fix)
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        found = f"/proc/self/status cannot be read: {error.strerror}"
        return DoctorCheck(name="seccomp", status="warn", found=found, means=means, fix=fix)
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if "Seccomp" not in fields:
        found = "not built into this kernel"
        return DoctorCheck(name="seccomp", status="warn", found=found, means=means, fix=fix)
    own = "; this process already runs under a filter" if fields["Seccomp"].strip() == "2" else ""
    return DoctorCheck(name="seccomp", status="ok", found=f"available{own}")


def check_openat2(_patient: Patient) -> DoctorCheck:
    """Open a directory with RESOLVE_BENEATH for real."""
    means = "Paths are confined to the workspace by slower checks of each component."
    fix = "Use Linux 5.6 or newer; in a container, permit openat2 in its seccomp profile."
    if not _is_linux():
        return DoctorCheck(name="openat2", status="warn", found=_NOT_LINUX, means=means, fix=fix)
    directory = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = _OpenHow(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_BENEATH)
        opened, number = _call_system(
            _SYS_OPENAT2,
            ctypes.c_int(directory),
            ctypes.c_char_p(b"."),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
    finally:
        os.close(directory)
    if opened < 0:
        found = f"the kernel answers {errno.errorcode.get(number, str(number))}"
        return DoctorCheck(name="openat2", status="warn", found=found, means=means, fix=fix)
    os.close(opened)
    return DoctorCheck(name="openat2", status="ok", found="works with RESOLVE_BENEATH")
