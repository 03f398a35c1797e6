"""Run a bundle's program: one request on standard input, one answer on standard output.

It is a plain process with a clean environment, in a process group of its own, bounded in time
and output. It is not confined: that is the sandbox's part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.sandbox.process import kill_group
from holdfast.tools.result import ToolResult

MOST_OUTPUT_BYTES = 8 * 1024 * 1024
_MOST_STDERR_BYTES = 64 * 1024
_SHOWN_STDERR = 2_000
_END_S = 2.0


class _Answer(msgspec.Struct, frozen=True):
    """What a program writes: one JSON object, and nothing else."""

    output: str = ""
    title: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    is_error: bool = False


async def run_bundle(
    argv: Sequence[str],
    request: JsonObject,
    *,
    tool: str,
    directory: str,
    environment: Mapping[str, str],
) -> ToolResult:
    """Run the program and return its answer; cancelling ends its whole process group.

    Raises:
        ToolError: it could not be started, failed, wrote too much, or gave no answer.
    """
    talk = await _converse(argv, msgspec.json.encode(request), tool, directory, environment)
    said = bytes(talk.errors).decode(errors="replace").strip()[-_SHOWN_STDERR:]
    if talk.is_flooded:
        raise ToolError(tool=tool, detail=f"it wrote more than {MOST_OUTPUT_BYTES >> 20} MB")
    if talk.exit_code:
        detail = f"it ended with exit code {talk.exit_code}" + (f": {said}" if said else "")
        raise ToolError(tool=tool, detail=detail)
    try:
        answer = msgspec.json.decode(talk.output, type=_Answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        detail = f"its answer is no JSON object of the promised form ({error})"
        raise ToolError(tool=tool, detail=detail + (f": {said}" if said else "")) from error
    return ToolResult(
        answer.output, title=answer.title, metadata=answer.metadata, is_error=answer.is_error
    )


async def _converse(
    argv: Sequence[str], request: bytes, tool: str, directory: str, environment: Mapping[str, str]
) -> _Talk:
    """Start the program, hand it the request, and wait until it has ended."""
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            _Talk, *argv, cwd=directory, env=dict(environment), start_new_session=True
        )
    )
    try:
        transport, talk = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already, with children that only we know how to end.
        with suppress(OSError, ValueError):
            await _end(*await starting)
        raise
    except (OSError, ValueError) as error:
        raise ToolError(tool=tool, detail=f"{argv[0]!r} could not be started: {error}") from error
    try:
        pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        pipe.write(request)
        pipe.close()
        await talk.exited.wait()
    finally:
        await _end(transport, talk)
    return talk


async def _end(transport: asyncio.SubprocessTransport, talk: _Talk) -> None:
    """End what is left of the group, then take what is left in the pipes."""
    kill_group(transport.get_pid())
    await talk.exited.wait()
    with suppress(TimeoutError):
        # A process that left the group can hold a pipe open; do not wait for it.
        async with asyncio.timeout(_END_S):
            await talk.drained.wait()
    talk.exit_code = transport.get_returncode() or 0
    transport.close()


class _Talk(asyncio.SubprocessProtocol):
    """What a program says, up to a limit, and its end."""

    def __init__(self) -> None:
        self._pid = 0
        self.output = bytearray()
        self.errors = bytearray()
        self.is_flooded = False
        self.exit_code = 0
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pid = cast("asyncio.SubprocessTransport", transport).get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.errors += data
            del self.errors[:-_MOST_STDERR_BYTES]
            return
        self.output += data
        if len(self.output) > MOST_OUTPUT_BYTES:
            self.output.clear()
            self.is_flooded = True
            kill_group(self._pid)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.drained.set()
