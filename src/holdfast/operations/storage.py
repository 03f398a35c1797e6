"""The store: clean up, rebuild, count, write out as plain files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.journal import CopyReport, Journal, MendReport, RoleKind, SchemaStatus
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local
from holdfast.operations.operation import local, operation
from holdfast.runtime import BackupReport, Runtime, back_up
from holdfast.sessions import RetentionPolicy, RetentionReport


@operation("storage:admin")
async def clean_up(
    runtime: Runtime, caller: Caller, /, policy: RetentionPolicy | None = None
) -> RetentionReport:
    """Remove what the retention settings, or the given policy, no longer want."""
    await runtime.state.clean_up()
    kept = runtime.settings.storage.retention.model_dump()
    return await runtime.storage.clean_up(policy or RetentionPolicy(**kept))


@operation("storage:admin")
async def rebuild(
    runtime: Runtime,
    caller: Caller,
    /,
    progress: Annotated[
        Callable[[int, int], None], Local("wait for the answer")
    ] = lambda done, total: None,
) -> int:
    """Rebuild all tables from the log; returns the number of events folded."""
    return await runtime.journal.rebuild(progress)


@operation("storage:write", opens=False)
async def mend(runtime: Runtime, caller: Caller, /) -> MendReport:
    """Make a damaged store sound from what can be read of it, and say what was lost.

    Each session is kept up to the first event that is missing or was changed; all tables are made
    anew. The damaged file stays beside the new one. Ask for it before anything else: a store that
    is open cannot be mended.
    """
    if runtime.is_open:
        raise UsageError(detail="The store is open, so it is sound; `storage.rebuild` is enough.")
    return await runtime.journal.store.mend()


@operation("storage:read", opens=False)
async def status(runtime: Runtime, caller: Caller, /) -> SchemaStatus:
    """Say which schema the database of the records has, and what a migration would change."""
    return await runtime.migrate_store(is_dry=True)


@operation("storage:admin", opens=False)
async def migrate(runtime: Runtime, caller: Caller, /) -> SchemaStatus:
    """Bring the schema of the database of the records up to date, all of it or nothing.

    Processes that ask for it at the same time wait for each other.
    """
    return await runtime.migrate_store(is_dry=False)


@local("call `holdfast storage grant` where its owner reaches the database", opens=False)
async def grant(runtime: Runtime, /, role: str, *, kind: RoleKind = "records") -> None:
    """Let a role of the database do what a process needs, and nothing else.

    `records`: append, read, and wake sessions. `wakeups`: only what workers take sessions from,
    and no record. What keeps tenants apart must hold the role.

    Raises:
        NotFound: the database has no such role.
        UsageError: it is a superuser, has BYPASSRLS or owns the tables; or the store has no roles.
        StorageError: the address in `storage.url` is not that of the owner.
    """
    await runtime.grant_role(role, kind)


@local("call `holdfast storage copy` where both stores can be reached", opens=False)
async def copy(
    runtime: Runtime,
    /,
    source: str,
    target: str,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CopyReport:
    """Copy all records from the store at one address to that at another, and compare the chains.

    Numbers and hashes stay, so subscribers, triggers and webhooks go on where they were. What was
    copied before is compared and left out: call it again after an interruption. Nothing may write
    to either meanwhile. Memories, keys and contents of artifacts are files of the state directory,
    or lie where `artifacts.url` says; they are not copied.

    Raises:
        UsageError: the target holds something else, one of them has changed, or both are one.
        StorageDamaged: a chain of the copy does not hold.
    """
    if source == target:
        raise UsageError(detail="The source and the target are the same store.")
    return await runtime.copy_store(source, target, progress)


@local("back up the state directory where it is, or use the tools of the database server")
async def backup(
    runtime: Runtime,
    /,
    target: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BackupReport:
    """Copy the state directory while it is in use, to a new directory that can take its place.

    Every database is copied as it is at one moment, artifacts afterwards, and the chains of the
    copy are checked.

    Raises:
        UsageError: the target is not empty, or the records are not in a file.
    """
    return await back_up(runtime, Path(target), progress)


@operation("storage:read")
async def stats(runtime: Runtime, caller: Caller, /) -> JsonObject:
    """Count sessions, events, blobs and bytes."""
    return await runtime.journal.store.stats()


@local("export sessions one by one with `sessions.lines`")
async def export_layout(runtime: Runtime, /, target: str | os.PathLike[str]) -> int:
    """Write everything as plain JSON files below a directory; returns their number.

    The `run-<id>.jsonl` of a loop holds its agents' sessions too, and can be imported.
    """
    return await runtime.storage.export_layout(Path(target))


@local("use the operations")
async def journal(runtime: Runtime, /) -> Journal:
    """Return the open journal, for what the operations do not cover."""
    return runtime.journal
