"""Build and load the filter of system calls, as the kernel's own small machine code.

A denied call fails with EPERM and the program goes on; calls of another architecture end
the process, because a filter for one architecture says nothing about another.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import struct

from holdfast.sandbox.launcher.kernel import (
    ARCHITECTURES,
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    KERNEL,
    compute_number,
)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x4000_0000
_EPERM, _ENOSYS = 1, 38
_SET_MODE_FILTER = 1

# What no command needs, and what has been the way out of sandboxes.
_NEVER = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init
finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register
io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie memfd_secret
migrate_pages modify_ldt mount mount_setattr move_mount move_pages name_to_handle_at
open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise
process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key setdomainname
sethostname setns settimeofday swapoff swapon syslog umount2 unshare userfaultfd vhangup
""".split()
# Shared memory and queues of the machine, where no namespace separates them.
_SHARED_IPC = ["mq_open", "msgget", "semget", "shmget"]
# These name another process in their first argument; 0 is the caller itself.
_ONLY_SELF = ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam"]
_ONLY_SELF += ["sched_setscheduler"]
_SIGNALS = ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"]
# Modes, owners and times of any file by its path, which Landlock does not look at.
_METADATA = """
chmod fchmodat fchmodat2 chown lchown fchownat setxattr lsetxattr setxattrat removexattr
lremovexattr removexattrat utime utimes futimesat
""".split()
_NAMESPACES = (
    CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
)
_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
_F_SETOWN, _F_SETOWN_EX = 8, 15
# A program that runs with the rights of its owner, whoever starts it: what a command leaves on
# the disk is obeyed outside, where no mount and no flag of ours holds.
_PRIVILEGED = 0o6000
_MODE_OF = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
_MODE_OF |= {"creat": 1, "mknod": 1, "mknodat": 2}
# Flags and mode of calls whose mode counts only where the flags make a file (O_CREAT, O_TMPFILE).
_MAKES_FILE = 0o100 | 0o20000000
_FLAGS_AND_MODE_OF = {"open": (1, 2), "openat": (2, 3)}


class Filter:
    """Instructions, in order; whatever no instruction denies is allowed."""

    def __init__(self) -> None:
        """Start with the checks of the architecture."""
        machine = platform.machine()
        self._code = [
            _encode_instruction(_LOAD, _ARCHITECTURE_AT),
            _encode_instruction(_EQUAL, ARCHITECTURES[machine], 1, 0),
            _encode_instruction(_RETURN, _KILL),
            _encode_instruction(_LOAD, _NUMBER_AT),
        ]
        if machine == "x86_64":
            self._code += [
                _encode_instruction(_AT_LEAST, _X32, 0, 1),
                _encode_instruction(_RETURN, _ERRNO | _ENOSYS),
            ]

    def deny(self, name: str, error: int = _EPERM) -> None:
        """Let a call fail."""
        if compute_number(name) >= 0:
            self._code += [
                _encode_instruction(_EQUAL, compute_number(name), 0, 1),
                _encode_instruction(_RETURN, _ERRNO | error),
            ]

    def deny_if(self, name: str, argument: int, values: list[int]) -> None:
        """Let a call fail if an argument has one of these values."""
        body: list[bytes] = []
        for value in values:
            body += [
                _encode_instruction(_EQUAL, value, 0, 1),
                _encode_instruction(_RETURN, _ERRNO | _EPERM),
            ]
        self._format_when(name, argument, body)

    def deny_unless(self, name: str, argument: int, values: list[int]) -> None:
        """Let a call fail unless an argument has one of these values."""
        body = [
            _encode_instruction(_EQUAL, value, len(values) - at, 0)
            for at, value in enumerate(values)
        ]
        self._format_when(name, argument, [*body, _encode_instruction(_RETURN, _ERRNO | _EPERM)])

    def deny_if_bits(self, name: str, argument: int, bits: int) -> None:
        """Let a call fail if an argument has any of these bits."""
        body = [
            _encode_instruction(_ANY_BIT, bits, 0, 1),
            _encode_instruction(_RETURN, _ERRNO | _EPERM),
        ]
        self._format_when(name, argument, body)

    def deny_if_bits_with(self, name: str, flags: tuple[int, int], bits: tuple[int, int]) -> None:
        """Let a call fail if an argument has any of some flags and another any of some bits.

        Both are pairs of the argument's place and the bits.
        """
        body = [
            _encode_instruction(_ANY_BIT, flags[1], 0, 3),
            _encode_instruction(_LOAD, _ARGUMENTS_AT + 8 * bits[0]),
            _encode_instruction(_ANY_BIT, bits[1], 0, 1),
            _encode_instruction(_RETURN, _ERRNO | _EPERM),
        ]
        self._format_when(name, flags[0], body)

    def deny_unless_null(self, name: str, argument: int) -> None:
        """Let a call fail unless a pointer is null."""
        at = _ARGUMENTS_AT + 8 * argument
        body = [
            _encode_instruction(_EQUAL, 0, 0, 2),
            _encode_instruction(_LOAD, at + 4),
            _encode_instruction(_EQUAL, 0, 1, 0),
            _encode_instruction(_RETURN, _ERRNO | _EPERM),
        ]
        self._format_when(name, argument, body)

    def assemble_parts(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join([*self._code, _encode_instruction(_RETURN, _ALLOW)])

    def _format_when(self, name: str, argument: int, body: list[bytes]) -> None:
        """Run the body on the lower half of an argument; the kernel takes these as ints."""
        if compute_number(name) < 0:
            return
        body = [
            _encode_instruction(_LOAD, _ARGUMENTS_AT + 8 * argument),
            *body,
            _encode_instruction(_LOAD, _NUMBER_AT),
        ]
        self._code += [_encode_instruction(_EQUAL, compute_number(name), 0, len(body)), *body]


def build_filter(
    *,
    families: list[int] | None,
    has_own_ipc: bool = False,
    can_signal: bool = True,
    can_change_metadata: bool = True,
    protected: tuple[int, ...] = (),
) -> bytes:
    """Build the filter for a command.

    `families` are the socket families that it may open (None: all). `protected` are
    process and thread numbers that it must not signal; without `can_signal` it can signal
    no process but its own group. Without `can_change_metadata` modes, owners and times can be
    changed through open descriptors only.
    """
    program = Filter()
    for name in _NEVER:
        program.deny(name)
    for name in [] if has_own_ipc else _SHARED_IPC:
        program.deny(name)
    for name in [] if can_change_metadata else _METADATA:
        program.deny(name)
    if not can_change_metadata:
        program.deny_unless_null("utimensat", 1)
    _deny_privileged_modes(program)
    # Its flags are behind a pointer, where a filter cannot look; libc falls back to clone.
    program.deny("clone3", _ENOSYS)
    program.deny_if_bits("clone", 0, _NAMESPACES)
    terminal = [_TIOCSTI, _TIOCLINUX]
    program.deny_if("ioctl", 1, terminal if can_signal else [*terminal, _FIOSETOWN, _SIOCSPGRP])
    for name in _ONLY_SELF:
        program.deny_unless(name, 0, [0])
    if families is not None:
        program.deny_unless("socket", 0, families) if families else program.deny("socket")
    if not can_signal:
        for name in [*_SIGNALS, "pidfd_send_signal"]:
            program.deny_unless(name, 0, [0]) if name == "kill" else program.deny(name)
        program.deny_if("fcntl", 1, [_F_SETOWN, _F_SETOWN_EX])
    elif protected:
        for name in _SIGNALS:
            program.deny_if(name, 0, list(protected))
    return program.assemble_parts()


def _deny_privileged_modes(program: Filter) -> None:
    """Let every call fail that would make a file set-uid or set-gid.

    A directory cannot get the bit either: the filter does not see what a path leads to.
    """
    for name, mode in _MODE_OF.items():
        program.deny_if_bits(name, mode, _PRIVILEGED)
    for name, (flags, mode) in _FLAGS_AND_MODE_OF.items():
        program.deny_if_bits_with(name, (flags, _MAKES_FILE), (mode, _PRIVILEGED))
    # Its mode is behind a pointer; programs fall back to openat.
    program.deny("openat2", _ENOSYS)


def list_network_families(*, has_network: bool, has_unix: bool) -> list[int]:
    """The socket families of a profile; netlink is how programs list interfaces."""
    families = [int(socket.AF_UNIX)] if has_unix else []
    if has_network:
        families += [int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_NETLINK)]
    return families


def load_filter(program: bytes) -> None:
    """Put the calling thread, and all that it starts, under the filter for good."""
    code = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(code))
    KERNEL.call("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(header))


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def _encode_instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


__all__ = ["Filter", "build_filter", "list_network_families", "load_filter"]
