"""Landlock: which files a thread and all that it starts may touch, kept by the kernel."""

from __future__ import annotations

import ctypes
import os
import stat

from holdfast.sandbox.launcher.kernel import KERNEL

_VERSION_QUERY = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 0x1, 0x2, 0x4, 0x8
_ALL_OF_FIRST = 0x1FFF
_REFER, _TRUNCATE, _IOCTL_DEVICE = 0x2000, 0x4000, 0x8000
_MAKE_DEVICES = 0x40 | 0x800
_NET_BIND, _NET_CONNECT = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

# From these versions on, the kernel keeps the promise in question.
TRUNCATE_VERSION, NETWORK_VERSION, SCOPE_VERSION = 3, 4, 6


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def read_landlock_version() -> int:
    """The version of the kernel's interface; 0 if there is none."""
    try:
        return KERNEL.call("landlock_create_ruleset", None, 0, _VERSION_QUERY)
    except OSError:
        return 0


class Ruleset:
    """What may be touched; everything else may not."""

    def __init__(self, *, has_network: bool) -> None:
        """Forbid everything that this kernel can forbid."""
        version = read_landlock_version()
        self._handled = _ALL_OF_FIRST
        for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
            self._handled |= right if version >= since else 0
        network = _NET_BIND | _NET_CONNECT if version >= NETWORK_VERSION else 0
        scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if version >= SCOPE_VERSION else 0
        attributes = _Attributes(self._handled, 0 if has_network else network, scoped)
        size = 8 if version < NETWORK_VERSION else 16 if version < SCOPE_VERSION else 24
        self._fd = KERNEL.call("landlock_create_ruleset", ctypes.byref(attributes), size, 0)

    def allow(self, path: str, *, can_write: bool) -> None:
        """Allow what is at a path and below; a path that does not exist is left out."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            rights = self._handled & ~_MAKE_DEVICES if can_write else _READ
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _ON_FILES
            beneath = _PathBeneath(rights & self._handled, fd)
            KERNEL.call("landlock_add_rule", self._fd, _PATH_BENEATH, ctypes.byref(beneath), 0)
        finally:
            os.close(fd)

    def apply(self) -> None:
        """Confine the calling thread and all that it starts, for good."""
        KERNEL.call("landlock_restrict_self", self._fd, 0)


__all__ = [
    "NETWORK_VERSION",
    "SCOPE_VERSION",
    "TRUNCATE_VERSION",
    "Ruleset",
    "read_landlock_version",
]
