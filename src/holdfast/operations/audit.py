"""Audit: read and check the trail, check the hash chains, and keep their ends elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal import SYSTEM_SESSION, Finding, export_heads, parse_heads
from holdfast.journal import verify as verify_chains
from holdfast.observability import AuditEntry
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local
from holdfast.operations.operation import operation
from holdfast.runtime import Runtime, TrailFinding

_MOST = 1000


@operation("audit:read", opens=False)
async def verify(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    session_id: str | None = None,
    heads: bytes | None = None,
    progress: Annotated[
        Callable[[str, int], None], Local("wait for the answer")
    ] = lambda session_id, events: None,
) -> list[Finding]:
    """Check chains, file and tables, against exported heads if given; [] means all is well.

    Every chain is walked, the file itself is checked, and every row of every table is compared
    with what the log says. A file that is too damaged to be opened is one finding.

    Also works where nothing can be written, such as on a mounted backup; there a session
    is named by its whole id.
    """
    known = parse_heads(heads) if heads is not None else None
    try:
        chains = await runtime.chains()
    except StorageDamaged as error:
        return [Finding(session_id=SYSTEM_SESSION, session_seq=0, problem=str(error))]
    if session_id is not None and runtime.is_open:
        session_id = (await runtime.sessions.get_session(session_id)).id
    return await verify_chains(chains, session_id=session_id, heads=known, progress=progress)


@operation("audit:read", opens=False)
async def heads(runtime: Runtime, caller: Caller, /) -> bytes:
    """Return the ends of all chains as JSON, to be kept elsewhere for `verify`."""
    return await export_heads(await runtime.chains(), runtime.journal.clock)


@operation("audit:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    after: int = 0,
    limit: int = 100,
    action: str = "",
    actor: str = "",
    run_id: str = "",
    session_id: str = "",
    tool: str = "",
) -> list[AuditEntry]:
    """Return lines of the audit trail behind the event `after`, oldest first.

    What is given must be equal: `action` such as `tool.call`, `mcp_invoke` or `approval.answered`.
    """
    if not 1 <= limit <= _MOST:
        raise UsageError(detail=f"limit is 1 to {_MOST}.")
    await runtime.audit.write_quietly()
    wanted = {
        "action": action,
        "actor": actor,
        "run_id": run_id,
        "session_id": session_id,
        "tool": tool,
    }
    match = {name: value for name, value in wanted.items() if value}
    return await asyncio.to_thread(
        runtime.audit.list_entries, after=after, limit=limit, match=match
    )


@operation("audit:read")
async def verify_trail(runtime: Runtime, caller: Caller, /) -> list[TrailFinding]:
    """Compare the audit trail with the journal, line by line; [] means all is well.

    Finds lines that were changed, added, repeated, moved or removed.

    Raises:
        StorageDamaged: a line is none of ours.
    """
    await runtime.audit.write_quietly()
    return await runtime.audit.verify()
