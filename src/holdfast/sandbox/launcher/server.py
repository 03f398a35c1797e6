"""The launcher's main thread: takes jobs, watches over them, and ends what is left."""

from __future__ import annotations

import _thread
import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import Any

from holdfast.sandbox.launcher.confine import CannotConfineError, ThreadConfinement
from holdfast.sandbox.launcher.executor import Executor, Streams, receive
from holdfast.sandbox.launcher.kernel import (
    KERNEL,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
)
from holdfast.sandbox.launcher.loopback import open_listener
from holdfast.sandbox.launcher.mounts import enter_namespaces
from holdfast.sandbox.launcher.processes import end_all, reap_all

_MOST_BYTES = 1 << 20
_CANNOT_RUN = 126


def main(fd: int) -> None:
    """Serve jobs from the socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    os.set_inheritable(fd, False)
    server = socket.socket(fileno=fd)
    config = json.loads(server.recv(_MOST_BYTES))
    namespaces, is_init = _enter(config)
    listener: list[int] = []
    try:
        if config["is_filtered"]:
            # Before any right is given up: bringing an interface up takes one.
            listener.append(open_listener(is_alone="net" in namespaces.split()))
        confinement = ThreadConfinement(config, namespaces=namespaces, is_init=is_init)
        desk = _Desk(confinement)
    except (CannotConfineError, OSError) as error:
        server.send(json.dumps({"error": str(error)}).encode())
        return
    socket.send_fds(server, [json.dumps({"facts": confinement.facts}).encode()], listener)
    for fd in listener:
        os.close(fd)
    _serve(server, desk, is_init=is_init)


def _enter(config: dict[str, Any]) -> tuple[str, bool]:
    """Make namespaces if they are wanted and allowed; what they are, and if we are init."""
    is_root = os.geteuid() == 0
    is_filtered = config["is_filtered"]
    wanted = config["level"] == "landlock" or (
        config["level"] == "bubblewrap" and (is_root or is_filtered)
    )
    if not wanted or not config["namespaces"]:
        KERNEL.prctl(PR_SET_CHILD_SUBREAPER, 1)
        return "", False
    # bubblewrap makes its own network; it needs only the view that root prepares. Where the
    # network is filtered it is ours, with the listener in it, and bubblewrap stays inside.
    has_network = config["network"] or config["level"] == "bubblewrap"
    has_network = has_network and not is_filtered
    try:
        enter_namespaces(has_network=has_network, with_pids=True)
    except OSError:
        KERNEL.prctl(PR_SET_CHILD_SUBREAPER, 1)
        return "", False
    child = os.fork()
    if child:
        # The process that started us knows this process only: its end is the end of all.
        _, status = os.waitpid(child, 0)
        os._exit(0 if status == 0 else 1)
    KERNEL.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    kinds = "pid mount ipc" + ("" if has_network else " net") + ("" if is_root else " user")
    return kinds, True


class _Desk:
    """Hands jobs to the confined thread and takes their results back."""

    def __init__(self, confinement: ThreadConfinement) -> None:
        self._confinement = confinement
        self._jobs, self._jobs_in = os.pipe()
        self.done, self._done_in = os.pipe()
        self._job: tuple[dict[str, Any], Streams] | None = None
        self._executor: Executor | None = None
        self.code = 0
        self.error = ""
        _thread.start_new_thread(self._work, ())
        os.read(self.done, 1)
        if self.error:
            raise CannotConfineError(self.error)
        KERNEL.prctl(PR_SET_DUMPABLE, 0)

    def start(self, job: dict[str, Any], streams: Streams) -> None:
        self._job = (job, streams)
        if self._executor is not None:
            self._executor.is_stopped = False
        os.write(self._jobs_in, b"1")

    def stop(self) -> None:
        """Start no further program of the current job."""
        if self._executor is not None:
            self._executor.is_stopped = True

    def _work(self) -> None:
        thread = _thread.get_native_id()
        try:
            # The filter is built before rights are gone, because it asks about them.
            program = self._confinement.filter(thread)
            self._executor = executor = Executor(self._confinement.wrapper, program)
            self._confinement.give_up(thread)
        except OSError as error:
            self.error = str(error)
        os.write(self._done_in, b"1")
        while not self.error and os.read(self._jobs, 1):
            self.code = self._run(executor)
            os.write(self._done_in, b"1")

    def _run(self, executor: Executor) -> int:
        if self._job is None:
            return _CANNOT_RUN
        try:
            return executor.run(*self._job)
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread waits for us
            with suppress(OSError):
                os.write(self._job[1].err, f"the command cannot be run: {error}\n".encode())
            return _CANNOT_RUN


def _serve(server: socket.socket, desk: _Desk, *, is_init: bool) -> None:
    while True:
        data, fds = receive(server, _MOST_BYTES, 5)
        if not data:
            return
        job = json.loads(data)
        control = socket.socket(fileno=fds[0])
        streams = Streams(fds[1:], has_source=job["has_input"])
        desk.start(job, streams)
        _watch(control, desk, is_init=is_init)
        streams.close()
        with suppress(OSError):
            control.send(json.dumps({"code": desk.code}).encode())
        control.close()


def _watch(control: socket.socket, desk: _Desk, *, is_init: bool) -> None:
    """Wait for the end of the job; a word or silence from outside ends it early."""
    poll = select.poll()
    poll.register(control, select.POLLIN | select.POLLHUP)
    poll.register(desk.done, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if desk.done in ready:
            os.read(desk.done, 1)
            break
        # Read the word: a socket that closes with something unread resets the other side.
        with suppress(OSError):
            control.recv(16, socket.MSG_DONTWAIT)
        # The confined thread may be about to start a program: look again and again.
        desk.stop()
        end_all(is_init=is_init)
        poll.unregister(control)
        while not select.select([desk.done], [], [], 0.005)[0]:
            end_all(is_init=is_init)
    reap_all(is_init=is_init)


__all__ = ["main"]
