"""Run a bundle's program: one request on standard input, one answer on standard output.

The program runs in the sandbox of the run that calls it, with no more rights than its manifest
names; where no sandbox works it does not run.
"""

from __future__ import annotations

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.tools.result import ToolResult
from holdfast.tools.services import CommandResult, CommandRunner, Program

MOST_OUTPUT_BYTES = 8 * 1024 * 1024
_SHOWN_STDERR = 2_000


class _Answer(msgspec.Struct, frozen=True):
    """What a program writes: one JSON object, and nothing else."""

    output: str = ""
    title: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    is_error: bool = False


async def run_bundle(
    commands: CommandRunner, program: Program, request: JsonObject, *, tool: str
) -> ToolResult:
    """Run the program on a request and return its answer; cancelling ends all its processes.

    Raises:
        ToolError: it failed, wrote too much, took too long, or gave no answer.
        SandboxFailed: it cannot be confined here, so it was not started.
        PermissionDenied: it needs what this run may not do.
    """
    given = msgspec.json.encode(request)
    limited = msgspec.structs.replace(program, given=given, max_output_bytes=MOST_OUTPUT_BYTES)
    ended = await commands.run_program(limited)
    answer = _answer(ended, tool, program.timeout_s)
    return ToolResult(
        answer.output,
        title=answer.title,
        metadata={**answer.metadata, "sandbox": ended.sandbox},
        is_error=answer.is_error,
    )


def _answer(ended: CommandResult, tool: str, limit_s: float) -> _Answer:
    said = ended.stderr.strip()[-_SHOWN_STDERR:]
    shown = f": {said}" if said else ""
    if ended.stopped == "output":
        raise ToolError(tool=tool, detail=f"it wrote more than {MOST_OUTPUT_BYTES >> 20} MB")
    if ended.stopped:
        raise ToolError(tool=tool, detail=f"it did not end within {limit_s:g} s{shown}")
    if ended.exit_code:
        raise ToolError(tool=tool, detail=f"it ended with exit code {ended.exit_code}{shown}")
    try:
        return msgspec.json.decode(ended.stdout, type=_Answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        detail = f"its answer is no JSON object of the promised form ({error}){shown}"
        raise ToolError(tool=tool, detail=detail) from error
