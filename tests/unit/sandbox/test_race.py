"""Somebody swaps a directory for a link to the outside while files are used."""

import os
import subprocess
import sys

from holdfast.errors import HoldfastError

SWAPS = 20_000
SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
swap = ctypes.CDLL(None).renameat2
for _ in range(int(sys.argv[2])):
    assert swap(-100, b"d", -100, b"d.link", 2) == 0  # AT_FDCWD, RENAME_EXCHANGE
"""


def test_swapped_directory_never_leads_outside(ws, place):
    (place / "ws/d").mkdir()
    (place / "ws/d/file").write_bytes(b"inside")
    (place / "outside/file").write_bytes(b"secret")
    os.symlink("../outside", place / "ws/d.link")
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, place / "ws", str(SWAPS)])
    rounds = reads = writes = refused = 0
    while swapper.poll() is None:
        rounds += 1
        try:
            assert ws.read("d/file") == b"inside"
            reads += 1
            ws.write("d/new", b"x%d" % rounds)
            writes += 1
            assert "secret" not in {entry.name for entry in ws.scandir("d")}
            ws.make_directory(f"d/sub{rounds % 3}/x")
        except HoldfastError:
            refused += 1
        except AssertionError:
            swapper.wait(timeout=60)
            raise
    assert swapper.returncode == 0
    assert sorted(os.listdir(place / "outside")) == ["file", "secret"]
    assert (place / "outside/file").read_bytes() == b"secret"
    assert reads
    assert writes
    assert refused
