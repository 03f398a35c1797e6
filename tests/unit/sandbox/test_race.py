"""Somebody swaps a directory for a link to the outside while files are used."""

import os
import subprocess
import sys

from holdfast.errors import HoldfastError

ROUNDS, MOST_ROUNDS = 2_000, 200_000
SWAPPER = """
import ctypes, os, select, sys
os.chdir(sys.argv[1])
swap = ctypes.CDLL(None).renameat2
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        assert swap(-100, b"d", -100, b"d.link", 2) == 0  # AT_FDCWD, RENAME_EXCHANGE
"""


def test_swapped_directory_never_leads_outside(ws, place):
    (place / "ws/d").mkdir()
    (place / "ws/d/file").write_bytes(b"inside")
    (place / "outside/file").write_bytes(b"secret")
    os.symlink("../outside", place / "ws/d.link")
    command = [sys.executable, "-c", SWAPPER, place / "ws"]
    rounds = reads = writes = refused = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE) as swapper:
        try:
            # However busy the machine is: until the two have met.
            while rounds < ROUNDS or not (reads and writes and refused):
                rounds += 1
                assert rounds < MOST_ROUNDS
                assert swapper.poll() is None
                try:
                    assert ws.read("d/file") == b"inside"
                    reads += 1
                    ws.write("d/new", b"x%d" % rounds)
                    writes += 1
                    assert "secret" not in {entry.name for entry in ws.scandir("d")}
                    ws.make_directory(f"d/sub{rounds % 3}/x")
                except HoldfastError:
                    refused += 1
        finally:
            swapper.stdin.close()
    assert swapper.returncode == 0
    assert sorted(os.listdir(place / "outside")) == ["file", "secret"]
    assert (place / "outside/file").read_bytes() == b"secret"
