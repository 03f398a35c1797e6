"""Run Python as an ordinary user, also where root keeps the interpreter to itself.

`python as_user.py UID SCRIPT ARGUMENT...` (as root): makes a mount namespace in which the
interpreter and the packages can be reached by that user, becomes it, and runs the script.
"""

from __future__ import annotations

import os
import sys

from holdfast.sandbox.launcher.kernel import CLONE_NEWNS, KERNEL
from holdfast.sandbox.launcher.mounts import Tree

MS_PRIVATE_ALL = (1 << 18) | 16384


def main() -> None:
    uid = int(sys.argv[1])
    KERNEL.call("unshare", CLONE_NEWNS)
    KERNEL.mount("", "/", "", MS_PRIVATE_ALL)
    here = os.path.dirname(os.path.abspath(__file__))
    needed = {sys.prefix, sys.base_prefix, here, *filter(os.path.isdir, sys.path)}
    outer = [one for one in needed if not any(one.startswith(f"{other}/") for other in needed)]
    trees = [Tree(path, path, can_write=False) for path in outer]
    for tree in sorted(trees, key=lambda one: one.target.count("/")):
        tree.attach(uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == "__main__":
    main()
