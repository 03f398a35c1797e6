"""Decide as whom and in what view commands run here, and give up everything else."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from contextlib import suppress
from typing import Any

from holdfast.sandbox.launcher.kernel import (
    ARCHITECTURES,
    KERNEL,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
)
from holdfast.sandbox.launcher.landlock import (
    SCOPE_VERSION,
    TRUNCATE_VERSION,
    Ruleset,
    read_landlock_version,
)
from holdfast.sandbox.launcher.mounts import Tree, arrange_view, cover, mount_own_proc, pin
from holdfast.sandbox.launcher.seccomp import build_filter, list_network_families, load_filter

_LAST_CAPABILITY = 63
_CAPABILITY_VERSION = 0x2008_0522
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_PROC_FILES = ("cpuinfo", "meminfo", "stat", "uptime", "loadavg", "version", "filesystems", "sys")


class CannotConfineError(Exception):
    """Commands cannot be confined as asked; `str()` says why."""


class ThreadConfinement:
    """Everything that was decided at the start; `facts` is what is told about it.

    Built on the main thread, which keeps its rights; `give_up` is for the other one.
    """

    def __init__(self, config: dict[str, Any], *, namespaces: str, is_init: bool) -> None:
        """Arrange the view; `namespaces` is empty if there are none."""
        self._config = config
        self._level: str = config["level"]
        self._has_network: bool = config["network"]
        self._is_init = is_init
        self._version = read_landlock_version()
        self.uid, self.gid = os.geteuid(), os.getegid()
        self._is_lent = False
        self._has_view = bool(namespaces)
        self._has_own_proc = is_init and mount_own_proc()
        if self._level != "none":
            self._choose_user()
        if self._has_view:
            self._arrange()
        self._check()
        is_alone = "user" in namespaces or self.uid == config["uid"]
        _set_limits(config["limits"], uid=self.uid, is_alone=is_alone)
        self._ruleset = self._make_rules() if self._level == "landlock" else None
        scratch, target = config["scratch"]
        self.wrapper = [
            (target if self._has_view else scratch) if one == "@scratch" else one
            for one in config["wrapper"]
        ]
        self.facts = {
            "landlock_version": self._version,
            "namespaces": namespaces,
            "uid": self.uid,
            "is_lent": self._is_lent,
            "has_view": self._has_view,
        }

    @property
    def _was_root(self) -> bool:
        return os.geteuid() == 0

    def filter(self, thread: int) -> bytes:
        """The filter of system calls for this level."""
        if self._level == "none":
            return b""
        if self._level == "bubblewrap":
            families = list_network_families(has_network=self._has_network, has_unix=True)
            return build_filter(families=families, has_own_ipc=True)
        # Landlock does not see connections to sockets in the file system, and behind one
        # may be a daemon with more rights: no sockets of this kind at all.
        families = list_network_families(has_network=self._has_network, has_unix=False)
        is_scoped = self._version >= SCOPE_VERSION or self._is_init or self._was_root
        protected = (os.getpid(), thread) if is_scoped else ()
        return build_filter(
            families=families,
            can_signal=is_scoped,
            # Files of the same user outside would be within reach; others' are not.
            can_change_metadata=self._has_view or self._was_root,
            protected=protected,
        )

    def give_up(self, thread: int) -> None:
        """Confine the calling thread for good; the rest of the process stays as it is."""
        if self._level == "none":
            return
        for capability in range(_LAST_CAPABILITY + 1):
            with suppress(OSError):
                KERNEL.prctl(PR_CAPBSET_DROP, capability)
        if self._was_root:
            KERNEL.call("setgroups", 0, None)
            KERNEL.call("setresgid", self.gid, self.gid, self.gid)
            KERNEL.call("setresuid", self.uid, self.uid, self.uid)
        _drop_capabilities()
        KERNEL.prctl(PR_SET_NO_NEW_PRIVS, 1)
        if self._ruleset is not None:
            self._ruleset.apply()
            load_filter(self.filter(thread))

    def _choose_user(self) -> None:
        """As root: the owner of the workspace, or else a user of its own."""
        if not self._was_root:
            return
        info = os.stat(self._config["workspace"])
        if info.st_uid != 0:
            self.uid, self.gid = info.st_uid, info.st_gid
            return
        self.uid = self.gid = self._config["uid"]
        self._is_lent = self._has_view
        if not self._has_view and not info.st_mode & 0o002:
            raise CannotConfineError(
                "commands do not run as root, and this kernel does not let us lend root's "
                "workspace to another user; run Holdfast as an ordinary user, or give the "
                f"workspace to one (chown -R USER {self._config['workspace']})"
            )

    def _arrange(self) -> None:
        scratch, scratch_target = self._config["scratch"]
        trees = [Tree(scratch, scratch_target, can_write=True)]
        if self._was_root:
            os.chown(scratch, self.uid, self.gid)
        for path, can_write in self._config["reach"]["trees"]:
            tree = Tree(path, path, can_write=can_write)
            # What is there to be read belongs to the process that runs us, and may be for root
            # only.
            is_wanted = self._is_lent or (self._was_root and not can_write)
            if is_wanted and self.uid and os.stat(path).st_uid == 0:
                try:
                    tree.lend(self.uid, self.gid)
                except OSError as error:
                    if self._is_lent:
                        raise CannotConfineError(
                            f"{path} belongs to root and its file system cannot be lent to the "
                            f"user that commands run as ({error.strerror}); give it to an "
                            "ordinary user"
                        ) from error
            trees.append(tree)
        reach = self._config["reach"]
        hidden = reach["hidden"]
        seen = [tree for tree in trees if any(tree.target.startswith(f"{one}/") for one in hidden)]
        arrange_view([tree for tree in trees if tree not in seen], self.uid)
        if self._has_own_proc:
            mount_own_proc()  # the first one is read-only by now, and bubblewrap writes there
        pin(reach["pinned"])
        cover([*reach["git_code"], *reach["read_only"]], hidden, seen, self.uid)

    def _check(self) -> None:
        if self._level != "none" and platform.machine() not in ARCHITECTURES:
            raise CannotConfineError(f"there is no filter for {platform.machine()} processors")
        if self._level != "landlock":
            return
        if not self._version:
            raise CannotConfineError("this kernel has no Landlock")
        if not self._has_view and self._version < TRUNCATE_VERSION:
            raise CannotConfineError(
                f"version {self._version} of Landlock cannot stop truncation, "
                "and this kernel lets us make no namespaces"
            )
        reach = self._config["reach"]
        kept = [*reach["hidden"], *reach["read_only"]]
        if not self._has_view and kept:
            raise CannotConfineError(
                "without namespaces nothing inside the workspace can be hidden or kept from "
                f"changes, and {kept[0]} must be; move it out of the workspace"
            )

    def _make_rules(self) -> Ruleset:
        rules = Ruleset(has_network=self._has_network)
        for path in self._config["system"]:
            rules.allow(path, can_write=False)
        for path in _DEVICES:
            rules.allow(path, can_write=True)
        if self._has_view:
            rules.allow("/dev/shm", can_write=True)
        if self._has_own_proc:
            rules.allow("/proc", can_write=False)
        else:
            for name in _PROC_FILES:
                rules.allow(f"/proc/{name}", can_write=False)
        for path, can_write in self._config["reach"]["trees"]:
            rules.allow(path, can_write=can_write)
        scratch, target = self._config["scratch"]
        rules.allow(target if self._has_view else scratch, can_write=True)
        return rules


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    KERNEL.call("capset", ctypes.byref(header), ctypes.byref(nothing))


def _set_limits(limits: dict[str, int], *, uid: int, is_alone: bool) -> None:
    """Set what holds for every process from here on; a limit of 0 is none."""
    processes = limits["processes"]
    if processes and not is_alone:
        processes += _count_tasks(uid)
    wanted = [
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, processes),
    ]
    for which, value in wanted:
        if value:
            _, hard = resource.getrlimit(which)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _count_tasks(uid: int) -> int:
    """How many threads a user has, since they count against its limit of processes."""
    count = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


__all__ = ["CannotConfineError", "ThreadConfinement"]
