"""A program that runs on in a sandbox, whose input and output another process speaks to.

A command ends and its output is collected; a server stays, and every line of it counts. Both
are confined in the same way: a stream is the one job of a launcher of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.errors import SandboxFailed
from holdfast.sandbox.launch import Launcher, make_socket_pair
from holdfast.sandbox.process import HeadTail
from holdfast.sandbox.profiles import SandboxLimits

_STDERR_BYTES = 16 * 1024
_CHUNK = 64 * 1024
_LAST_WORDS_S = 2.0
_LOOK_S = 1.0


class SandboxStream:
    """A confined program under way; closing it ends everything that it started.

    Its output is read no faster than it is asked for, so that a flood fills a pipe and
    nothing else. Of what it complains, head and tail are kept.
    """

    def __init__(
        self, launcher: Launcher, level_name: str, on_end: Callable[[], object] | None = None
    ) -> None:
        """Use `SandboxRunner.open_program`."""
        self._launcher = launcher
        self._on_end = on_end
        self.level_name = level_name
        self._control: socket.socket | None = None
        self._reader: asyncio.StreamReader | None = None
        self._source: asyncio.ReadTransport | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._errors = HeadTail(_STDERR_BYTES)
        self._complaints: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.stopped = ""
        """Why it was ended, if it exceeded a limit of all its processes: `memory` or `disk`."""
        self.ended = asyncio.Event()
        """Set when the program, and all that it started, is gone."""

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        job: bytes,
        *,
        level_name: str,
        line_bytes: int,
        limits: SandboxLimits,
        on_end: Callable[[], object] | None = None,
    ) -> SandboxStream:
        """Hand the job over and return the stream; `line_bytes` is the longest line to be read.

        `on_end` is called, in a thread, when the program has ended. One that holds, or has
        written, more than the totals of `limits` is ended.

        Raises:
            SandboxFailed: the launcher is gone, and so is the program.
        """
        stream = cls(launcher, level_name, on_end)
        try:
            await stream._begin(job, line_bytes)
            stream._watch = asyncio.create_task(stream._look(limits))
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def _begin(self, job: bytes, line_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._control, control = make_socket_pair()
        ours: list[int] = []
        theirs = [control.detach()]
        try:
            for is_input in (False, False, True):
                reader, writer = os.pipe()
                theirs.append(reader if is_input else writer)
                ours.append(writer if is_input else reader)
            self._launcher.hand_over(job, theirs)
            out, err, inp = ours
            self._reader, self._source = await _make_readable(ours, out, line_bytes)
            errors, _ = await _make_readable(ours, err, _CHUNK)
            self._complaints = loop.create_task(self._collect(errors))
            self._writer = await _make_writable(ours, inp, self._reader)
        except OSError as error:
            raise SandboxFailed(detail=f"the launcher takes no program: {error}") from error
        finally:
            _close_all([*theirs, *ours])
        loop.add_reader(self._control, self._on_control)

    async def read_line(self) -> bytes:
        """Return the next line with its end; nothing when the program closed its output.

        Raises:
            ValueError: the line is longer than a line may be.
        """
        if self._reader is None:
            return b""
        try:
            return await self._reader.readline()
        except ConnectionError:
            return b""

    async def read_exactly(self, count: int) -> bytes:
        """Return that many bytes; fewer only when the program closed its output before."""
        if self._reader is None:
            return b""
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        """Hand bytes to the program, waiting while it does not read.

        Raises:
            ConnectionError: it reads no more.
        """
        if self._writer is None or self._writer.is_closing():
            raise ConnectionResetError("the program's input is closed")
        self._writer.write(data)
        await self._writer.drain()

    async def read_complaints(self) -> str:
        """What it wrote to its standard error, the middle left out if that is long.

        Of a program that has ended, it is all of it.
        """
        if self.ended.is_set() and self._complaints is not None:
            await asyncio.wait([self._complaints], timeout=_LAST_WORDS_S)
        return self._errors.text()

    async def aclose(self, *, grace_s: float = 0.0) -> None:
        """Close the program's input, wait that long for its end, then end what is left."""
        if self._watch is not None:
            self._watch.cancel()
        if self._writer is not None:
            self._writer.close()
        if grace_s and self._control is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.ended.wait()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            # Silence on this socket ends the job, whatever it does.
            self._control.close()
            self._control = None
        await self._launcher.close()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            await asyncio.to_thread(on_end)
        self.ended.set()
        if self._source is not None:
            self._source.close()
        if self._complaints is not None:
            self._complaints.cancel()
            await asyncio.wait([self._complaints])

    async def _collect(self, errors: asyncio.StreamReader) -> None:
        while data := await errors.read(_CHUNK):
            self._errors.add(data)

    async def _look(self, limits: SandboxLimits) -> None:
        while not self.ended.is_set():
            await asyncio.sleep(_LOOK_S)
            used = await self._launcher.measure()
            if limits.total_memory_bytes and used.memory_bytes > limits.total_memory_bytes:
                self._stop("memory", limits.total_memory_bytes)
            elif limits.total_disk_bytes and used.written_bytes > limits.total_disk_bytes:
                self._stop("disk", limits.total_disk_bytes)

    def _stop(self, reason: str, limit: int) -> None:
        if self.stopped or self._control is None:
            return
        self.stopped = reason
        words = "held more memory" if reason == "memory" else "wrote more to disks"
        self._errors.add(f"\n[it was ended: it {words} than {limit} bytes]\n".encode())
        with suppress(OSError):
            # Silence on this socket ends the job.
            self._control.shutdown(socket.SHUT_WR)

    def _on_control(self) -> None:
        if self._control is None:
            return
        with suppress(BlockingIOError, OSError):
            self._control.recv(_CHUNK)
        asyncio.get_running_loop().remove_reader(self._control)
        self.ended.set()


async def _make_readable(
    owned: list[int], fd: int, limit: int
) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Take a descriptor out of those that we close, into a reader that closes it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    pipe = os.fdopen(fd, "rb", buffering=0)
    owned.remove(fd)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _make_writable(
    owned: list[int], fd: int, reader: asyncio.StreamReader
) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "wb", buffering=0)
    owned.remove(fd)
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
    return asyncio.StreamWriter(transport, protocol, reader, loop)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


__all__ = ["SandboxStream"]
