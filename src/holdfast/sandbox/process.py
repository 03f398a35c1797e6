"""Run a program to its end, and end everything that it started.

Every process gets a session of its own; when the program ends, takes too long, floods
its output or is cancelled, its whole process group is killed. Head and tail of long
output are kept. Confinement is not decided here: `argv` may already be wrapped in it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

import msgspec

from holdfast.errors import SandboxFailed

_DRAIN_S = 2.0


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a program may run and how much of its output is kept.

    It is stopped when it writes more than `flood_factor` times what is kept.
    """

    timeout_s: float = 120.0
    max_output_bytes: int = 1024 * 1024
    flood_factor: int = 64


class ProcessResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended; `stopped` is `timeout`, `output` or empty."""

    exit_code: int
    stdout: str
    stderr: str
    stopped: str
    is_truncated: bool


class HeadTail:
    """Keeps the beginning and the end of a stream of bytes."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` bytes, half of them from the end."""
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take in more bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """How many bytes from the middle are missing."""
        return max(0, self.total - 2 * self._half)

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        tail = self._tail[-self._half :] if self._tail else b""
        head = self._head.decode(errors="replace")
        end = bytes(tail).decode(errors="replace")
        if not self.left_out:
            return (self._head + tail).decode(errors="replace")
        return f"{head}\n… ({self.left_out} bytes left out) …\n{end}"


async def run_process(
    argv: Sequence[str],
    *,
    directory: str,
    environment: Mapping[str, str],
    limits: ProcessLimits,
    given: bytes = b"",
) -> ProcessResult:
    """Run a program that reads `given`, and return how it ended; cancelling ends it.

    Raises:
        SandboxFailed: it could not be started.
    """
    transport, watch = await _start(argv, directory, environment, limits, given)
    try:
        if (pipe := transport.get_pipe_transport(0)) is not None:
            source = cast("asyncio.WriteTransport", pipe)
            source.write(given)
            source.write_eof()
        async with asyncio.timeout(limits.timeout_s):
            await watch.exited.wait()
    except TimeoutError:
        watch.stopped = watch.stopped or "timeout"
    finally:
        await _end(transport, watch)
    return ProcessResult(
        exit_code=transport.get_returncode() or 0,
        stdout=watch.out.text(),
        stderr=watch.err.text(),
        stopped=watch.stopped,
        is_truncated=bool(watch.out.left_out or watch.err.left_out),
    )


async def _start(
    argv: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    limits: ProcessLimits,
    given: bytes,
) -> tuple[asyncio.SubprocessTransport, _Watch]:
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            lambda: _Watch(limits),
            *argv,
            cwd=directory,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already, with children that only we know how to end.
        with suppress(OSError, ValueError):
            await _end(*await starting)
        raise
    except (OSError, ValueError) as error:
        raise SandboxFailed(detail=f"{argv[0]!r} could not be started: {error}") from error


class _Watch(asyncio.SubprocessProtocol):
    """Collects the output of a program and notes its end."""

    def __init__(self, limits: ProcessLimits) -> None:
        self._flood = limits.max_output_bytes * limits.flood_factor
        self._pid = 0
        self.out = HeadTail(limits.max_output_bytes)
        self.err = HeadTail(limits.max_output_bytes)
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()
        self.stopped = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._pid = transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.out if fd == 1 else self.err
        kept.add(data)
        if kept.total > self._flood and not self.stopped:
            self.stopped = "output"
            kill_group(self._pid)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The program has ended and both pipes are closed."""
        self.drained.set()


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """Kill what is left of the group, then take what is left in the pipes."""
    kill_group(transport.get_pid())
    await watch.exited.wait()
    with suppress(TimeoutError):
        # A process that left the group can hold a pipe open; do not wait for it.
        async with asyncio.timeout(_DRAIN_S):
            await watch.drained.wait()
    transport.close()


def kill_group(pid: int) -> None:
    """Kill a process group; nothing happens if it has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
