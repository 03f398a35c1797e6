"""What tests need from the machine: brought by apt where we may, because nothing here skips."""

from __future__ import annotations

import os
import shutil
import subprocess

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


def _apt(*words: str) -> bool:
    quiet = subprocess.DEVNULL
    # In this runlevel a package starts no service of its own.
    environment = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    command = [*_APT, *words]
    return not subprocess.run(command, stdout=quiet, stderr=quiet, env=environment).returncode
