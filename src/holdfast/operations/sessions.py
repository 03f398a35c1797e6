"""Sessions: create, find, change, archive, fork, revert, export, import."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

from holdfast.canonical import JsonObject
from holdfast.context import ContextView
from holdfast.errors import UsageError
from holdfast.messages import Message
from holdfast.operations.caller import OWNER, Caller
from holdfast.operations.local_values import LocalAgent, LocalFile, LocalModel, LocalPath
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.runtime import Runtime, UndoReport, export_session, import_session, open_whole_file
from holdfast.sessions import (
    Page,
    PermissionRule,
    Session,
    SessionFilter,
    SessionManager,
    SessionState,
    SortField,
)

RUNTIME_KEYS: Final = frozenset({"lineage", "trigger", "held_runs"})
"""Keys of a session's metadata by which the runtime itself says what a session came from."""
BUDGET_KEY: Final = "budget"


def _check_metadata(caller: Caller, metadata: JsonObject | None) -> None:
    """Return if a caller may write these keys; those that limit or vouch for runs are not for all.

    Raises:
        UsageError: one says where the session comes from, which only the runtime knows.
        NotPermitted: it says what the session may spend, which needs the right to write rules.
    """
    if caller is OWNER or not metadata:
        return
    for key in sorted(RUNTIME_KEYS & metadata.keys()):
        raise UsageError(detail=f"The metadata key {key!r} is the runtime's own; take another.")
    if BUDGET_KEY in metadata:
        caller.check("policies:admin")


@operation("sessions:write", also={"permission": "policies:admin", "directory": "storage:admin"})
async def create(
    runtime: Runtime,
    caller: Caller,
    /,
    title: str,
    *,
    project_id: str = "",
    directory: str | LocalPath | None = None,
    parent_id: str = "",
    permission: Sequence[PermissionRule] = (),
    metadata: JsonObject | None = None,
    ttl_s: float | None = None,
) -> Session:
    """Begin a session and return it; without a directory it belongs to the workspace.

    Rules (`permission`) and a directory of one's own choice need further scopes: they decide
    what agents may do there. Sessions of a tenant work in its workspace.
    """
    place = runtime.settings.workspace if directory is None else directory
    runtime.confinement.check_home(place)
    _check_metadata(caller, metadata)
    return await runtime.sessions.create_session(
        title,
        project_id=project_id,
        directory=place,
        parent_id=parent_id,
        permission=permission,
        metadata=metadata,
        ttl_s=ttl_s,
    )


@operation("sessions:read")
async def get(runtime: Runtime, caller: Caller, /, session_id: str) -> Session:
    """Return a session by id or slug; raises NotFound."""
    return await runtime.sessions.get_session(session_id)


@operation("sessions:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    where: SessionFilter | None = None,
    *,
    sort: SortField = "time_updated",
    descending: bool = True,
    limit: int = 50,
    cursor: str = "",
) -> Page[Session]:
    """Return a page of sessions, most recently used first unless asked otherwise."""
    return await runtime.sessions.list_sessions(
        where, sort=sort, descending=descending, limit=limit, cursor=cursor
    )


@operation("sessions:read")
async def most_recent(
    runtime: Runtime, caller: Caller, /, where: SessionFilter | None = None
) -> Session | None:
    """Return the session that was used last, to go on with it."""
    return await runtime.sessions.most_recent(where)


@operation("sessions:write", also={"permission": "policies:admin"})
async def update(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    *,
    title: str | None = None,
    summary: str | None = None,
    permission: Sequence[PermissionRule] | None = None,
    metadata: JsonObject | None = None,
    ttl_s: float | None = None,
) -> Session:
    """Change what is given; metadata is merged key by key."""
    _check_metadata(caller, metadata)
    return await runtime.sessions.update_session(
        session_id,
        title=title,
        summary=summary,
        permission=permission,
        metadata=metadata,
        ttl_s=ttl_s,
    )


@operation("sessions:write")
async def change_state(
    runtime: Runtime, caller: Caller, /, session_id: str, state: SessionState, *, reason: str = ""
) -> Session:
    """Bring a session to another state; raises InvalidTransition if that is not legal."""
    return await runtime.sessions.change_state(session_id, state, reason=reason)


@operation("sessions:write")
async def archive(
    runtime: Runtime, caller: Caller, /, session_id: str, *, reason: str = ""
) -> Session:
    """Put a session away; `restore` brings it back."""
    return await runtime.sessions.archive_session(session_id, reason=reason)


@operation("sessions:write")
async def restore(
    runtime: Runtime, caller: Caller, /, session_id: str, *, reason: str = ""
) -> Session:
    """Make a session active again."""
    return await runtime.sessions.restore_session(session_id, reason=reason)


@operation("sessions:write")
async def delete(runtime: Runtime, caller: Caller, /, session_id: str, *, reason: str = "") -> None:
    """Remove a session for good; only the fact that it existed remains.

    Memories that only it could find, and the files of loops that ran in it, go with it.
    """
    await runtime.storage.delete_session(session_id, reason=reason)


@operation("sessions:write")
async def fork(
    runtime: Runtime, caller: Caller, /, session_id: str, *, at: int | None = None, title: str = ""
) -> Session:
    """Begin a new session with everything up to event `at` taken over."""
    return await runtime.sessions.fork_session(session_id, at=at, title=title)


@operation("sessions:write")
async def revert(runtime: Runtime, caller: Caller, /, session_id: str, *, to: int) -> Session:
    """Make the conversation what it was at event `to`; the log keeps what came after."""
    return await runtime.sessions.revert_session(session_id, to=to)


@operation("sessions:write")
async def undo(
    runtime: Runtime, caller: Caller, /, session_id: str, *, to: int | None = None
) -> UndoReport:
    """Take back everything after event `to`, by default the last message: files included.

    A file that `write`, `edit` or `multiedit` changed since has again what it had then, also where
    a child changed it. It stays as it is, and the report says why, where something else changed it
    too, or where what it had was not kept (long or no text, or with a secret in it). Commands and
    other effects are not taken back. The log keeps all of it.

    Raises:
        UsageError: there is nothing to take back, or no event with this number.
        SessionBusy: a turn holds the session, or has begun and not ended.
    """
    return await runtime.undo.undo(session_id, to)


@stream_operation("sessions:read")
async def lines(
    runtime: Runtime, caller: Caller, /, session_id: str
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of an export, artifacts of the session included, in bounded memory."""
    session = await runtime.sessions.get_session(session_id)
    artifacts = await runtime.artifacts.opened()
    async for line in export_session(runtime.journal, artifacts, session.id):
        yield line


@local("take the bytes of `sessions.lines` and write them where you are")
async def export(runtime: Runtime, /, session_id: str, target: str | os.PathLike[str]) -> int:
    """Write a whole session, artifacts included, to one file; returns the number of events.

    The file appears complete or not at all, readable by its owner only.
    """
    session = await runtime.sessions.get_session(session_id)
    artifacts = await runtime.artifacts.opened()
    count = -1
    with open_whole_file(Path(target)) as file:
        async for line in export_session(runtime.journal, artifacts, session.id):
            file.write(line)
            # Contents of artifacts stand behind the events.
            count += not line.startswith(b'{"content":')
    return count


@operation("storage:admin")
async def load(
    runtime: Runtime,
    caller: Caller,
    /,
    source: bytes | LocalFile,
    *,
    as_new: bool = False,
    trusts_rules: bool = False,
) -> Session:
    """Bring in an exported session with its artifacts; `as_new` makes a copy without runs.

    The whole file is checked before anything is changed. Rules of the session that allow
    something, and directories that it was granted, are inert unless `trusts_rules` says that you
    trust them; the rules stand in its metadata as `imported_rules`. It then works in the workspace
    or below it, calls that it left open are given up, and its runs go on when they are asked to
    (`held_runs`), not by themselves.

    Raises:
        InvalidImport: the file is no export, is damaged, cut short or was changed.
        AlreadyExists: the session is already here; import it `as_new`.
    """
    artifacts = await runtime.artifacts.opened()
    given = BytesIO(source) if isinstance(source, bytes) else source
    return await import_session(
        runtime.sessions,
        artifacts,
        given,
        workspace=runtime.settings.workspace,
        as_new=as_new,
        trusts_rules=trusts_rules,
    )


@operation("sessions:read")
async def context(
    runtime: Runtime, caller: Caller, /, session_id: str, agent_name: str | LocalAgent = ""
) -> ContextView:
    """Return what a model would see if a turn began now; `account` says what takes how much.

    Raises:
        NotFound: there is no such agent or session.
    """
    return (await runtime.contexts.read_of_session(session_id, agent_name)).view()


@operation("sessions:write")
async def compact(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    *,
    focus: str = "",
    model: str | LocalModel = "",
) -> Message | None:
    """Summarise a session's older part for the model's view and return the summary.

    The conversation itself stays whole. `focus` says what matters most. Returns `None`
    when there is nothing worth summarising.

    Raises:
        SessionBusy: a turn holds the session.
        InvalidTransition: the session is not active.
        LLMError: the summary could not be made; nothing has changed.
        HookRefused: a hook said no; nothing has changed.
    """
    return await runtime.contexts.compact(session_id, focus=focus, model=model)


@local("use the operations of `sessions`")
async def manager(runtime: Runtime, /) -> SessionManager:
    """Return the sessions of the open journal, for what the operations do not cover."""
    return runtime.sessions
