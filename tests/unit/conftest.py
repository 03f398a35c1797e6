"""What tests of several rooms need from the machine."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def bubblewrap():
    """Where bubblewrap is; installed by apt when we may, because nothing here skips."""
    if shutil.which("bwrap") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        lock = ["-o", "DPkg::Lock::Timeout=300"]
        if subprocess.run(["apt-get", *lock, "install", "-y", "bubblewrap"], **quiet).returncode:
            subprocess.run(["apt-get", *lock, "update"], **quiet)
            subprocess.run(["apt-get", *lock, "install", "-y", "bubblewrap"], **quiet)
    found = shutil.which("bwrap")
    assert found, "these tests need bubblewrap: apt-get install bubblewrap"
    return found
