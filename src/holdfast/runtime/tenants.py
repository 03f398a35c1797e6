"""Runtimes of tenants: each on a directory of its own, with the control plane that all share."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.artifacts import ArtifactActor, ArtifactFilter
from holdfast.errors import ConfigError, NotFound
from holdfast.journal import SYSTEM_SESSION, Condition, RowQuery, erase_tenant, find_tenant_url
from holdfast.runtime.identity_events import UserErased
from holdfast.sessions import RUNS, SessionFilter, export_lines
from holdfast.skills import SEPARATE_PROJECTS

if TYPE_CHECKING:
    from holdfast.runtime.runtime import Runtime
    from holdfast.settings import Settings

_PAGE = 200
_SQLITE = "sqlite://"
_GOING_ON = ("queued", "running", "parked")


class ErasedUser(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a user in one tenant."""

    tenant: str
    sessions: int
    memories: int
    artifacts: int
    keys: int


def make_tenant_settings(settings: Settings, directory: Path, workspace: Path) -> Settings:
    """Return the settings of a tenant: those of the operator, with places of its own.

    Raises:
        ConfigError: the store cannot be one per tenant.
    """
    url = settings.storage.url
    if url.startswith(_SQLITE) and url != _SQLITE:
        url = f"{url.rstrip('/')}/tenants/{directory.name}"
    elif url and url not in (_SQLITE, "memory://"):
        apart = find_tenant_url(url, directory.name)
        if apart is None:
            raise ConfigError(detail="storage.url: this kind of store does not keep tenants apart")
        url = apart
    storage = settings.storage.model_copy(update={"state_dir": directory, "url": url})
    return settings.model_copy(update={"storage": storage, "workspace": workspace})


async def make_tenant_runtime(operator: Runtime, name: str) -> Runtime:
    """Return the runtime of a tenant, not open yet, with the agents that the operator serves.

    Raises:
        NotFound: there is no such tenant.
    """
    from holdfast.runtime.runtime import Runtime  # noqa: PLC0415 - it builds on this room

    control = operator.control
    await control.tenants.get(name)
    workspace = control.find_workspace(name)
    await asyncio.to_thread(_make_workspace, workspace)
    directory = control.find_directory(name)
    settings = make_tenant_settings(operator.settings, directory, workspace)
    made = Runtime(settings, redactor=operator.redactor, tenant=name, control=control)
    # The policies are the operator's: a reload is told in the operator's records.
    made.policies.follow_also(operator.journal)
    for entry in await operator.agents.entries():
        # Those that the operator's own people registered are theirs.
        if entry.source not in ("built-in", "registered") and entry.is_trusted:
            made.agents.offer(entry.agent)
    return made


def _make_workspace(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Before the first look: a project of the operator's around it is none of the tenant's.
    (place.parent / SEPARATE_PROJECTS).touch(mode=0o600)
    place.mkdir(exist_ok=True, mode=0o700)


@contextlib.asynccontextmanager
async def open_tenant(runtime: Runtime, name: str) -> AsyncIterator[Runtime]:
    """Work on the records of a tenant for a while; a server may work on them beside.

    Raises:
        NotFound: there is no such tenant.
    """
    if name == runtime.tenant:
        yield runtime
        return
    if runtime.tenant != runtime.control.operator:
        raise NotFound(kind="tenant", value=name)
    other = await make_tenant_runtime(runtime, name)
    try:
        yield await other.opened()
    finally:
        await other.close()


async def erase_user(runtime: Runtime, subject: str, *, by: str) -> ErasedUser:
    """Remove what belongs to a subject from the records of one tenant; safe to repeat.

    Its runs are ended, its sessions removed with their memories, outputs and loop files, its own
    memories and state forgotten, its files deleted, what it was answered and what was told of it
    to webhooks, its keys and logins removed. What remains is that it happened.
    """
    sessions = 0
    mine = SessionFilter(owner=subject)
    while page := (await runtime.sessions.list_sessions(mine, limit=_PAGE)).items:
        for session in page:
            await _end_runs(runtime, session.id)
            await runtime.storage.delete_session(session.id, reason="the user was erased")
            sessions += 1
    memories = await runtime.memory.forget_user(subject)
    artifacts = await _delete_artifacts(runtime, subject)
    await runtime.state.manager().forget(f"user:{subject}", reason="the user was erased")
    await runtime.idempotency.forget_owner(subject)
    await runtime.webhooks.forget_owner(subject)
    keys = await runtime.control.keys.delete_subject(runtime.tenant, subject)
    await runtime.control.logins.delete_subject(runtime.tenant, subject)
    digest = hashlib.sha256(f"{runtime.tenant}\n{subject}".encode()).hexdigest()
    erased = UserErased(
        subject_digest=digest,
        sessions=sessions,
        memories=memories,
        artifacts=artifacts,
        keys=keys,
        by=by,
    )
    await runtime.journal.append(SYSTEM_SESSION, [erased])
    return ErasedUser(
        tenant=runtime.tenant,
        sessions=sessions,
        memories=memories,
        artifacts=artifacts,
        keys=keys,
    )


async def _delete_artifacts(runtime: Runtime, subject: str) -> int:
    """Delete the files that a subject owns, all versions; returns how many there were."""
    actor = ArtifactActor(
        tenant=runtime.tenant,
        subject=subject,
        user=subject,
        session_id="",
        project_id="",
        is_admin=True,
    )
    store = await runtime.artifacts.act_for(actor)
    found: list[str] = []
    cursor, is_more = "", True
    while is_more:
        page = await store.list(ArtifactFilter(has_old_versions=True), limit=_PAGE, cursor=cursor)
        found += [one.id for one in page.items if one.owner == subject]
        cursor = page.next_cursor
        is_more = bool(cursor)
    for artifact_id in found:
        await store.delete(artifact_id, reason="the user was erased")
    return len(found)


async def export_tenant(runtime: Runtime) -> AsyncGenerator[bytes, None]:
    """Yield all sessions and memories of one tenant as JSON lines."""
    cursor, is_more = "", True
    while is_more:
        page = await runtime.sessions.list_sessions(
            sort="time_created", descending=False, limit=_PAGE, cursor=cursor
        )
        for session in page.items:
            yield _mark("session", session.id)
            async for line in export_lines(runtime.journal, session.id):
                yield line
        cursor = page.next_cursor
        is_more = bool(cursor)
    if await runtime.memory.has_any():
        from holdfast.memory import export_memories  # noqa: PLC0415 - a room of its own

        yield _mark("memories", runtime.tenant)
        async for line in export_memories(await runtime.memory.manager(), "", with_vectors=False):
            yield line


def _mark(what: str, name: str) -> bytes:
    return msgspec.json.encode({"holdfast": "tenant-export", what: name}) + b"\n"


async def delete_records(runtime: Runtime, name: str) -> None:
    """Remove the records and the files of a tenant that was deleted."""
    control = runtime.control
    if name != control.operator:
        await _erase_apart(runtime, name)
    workspaces = [place / name for place in control.workspaces]
    for place in (control.find_directory(name), *workspaces):
        # Never the operator's own directory, whatever the name.
        if place.name == name and place != control.directory:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


async def _erase_apart(runtime: Runtime, name: str) -> None:
    """Remove what a tenant has outside of its directory: in a shared database, or a bucket."""
    url = find_tenant_url(runtime.settings.storage.url, name)
    if url is not None:
        from holdfast.memory import erase_memories  # noqa: PLC0415 - seldom used

        await erase_memories(url)
    await runtime.artifacts.erase_tenant(name, runtime.control.find_directory(name))
    if url is not None:
        await erase_tenant(runtime.settings.storage.url, name)


async def _end_runs(runtime: Runtime, session_id: str) -> None:
    query = RowQuery(
        projection=RUNS, session_id=session_id, where=(Condition("status", "in", _GOING_ON),)
    )
    for keyed in await runtime.journal.rows(query):
        await runtime.runs.cancel(keyed.row.id, reason="the user was erased")


__all__ = [
    "ErasedUser",
    "delete_records",
    "erase_user",
    "export_tenant",
    "make_tenant_runtime",
    "make_tenant_settings",
    "open_tenant",
]
