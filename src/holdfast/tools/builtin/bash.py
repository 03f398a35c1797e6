"""The `bash` tool: a command, through whatever runner this run was given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.result import ToolResult
from holdfast.tools.services import Command, CommandResult
from holdfast.tools.target import make_command_target

_STOPPED = {
    "timeout": "stopped: it did not end within {limit} s",
    "output": "stopped: it wrote far too much output",
    "memory": "stopped: its processes together held too much memory",
    "disk": "stopped: the commands of this run together wrote too much to the disk",
}


@tool(
    effect="unsafe",
    tags=("commands",),
    labels=("private",),
    target=make_command_target("command"),
    timeout_s=660,
)
async def bash(
    command: Annotated[str, Field(min_length=1, max_length=100_000, description="Command to run")],
    context: ToolContext,
    description: Annotated[str, Field(description="What it does, in a few words")] = "",
    workdir: Annotated[str, Field(description="Directory to run it in")] = ".",
    timeout: Annotated[float, Field(gt=0, le=600, description="Seconds")] = 120.0,  # noqa: ASYNC109 - the runner's
) -> ToolResult:
    """Run a shell command in the workspace and return its output and exit code.

    Processes that it leaves running are ended with it. Of long output, the beginning
    and the end are kept. There is no terminal and no input.
    """
    context.check_still_mine()
    result = await context.commands.run(
        Command(text=command, directory=workdir, timeout_s=timeout, passed_by=context.passed_by)
    )
    return ToolResult(
        _render(result, timeout),
        title=description or command.partition("\n")[0][:80],
        metadata={
            "exit_code": result.exit_code,
            "stopped": result.stopped,
            "is_truncated": result.is_truncated,
            "sandbox": result.sandbox,
        },
        is_error=result.exit_code != 0 or bool(result.stopped),
    )


def _render(result: CommandResult, limit: float) -> str:
    parts = [result.stdout.rstrip("\n")] if result.stdout else []
    if result.stderr:
        parts.append(f"[stderr]\n{result.stderr.rstrip()}")
    if result.stopped:
        parts.append(f"[{_STOPPED[result.stopped].format(limit=f'{limit:g}')}]")
    elif result.exit_code or not parts:
        parts.append(f"[exit code {result.exit_code}]")
    return "\n".join(parts)
