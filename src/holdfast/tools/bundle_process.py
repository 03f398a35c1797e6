"""Run a bundle's program: one request on standard input, one answer on standard output.

It is a plain process with a clean environment, in a process group of its own, bounded in time
and output. It is not confined: that is the sandbox's part.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
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
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=directory,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolError(tool=tool, detail=f"{argv[0]!r} could not be started: {error}") from error
    try:
        output, errors = await _talk(process, msgspec.json.encode(request), tool)
    finally:
        # Whatever it has started ends with it, however this ends.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    said = errors.decode(errors="replace").strip()[-_SHOWN_STDERR:]
    if process.returncode:
        detail = f"it ended with exit code {process.returncode}" + (f": {said}" if said else "")
        raise ToolError(tool=tool, detail=detail)
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        detail = f"its answer is no JSON object of the promised form ({error})"
        raise ToolError(tool=tool, detail=detail + (f": {said}" if said else "")) from error
    return ToolResult(
        answer.output, title=answer.title, metadata=answer.metadata, is_error=answer.is_error
    )


async def _talk(
    process: asyncio.subprocess.Process, request: bytes, tool: str
) -> tuple[bytes, bytes]:
    """Write the request and read both pipes until the program has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    reading = (
        asyncio.create_task(_read(process.stdout, MOST_OUTPUT_BYTES)),
        asyncio.create_task(_read(process.stderr, _MOST_STDERR_BYTES)),
    )
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(request)
            await process.stdin.drain()
            process.stdin.close()
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((ended, reading[0]), return_when=asyncio.FIRST_COMPLETED)
        if reading[0].done() and len(reading[0].result()) > MOST_OUTPUT_BYTES:
            ended.cancel()
            detail = f"it wrote more than {MOST_OUTPUT_BYTES >> 20} MB"
            raise ToolError(tool=tool, detail=detail)
        await ended
        # A child that left the group may hold a pipe open; nobody waits for it.
        await asyncio.wait(reading, timeout=_END_S)
        return tuple([task.result() if task.done() else b"" for task in reading])  # type: ignore[return-value]
    finally:
        for task in reading:
            task.cancel()


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    """Read up to a limit and one chunk; a flood is left in the pipe."""
    data = bytearray()
    while len(data) <= limit and (chunk := await stream.read(65_536)):
        data += chunk
    return bytes(data)
