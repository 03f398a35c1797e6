"""Audit: read and check the trail, check the hash chains, and keep their ends elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal import SYSTEM_SESSION, Finding, export_heads, parse_heads
from holdfast.journal import verify as verify_chains
from holdfast.observability import AuditEntry
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local
from holdfast.operations.operation import operation
from holdfast.runtime import Runtime, TrailFinding

_MOST = 1000


class AnchorReport(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which store-wide number records are anchored, and of how many sessions just now."""

    seq: int
    sessions: int = 0


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
    """Check chains, file and tables, against exported heads and anchors; [] means all is well.

    Every chain is walked, the file itself is checked, and every row of every table is compared
    with what the log says. A file that is too damaged to be opened is one finding. With the
    setting `audit.anchor`, all anchors are compared too: what was rolled back or rewritten since
    is named, and an anchor that cannot be read is a finding.

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
    outside = await runtime.anchors.read()
    found = await verify_chains(
        chains,
        session_id=session_id,
        heads=known,
        anchors=outside.anchors,
        progress=progress,
    )
    return [*outside.findings, *found]


@operation("audit:read", opens=False)
async def heads(runtime: Runtime, caller: Caller, /) -> bytes:
    """Return the ends of all chains as JSON, to be kept elsewhere for `verify`."""
    return await export_heads(await runtime.chains(), runtime.journal.clock)


@operation("audit:write")
async def anchor(runtime: Runtime, caller: Caller, /) -> AnchorReport:
    """Anchor now, where the setting `audit.anchor` says, what has grown since the last time.

    It happens by itself as runs end; this is for a moment of your choice.

    Raises:
        UsageError: there is no `audit.anchor`.
    """
    made = await runtime.anchors.anchor()
    if made is None:
        return AnchorReport(seq=await runtime.journal.read_last_seq())
    return AnchorReport(seq=made.seq, sessions=len(made.heads))


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
