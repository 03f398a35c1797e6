"""What a hostile command tries; runs inside the sandbox and prints `done` if it worked.

`python attacks.py NAME FACTS` where FACTS is JSON about the outside: paths, ports, pids.
Anything that raises is told as `blocked`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys


def write_outside(facts):
    with open(facts["outside"] + "/new", "w") as stream:
        stream.write("x")


def overwrite_outside(facts):
    with open(facts["secret"], "a") as stream:
        stream.write("x")


def write_system(_facts):
    with open("/etc/holdfast-probe", "w") as stream:
        stream.write("x")


def write_usr(_facts):
    os.mkdir("/usr/holdfast-probe")


def read_secret(facts):
    with open(facts["secret"]) as stream:
        tell(stream.read())


def list_outside(facts):
    assert os.listdir(facts["outside"])


def read_through_link(facts):
    os.symlink(facts["secret"], "link-to-secret")
    with open("link-to-secret") as stream:
        tell(stream.read())


def write_through_link(facts):
    os.symlink(facts["outside"], "link-to-directory")
    with open("link-to-directory/new", "w") as stream:
        stream.write("x")


def hard_link(facts):
    os.link(facts["secret"], "hard-link")
    with open("hard-link", "a") as stream:
        stream.write("x")


def rename_out(facts):
    with open("mine", "w") as stream:
        stream.write("x")
    os.rename("mine", facts["outside"] + "/mine")


def rename_in(facts):
    os.rename(facts["secret"], "stolen")


def remove_outside(facts):
    os.unlink(facts["secret"])


def truncate_outside(facts):
    os.truncate(facts["secret"], 0)


def chmod_outside(facts):
    os.chmod(facts["secret"], 0o777)


def touch_outside(facts):
    os.utime(facts["secret"], (1, 1))


def read_environment_of_others(facts):
    with open(f"/proc/{facts['victim']}/environ", "rb") as stream:
        assert b"PLANTED" in stream.read()


def read_command_line_of_others(facts):
    with open(f"/proc/{facts['victim']}/cmdline", "rb") as stream:
        assert b"wait" in stream.read()


def leave_through_proc(facts):
    for pid in (1, os.getppid()):
        with open(f"/proc/{pid}/root{facts['secret']}") as stream:
            tell(stream.read())


def write_memory_of_parent(_facts):
    with open(f"/proc/{os.getppid()}/mem", "r+b") as stream:
        stream.seek(4096)
        stream.write(b"x")


def inherited_descriptors(_facts):
    """Sockets of the launcher would let a command forge its own result."""
    found = [fd for fd in range(3, 1024) if is_open(fd)]
    assert found
    tell(str(found))


def own_environment(_facts):
    assert "PLANTED_SECRET" in os.environ or "planted-in-environment" in str(os.environ)


def tcp(facts):
    socket.create_connection(("127.0.0.1", facts["tcp"]), timeout=2).close()


def udp(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"escaped", ("127.0.0.1", facts["udp"]))
        raise SystemExit("sent")


def udp6(facts):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"escaped", ("::ffff:127.0.0.1", facts["udp"]))
        raise SystemExit("sent")


def packet_socket(_facts):
    socket.socket(17, socket.SOCK_RAW, 0)


def unix_socket_outside(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["unix"])


def abstract_unix_socket(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])


def signal_outside(facts):
    os.kill(facts["victim"], signal.SIGKILL)


def signal_everybody(_facts):
    os.kill(-1, signal.SIGTERM)
    raise SystemExit("sent")


def signal_launcher(_facts):
    for pid in {1, 2, os.getppid(), os.getppid() - 1, os.getppid() + 1} - {os.getpid(), 0}:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    syscall(234, os.getppid(), os.getppid() + 1, 9)
    raise PermissionError


def limit_outside(facts):
    resource.prlimit(facts["victim"], resource.RLIMIT_NOFILE, (0, 0))


def raise_limits(_facts):
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def trace_outside(facts):
    if LIBC.ptrace(16, facts["victim"], 0, 0) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")


def new_user_namespace(_facts):
    syscall(272, 0x10000000)


def mount_something(_facts):
    if LIBC.mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None) == -1:
        raise OSError(ctypes.get_errno(), "mount")


def io_uring(_facts):
    syscall(425, 1, ctypes.create_string_buffer(200))


def bpf(_facts):
    syscall(321, 0, ctypes.create_string_buffer(200), 128)


def keyring(_facts):
    syscall(250, 0, -3, 1)


def perf(_facts):
    syscall(298, ctypes.create_string_buffer(200), 0, -1, -1, 0)


def become_root(_facts):
    os.setuid(0)


def setuid_program(_facts):
    for name in ("su", "mount", "passwd", "chsh", "newgrp", "umount"):
        path = shutil.which(name)
        if path and os.stat(path).st_mode & 0o4000:
            break
    else:
        raise FileNotFoundError("no setuid program here")
    with open("/proc/self/status") as stream:
        assert "NoNewPrivs:\t0" in stream.read()  # else the kernel ignores the bit


def leave_setuid_program(_facts):
    shutil.copy("/bin/sh", "shell")
    failed = 0
    for command in (
        ["chmod", "u+s", "shell"],
        ["chmod", "g+s", "shell"],
        ["install", "-m", "6755", "/bin/sh", "installed"],
        ["sh", "-c", "umask 0; mkdir -m 2777 given; chmod 2777 given"],
        ["cp", "--preserve=mode", shutil.which("su") or "/bin/su", "copied"],
        ["sh", "-c", "cd /tmp && cp /bin/sh s && chmod 4755 s && mv s $OLDPWD/moved"],
    ):
        failed += subprocess.run(command, capture_output=True).returncode != 0
    privileged = [one.path for one in os.scandir(".") if one.stat().st_mode & 0o6000]
    if not privileged and failed:
        raise PermissionError("no file kept the bits")


def be_root(_facts):
    if os.getuid() != 0 and os.geteuid() != 0:
        raise PermissionError("an ordinary user")


def make_device(_facts):
    os.mknod("device", 0o600 | 0o020000, os.makedev(1, 3))


def allocate(_facts):
    taken = bytearray(2 << 30)
    taken[:: 1 << 12] = b"x" * len(taken[:: 1 << 12])


def allocate_shared(_facts):
    mmap.mmap(-1, 2 << 30)


def large_file(_facts):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("large", "wb") as stream:
        stream.truncate(8 << 30)


def fork_bomb(_facts):
    children = 0
    for _ in range(3000):
        try:
            if os.fork() == 0:
                signal.pause()
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise
        children += 1


def endless_fork_bomb(_facts):
    while True:
        try:
            os.fork()
        except OSError:
            continue


def daemon(_facts):
    """Fork twice in a session of its own, and hold a lock for ever."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            lock = os.open("lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX)
            for fd in (0, 1, 2):
                os.close(fd)
            os.write(writer, b"1")
            while True:
                signal.pause()
        os._exit(0)
    os.read(reader, 1)
    raise SystemExit("started")


def git_hook(_facts):
    with open(".git/hooks/pre-commit", "w") as stream:
        stream.write("x")


def git_config(_facts):
    with open(".git/config", "a") as stream:
        stream.write("x")


def read_hidden(_facts):
    with open("state/secret") as stream:
        tell(stream.read())


def write_inside(_facts):
    with open("inside", "w") as stream:
        stream.write("x")


def usual_metadata(_facts):
    with open("usual", "w") as stream:
        stream.write("x")
    os.chmod("usual", 0o755)
    os.utime("usual", (1, 1))


def usual_work(_facts):
    """What must go on working: files, children, temporary files, pipes, signals."""
    with open("usual", "w") as stream:
        stream.write("x")
        os.fchmod(stream.fileno(), 0o755)
        os.utime(stream.fileno(), (1, 1))
    os.mkdir("made")
    os.rename("usual", "made/usual")
    shutil.rmtree("made")
    assert subprocess.run(["sh", "-c", "echo $((1 + 1))"], capture_output=True).stdout == b"2\n"
    with open(os.environ["TMPDIR"] + "/t", "w") as stream:
        stream.write("x")
    socket.socketpair()
    with open("/dev/null", "w") as stream:
        stream.write("x")
    os.kill(os.getpid(), 0)
    child = subprocess.Popen(["sleep", "1000"])
    child.kill()
    assert child.wait() == -9


LIBC = ctypes.CDLL(None, use_errno=True)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def tell(text):
    sys.stdout.write(text + "\n")


def syscall(number, *arguments):
    wide = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    if LIBC.syscall(ctypes.c_long(number), *wide) == -1:
        raise OSError(ctypes.get_errno(), f"system call {number}")


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](json.loads(sys.argv[2]))
    except SystemExit as error:
        tell(str(error.code))
    except (OSError, ValueError, MemoryError, AssertionError) as error:
        tell(f"blocked: {type(error).__name__}: {error}")
    else:
        tell("done")
