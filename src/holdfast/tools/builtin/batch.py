"""The `batch` tool: several calls at once, each through the gate, one result per call."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.canonical import JsonObject
from holdfast.messages import ToolPart
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.result import ToolResult

_MOST_CALLS = 25


class BatchCall(BaseModel):
    """One call of a batch."""

    model_config = ConfigDict(extra="forbid")

    tool: str = Field(min_length=1, description="Name of the tool")
    parameters: JsonObject = Field(default_factory=dict, description="Its arguments")


@tool(effect="read", tags=("calls",), timeout_s=3600)
async def batch(
    tool_calls: Annotated[list[BatchCall], Field(min_length=1, max_length=_MOST_CALLS)],
    context: ToolContext,
) -> ToolResult:
    """Make several independent tool calls at once and return all their results.

    Each call is checked, permitted and recorded like any other, and its result stands in the
    order of the calls. A call that fails does not stop the others. A batch inside a batch is
    refused.

    Args:
        tool_calls: The calls, at most 25.
    """
    allowed = [call for call in tool_calls if not _is_batch(call.tool)]
    made = iter(await context.nested.run([(call.tool, call.parameters) for call in allowed]))
    results = [_make_refused(call) if _is_batch(call.tool) else next(made) for call in tool_calls]
    done = sum(part.state == "completed" for part in results)
    total = len(results)
    return ToolResult(
        "\n\n".join(_render(number, total, part) for number, part in enumerate(results, 1)),
        title=f"{done} of {total} calls succeeded",
        metadata={
            "succeeded": done,
            "failed": total - done,
            "calls": [{"tool": part.tool, "state": part.state} for part in results],
        },
        attachments=tuple(file for part in results for file in part.attachments),
        is_error=done == 0,
    )


def _is_batch(name: str) -> bool:
    return name.partition("@")[0].replace("_", "").replace("-", "").lower() == "batch"


def _make_refused(call: BatchCall) -> ToolPart:
    return ToolPart(
        call_id="", tool=call.tool, state="error", error="A batch cannot contain a batch."
    )


def _render(number: int, total: int, part: ToolPart) -> str:
    is_done = part.state == "completed"
    text = part.output if is_done else part.error
    return f"[{number}/{total}] {part.tool}: {'done' if is_done else 'failed'}\n{text}"
