"""Artifacts: save, load, stream, find, version, share and delete files; look after them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from pathlib import Path
from typing import IO, Annotated, TypeAlias

from holdfast import artifacts as room
from holdfast.artifacts import (
    Access,
    Artifact,
    ArtifactActor,
    ArtifactFilter,
    ArtifactFinding,
    ArtifactOptions,
    ArtifactPage,
    ArtifactSharing,
    ArtifactStore,
    ArtifactUsage,
    CollectReport,
    GrantRow,
    RekeyReport,
    SharedLink,
)
from holdfast.errors import FileError
from holdfast.operations.caller import OWNER, Caller
from holdfast.operations.local_values import Local, LocalFile
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.runtime import LOCAL_USER, Runtime, open_whole_file

_PIECE = 1024 * 1024
LocalProgress: TypeAlias = Annotated[Callable[[int, int], None], Local("wait for the answer")]


async def _store(runtime: Runtime, caller: Caller, session_id: str = "") -> ArtifactStore:
    """Return the store in the caller's name; who names a session must be let into sessions."""
    project_id = ""
    if session_id:
        caller.check("sessions:write")
        session = await runtime.sessions.get_session(session_id)
        session_id, project_id = session.id, session.project_id
    actor = ArtifactActor(
        tenant=runtime.tenant,
        subject=_find_subject(caller),
        user=LOCAL_USER if caller is OWNER else _find_subject(caller),
        session_id=session_id,
        project_id=project_id,
        is_admin=caller.may("artifacts:admin"),
    )
    return await runtime.artifacts.act_for(actor)


def _find_subject(caller: Caller) -> str:
    """Return a caller's name; one from elsewhere never passes for the owner or a session."""
    name = caller.subject
    is_taken = name in (OWNER.subject, LOCAL_USER) or name.startswith(("session:", "user:"))
    return f"user:{name}" if is_taken and caller is not OWNER else name


@operation("artifacts:write")
async def save(
    runtime: Runtime,
    caller: Caller,
    /,
    name: str,
    data: bytes,
    *,
    session_id: str = "",
    options: ArtifactOptions | None = None,
) -> Artifact:
    """Keep a file and return what is known of it.

    It belongs to the session if one is named, or else to the user, unless the options say more.
    A name that is there already gets a new version; the same content again is the same version.
    The content is kept to the byte: secrets in it are yours to keep out.

    Raises:
        UsageError: the name or the options cannot be kept, or the digest is another one.
        ArtifactQuotaExceeded: it does not fit; nothing was saved.
        StorageError: there is no space, or the place cannot be written or reached.
    """
    store = await _store(runtime, caller, session_id)
    return await store.save(name, data, options=options or ArtifactOptions())


@operation("artifacts:write")
async def write(
    runtime: Runtime,
    caller: Caller,
    /,
    source: bytes | LocalFile,
    name: str,
    *,
    session_id: str = "",
    options: ArtifactOptions | None = None,
) -> Artifact:
    """Keep a file that is read piece by piece, in bounded memory; otherwise as `save`.

    Over HTTP its bytes are the body of the request, and everything else is in the query.
    """
    store = await _store(runtime, caller, session_id)
    given = options or ArtifactOptions()
    if isinstance(source, bytes):
        return await store.save(name, source, options=given)
    if isinstance(source, str | os.PathLike):
        with await asyncio.to_thread(_open, Path(source)) as file:
            return await store.save(name, _read(file), options=given)
    return await store.save(name, _read(source), options=given)


@operation("artifacts:read")
async def load(
    runtime: Runtime, caller: Caller, /, artifact_id: str, *, session_id: str = ""
) -> bytes:
    """Return the content of an artifact, checked against its SHA-256.

    Raises:
        NotFound: there is none, or not for this caller.
        ArtifactDamaged: the content is missing, or is not what was saved.
    """
    return await (await _store(runtime, caller, session_id)).load(artifact_id)


@stream_operation("artifacts:read")
async def stream(
    runtime: Runtime, caller: Caller, /, artifact_id: str, *, session_id: str = ""
) -> AsyncGenerator[bytes, None]:
    """Yield the content of an artifact in pieces of up to a megabyte, in bounded memory.

    The last piece comes only after everything was checked; raises as `load` does.
    """
    async for piece in (await _store(runtime, caller, session_id)).stream(artifact_id):
        yield piece


@operation("artifacts:read")
async def get(
    runtime: Runtime, caller: Caller, /, artifact_id: str, *, session_id: str = ""
) -> Artifact:
    """Return what is known of an artifact; raises NotFound."""
    return await (await _store(runtime, caller, session_id)).get(artifact_id)


@operation("artifacts:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    wanted: ArtifactFilter | None = None,
    *,
    session_id: str = "",
    limit: int = 50,
    cursor: str = "",
) -> ArtifactPage:
    """Return artifacts that the caller may read, newest first.

    Searched by name, tag, kind, scope, media type, time and size. With `session_id` the caller
    acts in that session, and sees what belongs to it; `wanted.session_id` shows nothing else.
    """
    store = await _store(runtime, caller, session_id)
    return await store.list(wanted or ArtifactFilter(), limit=limit, cursor=cursor)


@operation("artifacts:read")
async def versions(
    runtime: Runtime, caller: Caller, /, artifact_id: str, *, session_id: str = ""
) -> list[Artifact]:
    """Return all versions of a file, newest first; raises NotFound."""
    return await (await _store(runtime, caller, session_id)).versions(artifact_id)


@operation("artifacts:read")
async def usage(runtime: Runtime, caller: Caller, /) -> ArtifactUsage:
    """Return how much the artifacts of the tenant take."""
    return await (await _store(runtime, caller)).usage()


@operation("artifacts:write")
async def delete(
    runtime: Runtime,
    caller: Caller,
    /,
    artifact_id: str,
    *,
    session_id: str = "",
    reason: str = "",
) -> None:
    """Delete one version for good; its content goes unless another artifact has the same.

    Raises:
        NotFound: there is none, or not for this caller.
        ArtifactDenied: the caller may only read it.
    """
    store = await _store(runtime, caller, session_id)
    await store.delete(artifact_id, reason=reason)


@operation("artifacts:write")
async def grant(
    runtime: Runtime,
    caller: Caller,
    /,
    artifact_id: str,
    subject: str,
    *,
    access: Access = "read",
    expires_in_s: float = 604_800.0,
) -> GrantRow:
    """Give a subject read, write or admin access to an artifact, for a week unless said.

    Raises:
        NotFound: there is no such artifact, or not for this caller.
        ArtifactDenied: only its owner and admins share it.
    """
    sharing = ArtifactSharing(await _store(runtime, caller))
    return await sharing.grant(artifact_id, subject, access, expires_in_s=expires_in_s)


@operation("artifacts:write")
async def revoke(
    runtime: Runtime,
    caller: Caller,
    /,
    artifact_id: str,
    *,
    subject: str = "",
    link_id: str = "",
) -> None:
    """Take access back from a subject, or withdraw a link; raises as `grant` does."""
    sharing = ArtifactSharing(await _store(runtime, caller))
    await sharing.revoke(artifact_id, subject=subject, link_id=link_id)


@operation("artifacts:read")
async def grants(runtime: Runtime, caller: Caller, /, artifact_id: str) -> list[GrantRow]:
    """Return who was given access, and which links hold; raises as `grant` does."""
    return await ArtifactSharing(await _store(runtime, caller)).grants(artifact_id)


@operation("artifacts:write")
async def share(
    runtime: Runtime, caller: Caller, /, artifact_id: str, *, expires_in_s: float = 86_400.0
) -> SharedLink:
    """Make a signed link by which anyone may read this version, for a day unless said.

    Raises:
        ConfigError: there is no key to sign with (`HOLDFAST_LINK_KEY`).
        NotFound: there is no such artifact, or not for this caller.
        ArtifactDenied: only its owner and admins share it.
    """
    sharing = ArtifactSharing(await _store(runtime, caller))
    return await sharing.share(artifact_id, expires_in_s=expires_in_s)


@operation("artifacts:read")
async def shared(runtime: Runtime, caller: Caller, /, token: str) -> Artifact:
    """Return what a link leads to; raises LinkRefused."""
    return await ArtifactSharing(await _store(runtime, caller)).find_shared(token)


@stream_operation("artifacts:read")
async def stream_shared(
    runtime: Runtime, caller: Caller, /, token: str
) -> AsyncGenerator[bytes, None]:
    """Yield the content that a link leads to, checked; raises LinkRefused."""
    sharing = ArtifactSharing(await _store(runtime, caller))
    async for piece in sharing.stream_shared(token):
        yield piece


@operation("artifacts:admin")
async def collect(
    runtime: Runtime,
    caller: Caller,
    /,
    progress: LocalProgress = lambda done, total: None,
) -> CollectReport:
    """Remove what nothing refers to, and what retention no longer wants.

    What a journal refers to is never removed. Safe to repeat, to interrupt, and beside saves.
    """
    return await room.collect(await _store(runtime, caller), progress=progress)


@operation("artifacts:admin")
async def verify(
    runtime: Runtime,
    caller: Caller,
    /,
    progress: LocalProgress = lambda done, total: None,
) -> list[ArtifactFinding]:
    """Read every content and return the artifacts whose content is missing or damaged."""
    return await room.verify(await _store(runtime, caller), progress=progress)


@operation("artifacts:admin")
async def rekey(
    runtime: Runtime,
    caller: Caller,
    /,
    progress: LocalProgress = lambda done, total: None,
) -> RekeyReport:
    """Encrypt every content with the key of the settings; without one, decrypt it.

    Can be interrupted and repeated: each content is whole under the old or the new key.
    """
    return await room.rekey(await _store(runtime, caller), progress=progress)


@local("send the file with `artifacts.write`")
async def upload(
    runtime: Runtime,
    /,
    source: str | os.PathLike[str] | IO[bytes] | AsyncIterable[bytes],
    *,
    name: str = "",
    session_id: str = "",
    options: ArtifactOptions | None = None,
) -> Artifact:
    """Keep a file of this machine, an open one or a stream, in bounded memory; see `save`.

    Without a name it is that of the file.

    Raises:
        FileError: there is no such file, or it cannot be read.
    """
    store = await _store(runtime, OWNER, session_id)
    given = options or ArtifactOptions()
    if isinstance(source, AsyncIterable):
        return await store.save(name, source, options=given)
    if not isinstance(source, str | os.PathLike):
        chosen = name or Path(str(getattr(source, "name", ""))).name
        return await store.save(chosen, _read(source), options=given)
    path = Path(source)
    with await asyncio.to_thread(_open, path) as file:
        return await store.save(name or path.name, _read(file), options=given)


@local("take the bytes of `artifacts.stream` and write them where you are")
async def download(
    runtime: Runtime,
    /,
    artifact_id: str,
    target: str | os.PathLike[str],
    *,
    session_id: str = "",
) -> Artifact:
    """Write the content of an artifact to a file, whole or not at all; raises as `load` does."""
    store = await _store(runtime, OWNER, session_id)
    artifact = await store.get(artifact_id)
    with open_whole_file(Path(target)) as file:
        async for piece in store.stream(artifact_id):
            await asyncio.to_thread(file.write, piece)
    return artifact


@local("use the operations of `artifacts`")
async def store(runtime: Runtime, /, *, session_id: str = "") -> ArtifactStore:
    """Return the store itself, in the name of the owner of the state directory."""
    return await _store(runtime, OWNER, session_id)


async def _read(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise FileError(path=str(path), detail=error.strerror or "it cannot be read") from error
