"""Whether an MCP server was out while an agent worked: a fact of the machine, not of the work."""

from __future__ import annotations

from holdfast.errors import McpFailed
from holdfast.journal import SYSTEM_SESSION, Journal

_PAGE = 1_000


async def find_lost_server(journal: Journal, run_id: str) -> str:
    """Return what the last call of a run to an MCP server says that was not there; empty if none.

    A server that was lost and answered a later call of the run was not what failed it.
    """
    from holdfast.mcp import McpInvoked  # noqa: PLC0415 - a room of its own, often unused

    lost: dict[str, str] = {}
    after, kinds = 0, frozenset({McpInvoked.kind})
    while page := await journal.read(SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds):
        after = page[-1].session_seq
        for event in page:
            if event.run_id != run_id or event.is_redacted:
                continue
            told = event.expect(McpInvoked)
            missing = str(McpFailed(endpoint=told.endpoint, detail=""))[:-1]
            if told.outcome == "unknown" or told.error.startswith(missing.rstrip()):
                lost[told.endpoint] = told.error
            else:
                lost.pop(told.endpoint, None)
    for endpoint, error in lost.items():
        return f"the MCP server {endpoint}: {error}"
    return ""


__all__ = ["find_lost_server"]
