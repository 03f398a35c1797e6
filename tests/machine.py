"""What tests need from the machine: brought by apt where we may, because nothing here skips."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]


def program(name: str, package: str) -> str:
    """Return where a program is; its Debian package is installed first if it is missing."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        if not _apt("install", "-y", package):
            _apt("update")
            _apt("install", "-y", package)
    found = shutil.which(name)
    assert found, f"these tests need {name}: apt-get install {package}"
    return found


def wall_clock_in(file: Path) -> dict[str, str]:
    """Return the environment of processes whose wall clock is off by what a file says (`+5s`).

    It steps when the file changes. The monotonic and the boot clock stay what they are.
    """
    faketime = Path(program("faketime", "faketime"))
    [library] = faketime.parent.parent.glob("lib/*/faketime/libfaketime.so.1")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DISABLE_SHM": "1",
        "NO_FAKE_STAT": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _apt(*words: str) -> bool:
    quiet = subprocess.DEVNULL
    # In this runlevel a package starts no service of its own.
    environment = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    command = [*_APT, *words]
    return not subprocess.run(command, stdout=quiet, stderr=quiet, env=environment).returncode
