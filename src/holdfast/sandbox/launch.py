"""Our side of the launcher: start it, hand it one command at a time, end it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from holdfast.errors import HoldfastError, SandboxFailed
from holdfast.sandbox.process import HeadTail
from holdfast.sandbox.profiles import PATH, SandboxLimits
from holdfast.sandbox.reach import Reach
from holdfast.sandbox.usage import Usage, measure_usage

_START_S = 20.0
_END_S = 10.0
_LOOK_S = 0.2
_CHUNK = 256 * 1024
_MOST_BYTES = 1 << 20
_BUFFER = 4 << 20

# The launcher's modules without the packages around them, which would import the rest.
_BOOT = """
import sys, types
for name, path in (("holdfast", sys.argv[2]), ("holdfast.sandbox", sys.argv[2] + "/sandbox")):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from holdfast.sandbox.launcher.server import main
main(int(sys.argv[1]))
"""


class EgressListener(Protocol):
    """What answers on a listener inside a sandbox's network namespace."""

    async def aclose(self) -> None:
        """Close the listener, and every connection that came over it."""
        ...


ServesEgress: TypeAlias = Callable[[socket.socket], Awaitable[EgressListener]]
"""Answers on a listening socket, which is its to close, as the proxy of the programs inside."""


class LauncherConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher is told once, before the first command."""

    level: str
    network: bool
    is_filtered: bool
    namespaces: bool
    workspace: str
    reach: Reach
    scratch: tuple[str, str]
    system: list[str]
    uid: int
    limits: dict[str, int]
    wrapper: list[str]


class LauncherFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher found out about this machine."""

    landlock_version: int
    namespaces: str
    uid: int
    is_lent: bool
    has_view: bool


class _Greeting(msgspec.Struct, frozen=True):
    facts: LauncherFacts | None = None
    error: str = ""


class _Ended(msgspec.Struct, frozen=True):
    code: int


class FileQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line wants opened, or entered, and from where."""

    path_open: str = msgspec.field(default="", name="open")
    path_enter: str = msgspec.field(default="", name="enter")
    mode: str = ""
    directory: str = msgspec.field(name="in")


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A descriptor (ours to close), or a directory."""

    fd: int | None = None
    directory: str = ""


FileOpener = Callable[[FileQuestion], FileAnswer]


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    exit_code: int
    stdout: HeadTail
    stderr: HeadTail
    stopped: str


class Launcher:
    """One launcher process; it runs one command at a time."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        server: socket.socket,
        facts: LauncherFacts,
        reach: Reach,
        egress: EgressListener | None = None,
    ) -> None:
        """Use `start`."""
        self._process = process
        self._server = server
        self.facts = facts
        self.reach = reach
        self._egress = egress
        self.runs = 0
        self.is_usable = True

    @classmethod
    async def start(cls, config: LauncherConfig, egress: ServesEgress | None = None) -> Launcher:
        """Start a launcher and wait until it is confined.

        `egress` answers on the listener inside, where the profile is filtered.

        Raises:
            SandboxFailed: it cannot confine as asked; it is gone.
        """
        here, there = make_socket_pair()
        spawning = asyncio.ensure_future(asyncio.to_thread(_spawn, there))
        try:
            process = await asyncio.shield(spawning)
        except OSError as error:
            here.close()
            raise SandboxFailed(detail=f"the launcher did not start: {error}") from error
        except asyncio.CancelledError:
            # The thread goes on, and with it the process that nothing would know of.
            await asyncio.shield(_undo(spawning, here))
            raise
        listener: socket.socket | None = None
        try:
            here.send(msgspec.json.encode(config))
            async with asyncio.timeout(_START_S):
                data, listener = await _hear(here)
            greeting = msgspec.json.decode(data, type=_Greeting) if data else _Greeting()
        except (TimeoutError, OSError, msgspec.DecodeError) as error:
            greeting = _Greeting(error=f"the launcher did not answer: {error}")
        except BaseException:
            await asyncio.to_thread(_end, process, here)
            raise
        if greeting.facts is None:
            await asyncio.to_thread(_end, process, here)
            raise SandboxFailed(detail=greeting.error or "the launcher ended at once")
        try:
            serving = await _serve(config, listener, egress)
        except BaseException:
            await asyncio.to_thread(_end, process, here)
            raise
        return cls(process, here, greeting.facts, config.reach, serving)

    async def run(
        self,
        job: bytes,
        limits: SandboxLimits,
        *,
        opener: FileOpener | None,
        timeout_s: float,
        given: bytes | None = None,
    ) -> ProcessEnd:
        """Run one job to its end; cancelling ends all its processes first.

        `given` is what it reads; the job says whether there is any.

        Raises:
            SandboxFailed: the launcher is gone.
        """
        self.runs += 1
        self.is_usable = False
        run = _Run(limits, opener, given)
        watch = asyncio.create_task(self._watch(run, limits))
        try:
            run.hand_over(self._server, job)
            stopped = await run.wait(timeout_s)
            self.is_usable = True
        finally:
            watch.cancel()
            run.close()
        return ProcessEnd(exit_code=run.code, stdout=run.out, stderr=run.err, stopped=stopped)

    async def _watch(self, run: _Run, limits: SandboxLimits) -> None:
        """End a run whose processes together hold, or have written, too much."""
        while True:
            await asyncio.sleep(_LOOK_S)
            used = await self.measure()
            if limits.total_memory_bytes and used.memory_bytes > limits.total_memory_bytes:
                run.ask_to_stop("memory")
            elif limits.total_disk_bytes and used.written_bytes > limits.total_disk_bytes:
                run.ask_to_stop("disk")

    async def measure(self) -> Usage:
        """Return what all processes in this sandbox use, and have written since it began."""
        return await asyncio.to_thread(measure_usage, self._process.pid)

    def hand_over(self, job: bytes, descriptors: list[int]) -> None:
        """Send a job with its control socket, output, errors and input, to run on by itself.

        Raises:
            OSError: the launcher is gone.
        """
        self.runs += 1
        self.is_usable = False
        socket.send_fds(self._server, [job], descriptors)

    async def close(self) -> None:
        """End the process and all that it started."""
        self.is_usable = False
        egress, self._egress = self._egress, None
        try:
            if egress is not None:
                await egress.aclose()
        finally:
            await asyncio.to_thread(_end, self._process, self._server)


async def _hear(here: socket.socket) -> tuple[bytes, socket.socket | None]:
    """The launcher's greeting, with the listener that it opened inside, if it was to."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(here, on_ready)
    try:
        await ready
    finally:
        loop.remove_reader(here)
    data, fds, _, _ = socket.recv_fds(here, _MOST_BYTES, 1)
    found = [socket.socket(fileno=fd) for fd in fds]
    for one in found:
        one.set_inheritable(False)
        one.setblocking(False)
    return data, found[0] if found else None


async def _serve(
    config: LauncherConfig, listener: socket.socket | None, egress: ServesEgress | None
) -> EgressListener | None:
    """Let the proxy answer; a filtered sandbox without one is none."""
    if not config.is_filtered:
        return None
    if listener is None or egress is None:
        raise SandboxFailed(detail="a filtered network needs a proxy, and there is none")
    try:
        return await egress(listener)
    except BaseException:
        listener.close()
        raise


class _Run:
    """One command under way: its pipes, its control socket, its files."""

    def __init__(
        self, limits: SandboxLimits, opener: FileOpener | None, given: bytes | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._opener = opener
        self.out = HeadTail(limits.output_bytes)
        self.err = HeadTail(limits.output_bytes)
        self.code = 0
        self._stopped = ""
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._pipes: dict[int, HeadTail] = {}
        self._given = memoryview(given) if given is not None else None
        self._input = -1
        self._control: socket.socket | None = None
        self._files: socket.socket | None = None
        self._answers: set[asyncio.Task[None]] = set()

    def hand_over(self, server: socket.socket, job: bytes) -> None:
        """Send the job with its descriptors, and start to listen."""
        theirs: list[int] = []
        try:
            self._control, control = make_socket_pair()
            theirs.append(control.detach())
            for kept in (self.out, self.err):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self._pipes[reader] = kept
                theirs.append(writer)
            if self._given is not None:
                reader, self._input = os.pipe()
                os.set_blocking(self._input, False)
                theirs.append(reader)
            if self._opener is not None:
                self._files, files = make_socket_pair()
                theirs.append(files.detach())
            socket.send_fds(server, [job], theirs)
        except OSError as error:
            raise SandboxFailed(detail=f"the launcher takes no command: {error}") from error
        finally:
            for fd in theirs:
                os.close(fd)
        self._loop.add_reader(self._control, self._on_control)
        for reader in self._pipes:
            self._loop.add_reader(reader, self._on_output, reader)
        if self._input != -1:
            self._loop.add_writer(self._input, self._on_room)
        if self._files is not None:
            self._loop.add_reader(self._files, self._on_question)

    async def wait(self, timeout_s: float) -> str:
        """Return why it was stopped, or nothing, when every process of it is gone."""
        try:
            async with asyncio.timeout(timeout_s or None):
                await asyncio.shield(self._done)
        except TimeoutError:
            await self._stop("timeout")
        except asyncio.CancelledError:
            if not self._done.done():
                await self._stop("cancelled")
            raise
        for reader in list(self._pipes):
            self._on_output(reader)
        return self._stopped

    def close(self) -> None:
        """Let go of everything."""
        for reader in list(self._pipes):
            self._drop(reader)
        self._end_input()
        for one in (self._control, self._files):
            if one is not None:
                self._loop.remove_reader(one)
                one.close()
        for task in self._answers:
            task.cancel()
        if not self._done.done():
            self._done.cancel()
        elif not self._done.cancelled():
            self._done.exception()

    async def _stop(self, reason: str) -> None:
        self.ask_to_stop(reason)
        try:
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._done)
        except TimeoutError as error:
            raise SandboxFailed(detail="the command could not be ended") from error

    def ask_to_stop(self, reason: str) -> None:
        """Have every process of it ended, for the first reason that is given."""
        if not self._stopped and self._control is not None:
            with suppress(OSError):
                self._control.send(b"stop")
        self._stopped = self._stopped or reason

    def _on_control(self) -> None:
        assert self._control is not None
        try:
            data = _receive(self._control)
        except BlockingIOError:
            return
        self._loop.remove_reader(self._control)
        if self._done.done():
            return
        if data:
            self.code = msgspec.json.decode(data, type=_Ended).code
            self._done.set_result(None)
        else:
            self._done.set_exception(SandboxFailed(detail="the launcher ended unexpectedly"))

    def _on_output(self, reader: int) -> None:
        kept = self._pipes[reader]
        while True:
            try:
                data = os.read(reader, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._drop(reader)
                return
            kept.add(data)
            if kept.total > self._limits.output_bytes * self._limits.flood_factor:
                self.ask_to_stop("output")
            if len(data) < _CHUNK and not self._done.done():
                return

    def _on_room(self) -> None:
        """Write on what it reads; one that does not want more is not an error."""
        assert self._given is not None
        try:
            while self._given:
                self._given = self._given[os.write(self._input, self._given[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._given = memoryview(b"")
        self._end_input()

    def _end_input(self) -> None:
        if self._input != -1:
            self._loop.remove_writer(self._input)
            os.close(self._input)
            self._input = -1

    def _drop(self, reader: int) -> None:
        self._loop.remove_reader(reader)
        del self._pipes[reader]
        os.close(reader)

    def _on_question(self) -> None:
        assert self._files is not None
        try:
            data = _receive(self._files)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._files)
            return
        task = self._loop.create_task(self._answer(data))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, data: bytes) -> None:
        assert self._files is not None
        assert self._opener is not None
        fds: list[int] = []
        try:
            question = msgspec.json.decode(data, type=FileQuestion)
            answer = await asyncio.to_thread(self._opener, question)
            text = msgspec.json.encode({"directory": answer.directory})
            fds = [answer.fd] if answer.fd is not None else []
        except (HoldfastError, msgspec.DecodeError) as error:
            text = msgspec.json.encode({"error": str(error)})
        try:
            with suppress(OSError):
                socket.send_fds(self._files, [text], fds)
        finally:
            for fd in fds:
                os.close(fd)


def _receive(source: socket.socket) -> bytes:
    """The next message; nothing at the end.

    A stop that crosses the result is left unread, which resets the connection; the reset is
    told first, and the result is still there.
    """
    for _ in range(2):
        try:
            return source.recv(_MOST_BYTES)
        except ConnectionResetError:
            continue
        except BlockingIOError:
            raise
        except OSError:
            break
    return b""


def make_socket_pair() -> tuple[socket.socket, socket.socket]:
    """A pair that keeps messages apart and is large enough for one; ours does not block."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    here.setblocking(False)
    return here, there


def _spawn(there: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process with its end of the socket, which is then closed here."""
    package = str(Path(__file__).parents[1])
    with there:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(there.fileno()), package],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(there.fileno(),),
            cwd="/",
            env={"PATH": PATH, "LANG": "C.UTF-8"},
        )


async def _undo(spawning: asyncio.Future[subprocess.Popen[bytes]], here: socket.socket) -> None:
    """End a process that no caller waits for any more, as soon as it is there."""
    try:
        process = await spawning
    except OSError:
        here.close()
        return
    await asyncio.to_thread(_end, process, here)


def _end(process: subprocess.Popen[bytes], server: socket.socket) -> None:
    """Close the socket, which ends the launcher; kill it if it does not listen."""
    server.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


__all__ = [
    "EgressListener",
    "FileAnswer",
    "FileOpener",
    "FileQuestion",
    "Launcher",
    "LauncherConfig",
    "ProcessEnd",
    "ServesEgress",
]
__all__ += ["LauncherFacts", "make_socket_pair"]
