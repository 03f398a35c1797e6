"""Long results: head and tail for the model, the whole in an artifact."""

from __future__ import annotations

import msgspec

from holdfast.tools.context import ToolContext
from holdfast.tools.result import ToolResult


async def shorten(result: ToolResult, limit: int, context: ToolContext) -> ToolResult:
    """Return a result whose output has at most about `limit` characters.

    Nothing is lost: the whole is saved, and its handle stands in the text and the metadata.
    """
    text = result.output
    if len(text) <= limit:
        return result
    handle = await context.artifacts.save(
        f"{context.call_id or 'call'}.txt", text.encode(errors="replace"), media_type="text/plain"
    )
    head, tail = text[: limit * 2 // 3], text[-(limit // 3) :]
    left_out = len(text) - len(head) - len(tail)
    note = f"\n\n[... {left_out} characters left out; the whole is artifact {handle} ...]\n\n"
    return msgspec.structs.replace(
        result,
        output=head + note + tail,
        metadata={**result.metadata, "artifact": handle, "full_length": len(text)},
    )
