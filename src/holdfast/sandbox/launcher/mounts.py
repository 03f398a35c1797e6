"""A view of the file system of its own: all of it read-only but what may be written.

Used where the kernel lets us make namespaces. As root it also lends a directory of root's
to the user that commands run as: through an id-mapped mount, root's files look like that
user's, and what it writes is root's on disk.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

from holdfast.sandbox.launcher.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    KERNEL,
)

_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_FROM_EMPTY = 4
_READ_ONLY, _NO_SUID, _NO_DEVICES, _ID_MAPPED = 0x1, 0x2, 0x4, 0x0010_0000
_MS_PRIVATE_ALL = (1 << 18) | 16384
_MS_NOSUID_NODEV = 2 | 4
_MS_NOEXEC = 8
_MS_BIND = 4096
_IDS = 0xFFFF_FFFE


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_fd", ctypes.c_uint64),
    ]


def enter_namespaces(*, has_network: bool, with_pids: bool) -> None:
    """Leave the machine's mounts, processes, queues and (without network) its interfaces.

    An ordinary user gets a user namespace around them, in which it keeps its own number.

    Raises:
        OSError: the kernel does not allow it; nothing has changed.
    """
    flags = CLONE_NEWNS | CLONE_NEWIPC | (CLONE_NEWPID if with_pids else 0)
    flags |= 0 if has_network else CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        KERNEL.call("unshare", flags)
    else:
        KERNEL.call("unshare", flags | CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    KERNEL.mount("", "/", "", _MS_PRIVATE_ALL)


def mount_own_proc() -> bool:
    """Show only the processes of this namespace; some containers do not let us."""
    try:
        KERNEL.mount("proc", "/proc", "proc", _MS_NOSUID_NODEV | _MS_NOEXEC)
    except OSError:
        return False
    return True


class Tree:
    """A directory that will be put back into the read-only view."""

    def __init__(self, source: str, target: str, *, can_write: bool) -> None:
        """Take hold of the directory as it is now."""
        self.target = target
        self._is_directory = os.path.isdir(source)
        flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
        self._fd = KERNEL.call("open_tree", _AT_FDCWD, source.encode(), flags)
        flags = _NO_SUID | _NO_DEVICES | (0 if can_write else _READ_ONLY)
        _set_attributes(self._fd, "", _AT_EMPTY_PATH | _AT_RECURSIVE, flags)

    def lend(self, uid: int, gid: int) -> None:
        """Let files of root look like files of this user, both ways."""
        user_fd = _enter_user_namespace(uid, gid)
        try:
            _set_attributes(self._fd, "", _AT_EMPTY_PATH, _ID_MAPPED, user_fd)
        finally:
            os.close(user_fd)

    def attach(self, uid: int) -> None:
        """Put it where it belongs, so that the user can reach it."""
        _make_reachable(self.target, uid, is_directory=self._is_directory)
        where = self.target.encode()
        KERNEL.call("move_mount", self._fd, b"", _AT_FDCWD, where, _MOVE_MOUNT_FROM_EMPTY)
        os.close(self._fd)


def arrange_view(trees: list[Tree], uid: int) -> None:
    """Make everything read-only, then put back what may be used."""
    _set_attributes(_AT_FDCWD, "/", _AT_RECURSIVE, _READ_ONLY | _NO_SUID)
    for tree in sorted(trees, key=lambda one: one.target.count("/")):
        tree.attach(uid)
    with suppress(OSError):
        KERNEL.mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID_NODEV, "mode=1777,size=64m")


def pin(directories: list[tuple[str, bool]]) -> None:
    """Make directories of the view into mounts of their own, which no process can move away."""
    for path, _ in directories:
        KERNEL.mount(path, path, "", _MS_BIND)


def cover(read_only: list[str], hidden: list[str], seen: list[Tree], uid: int) -> None:
    """Take writing, or all of it, from paths inside the view; missing ones are left out.

    What is `seen` lies in a hidden place, and was given on purpose.
    """
    for path in read_only:
        with suppress(FileNotFoundError):
            Tree(path, path, can_write=False).attach(os.geteuid())
    for path in hidden:
        if os.path.isdir(path):
            KERNEL.mount("tmpfs", path, "tmpfs", _MS_NOSUID_NODEV, "mode=555,size=1m")
            for tree in seen:
                if tree.target.startswith(f"{path}/"):
                    tree.attach(uid)
            _set_attributes(_AT_FDCWD, path, 0, _READ_ONLY)
        elif os.path.exists(path):
            KERNEL.mount("/dev/null", path, "", _MS_BIND)


def _make_reachable(target: str, uid: int, *, is_directory: bool) -> None:
    """Cover the first directory on the way that the user cannot pass, and rebuild the way."""
    above = ""
    for part in target.strip("/").split("/")[:-1]:
        above += f"/{part}"
        if not os.path.isdir(above):
            break
        info = os.stat(above)
        if uid != os.geteuid() and not info.st_mode & 0o001 and info.st_uid != uid:
            KERNEL.mount("tmpfs", above, "tmpfs", _MS_NOSUID_NODEV, "mode=755,size=1m")
            break
    if os.path.exists(target):
        return
    os.makedirs(target if is_directory else os.path.dirname(target), mode=0o755, exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))


def _enter_user_namespace(uid: int, gid: int) -> int:
    """Open a user namespace in which root is this user and the others are themselves."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            KERNEL.call("unshare", CLONE_NEWUSER)
            os.write(ready[1], b"1")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        os.close(ready[1])
        if os.read(ready[0], 1) != b"1":
            raise OSError(1, "no user namespace")
        _write(f"/proc/{child}/uid_map", _swap(uid))
        _write(f"/proc/{child}/gid_map", _swap(gid))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready[0], *go):
            os.close(fd)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _swap(number: int) -> str:
    """Root is the number; all others are themselves; files of the number have no owner."""
    return f"0 {number} 1\n1 1 {number - 1}\n{number + 1} {number + 1} {_IDS - number - 1}\n"


def _set_attributes(fd: int, path: str, flags: int, wanted: int, user_fd: int = 0) -> None:
    attributes = _Attributes(wanted, 0, 0, user_fd)
    size = ctypes.sizeof(attributes)
    KERNEL.call("mount_setattr", fd, path.encode(), flags, ctypes.byref(attributes), size)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


__all__ = ["Tree", "arrange_view", "cover", "enter_namespaces", "mount_own_proc", "pin"]
