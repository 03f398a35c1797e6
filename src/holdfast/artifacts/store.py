"""ArtifactStore: save, load, stream, list, delete and share files, with everything kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from holdfast.artifacts.access import ArtifactActor, allows, find_access
from holdfast.artifacts.artifact import (
    Access,
    Artifact,
    ArtifactFilter,
    ArtifactOptions,
    ArtifactPage,
    ArtifactScope,
    check_name,
    check_options,
    guess_media_type,
)
from holdfast.artifacts.blobs import BlobStore, BlobUpload, make_blob_key
from holdfast.artifacts.catalogue import (
    ARTIFACTS,
    PLACES,
    USAGE,
    ArtifactRow,
    ArtifactUsage,
    make_lineage,
)
from holdfast.artifacts.events import (
    ArtifactAccessed,
    ArtifactDeleted,
    ArtifactPlaceClaimed,
    ArtifactSaved,
)
from holdfast.artifacts.keys import KeyRing, no_keys
from holdfast.artifacts.locks import ArtifactLocks
from holdfast.artifacts.queries import CatalogueReader, filter_query, read_cursor, write_cursor
from holdfast.artifacts.sealing import BLOCK_BYTES, Sealer, Unsealer, can_compress
from holdfast.errors import (
    ArtifactDenied,
    ArtifactPlaceTaken,
    ArtifactQuotaExceeded,
    NotFound,
    UsageError,
)
from holdfast.ids import make_id, make_random_token
from holdfast.journal import SYSTEM_SESSION, Event, HeldSession, Journal, Payload, RowQuery

LARGEST_LOAD: Final = 512 * 1024 * 1024
"""What is larger is streamed, never loaded."""
_HEAD_BYTES: Final = 512
_PIECE_BYTES: Final = 2 * BLOCK_BYTES
_WHOLE_BYTES: Final = 16 * BLOCK_BYTES
"""What is in memory anyway is handed to threads in larger pieces: each way there takes time."""
_PAGE: Final = 500
NO_OPTIONS: Final = ArtifactOptions()
NO_FILTER: Final = ArtifactFilter()

# `list` is a method of the store.
Artifacts: TypeAlias = list[Artifact]


class ArtifactRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and retention; `None` is without limit."""

    session_bytes: int | None = None
    tenant_bytes: int | None = None
    largest_bytes: int | None = None
    ttl_s: float | None = None
    keep_versions: int | None = None
    compresses: bool = True


class ArtifactRecorder(Protocol):
    """Where a run's facts go, under its lease; a turn is one."""

    @property
    def session_id(self) -> str:
        """The session that it holds."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch under which it holds it."""
        ...

    async def append(self, *payloads: Payload) -> tuple[Event, ...]:
        """Append facts of the run."""
        ...


class ArtifactServices(msgspec.Struct, kw_only=True, eq=False):
    """What every view of one store of artifacts works with."""

    journal: Journal
    blobs: BlobStore
    locks: ArtifactLocks
    place: str
    """What errors call the place of the blobs."""
    keys: KeyRing = no_keys
    rules: ArtifactRules = ArtifactRules()
    link_key: bytes = b""
    is_claimed: bool = False
    """Whether the place is known to be this journal's own."""


class ArtifactStore:
    """Files with versions, owners and rights, in the name of one actor.

    What `save` returned is on the disk (or in the bucket) and in the journal, and stays until it
    is deleted, expires, or its session goes. What `load` and `stream` give is what was saved, to
    the byte: every read is checked against the SHA-256. A process that is killed leaves no
    artifact without its content, and no content that the next `collect` would not find.
    """

    def __init__(
        self,
        services: ArtifactServices,
        actor: ArtifactActor,
        *,
        recorder: ArtifactRecorder | None = None,
    ) -> None:
        """Act in this name; with a recorder, facts of its session are written by it."""
        self.services = services
        self.actor = actor
        self._journal = services.journal
        self.catalogue = CatalogueReader(services.journal, actor.tenant)
        self._recorder = recorder

    def act_for(
        self, actor: ArtifactActor, recorder: ArtifactRecorder | None = None
    ) -> ArtifactStore:
        """Return the same store in another name."""
        return ArtifactStore(self.services, actor, recorder=recorder)

    # --- saving -----------------------------------------------------------------------

    async def save(
        self,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        options: ArtifactOptions = NO_OPTIONS,
    ) -> Artifact:
        """Keep a file and return what is known of it.

        A name that is there already in the same scope gets a new version, linked to the one
        before; the same content again is the same version. Once this returns, content and fact
        are durable; if it raises, there is no such version.

        Raises:
            UsageError: name, options or data cannot be kept.
            ArtifactQuotaExceeded: it does not fit; nothing was saved.
            ArtifactPlaceTaken: the files of another journal are kept there.
            StorageError: there is no space, or the place cannot be written or reached.
        """
        check_name(name)
        options = check_options(options)
        scope = options.scope or ("session" if self.actor.session_id else "user")
        session_id, scope_id = self._find_home(scope)
        await self.claim_place()
        upload = self.services.blobs.begin(
            f"{await self.services.locks.owner()}-{make_random_token(8)}"
        )
        try:
            sealer, head = await self._receive(upload, data)
            if options.sha256 not in ("", sealer.digest):
                raise UsageError(
                    detail=f"The content has the SHA-256 {sealer.digest}, not {options.sha256}; "
                    "nothing was saved."
                )
            key = make_blob_key(self.actor.tenant, sealer.digest)
            # What takes long (a copy inside a bucket) happens before others have to wait.
            await upload.publish(key)
            async with self.services.locks.alone():
                before = await self.catalogue.find_newest(
                    session_id, make_lineage(scope, scope_id, name)
                )
                if before is not None and before.is_live and before.digest == sealer.digest:
                    await upload.publish(key)
                    return before.artifact
                await self._check_quota(session_id, sealer.size)
                fact = self._make_fact(name, options, scope, scope_id, before)
                fact = msgspec.structs.replace(
                    fact,
                    digest=sealer.digest,
                    size=sealer.size,
                    media_type=options.media_type or guess_media_type(name, head),
                )
                # Collected since, if no event named it; from here on it cannot be.
                await upload.publish(key)
                event = await self.append(session_id, fact)
        finally:
            await asyncio.shield(upload.discard())
        row = ARTIFACTS.apply(None, event, event.decode())
        assert row is not None
        return row.artifact

    async def _receive(
        self, upload: BlobUpload, data: bytes | AsyncIterable[bytes]
    ) -> tuple[Sealer, bytes]:
        """Seal and upload a content; returns what is known at its end, and its first bytes."""
        services = self.services
        compresses = services.rules.compresses and can_compress()
        sealer = Sealer(self.actor.tenant, services.keys.active, compresses=compresses)
        head, largest = b"", services.rules.largest_bytes
        writing: asyncio.Task[None] | None = None
        try:
            async for piece in _split_pieces(data):
                head = head or piece[:_HEAD_BYTES]
                # Hashed while it is compressed and encrypted; written while the next one is.
                sealed, _ = await asyncio.gather(
                    asyncio.to_thread(sealer.seal, piece), asyncio.to_thread(sealer.hash, piece)
                )
                if largest is not None:
                    _check_limit("one artifact", sealer.size, 0, largest)
                if writing is not None:
                    await writing
                writing = asyncio.create_task(upload.write(sealed)) if sealed else None
            last = await asyncio.to_thread(sealer.finish)
        finally:
            if writing is not None:
                await writing
        await upload.write(last)
        return sealer, head

    def _make_fact(
        self,
        name: str,
        options: ArtifactOptions,
        scope: ArtifactScope,
        scope_id: str,
        before: ArtifactRow | None,
    ) -> ArtifactSaved:
        ttl_s = options.ttl_s if options.ttl_s is not None else self.services.rules.ttl_s
        actor = self.actor
        return ArtifactSaved(
            id=make_id("art"),
            tenant=actor.tenant,
            name=name,
            digest="",
            size=0,
            media_type="",
            artifact_kind=options.kind,
            scope=scope,
            scope_id=scope_id,
            owner=actor.owner or actor.subject,
            version=1 if before is None else before.version + 1,
            previous=before.artifact.id if before is not None and before.is_live else "",
            tags=tuple(dict.fromkeys(options.tags)),
            run_id=actor.run_id,
            call_id=actor.call_id,
            expires_at=0.0 if ttl_s is None else self._journal.clock.now() + ttl_s,
            metadata=options.metadata,
        )

    def _find_home(self, scope: ArtifactScope) -> tuple[str, str]:
        """Return the chain that an artifact's facts go to, and whose it is."""
        actor = self.actor
        if scope == "session":
            if not actor.session_id:
                raise UsageError(detail="Say which session the artifact belongs to.")
            return actor.session_id, ""
        owner = {"user": actor.user, "project": actor.project_id, "tenant": actor.tenant}[scope]
        if not owner:
            raise UsageError(detail=f"There is no {scope} to keep the artifact for.")
        return SYSTEM_SESSION, owner

    async def _check_quota(self, session_id: str, size: int) -> None:
        rules = self.services.rules
        if rules.session_bytes is not None and session_id != SYSTEM_SESSION:
            used = await self._journal.row(USAGE, session_id, self.actor.tenant)
            _check_limit("session", size, used.bytes if used else 0, rules.session_bytes)
        if rules.tenant_bytes is not None:
            _check_limit("tenant", size, (await self.usage()).bytes, rules.tenant_bytes)

    async def claim_place(self) -> None:
        """Make sure that the place of the blobs is this journal's own.

        The claim is in the journal before the mark is in the place: a crash in between leaves
        nothing that would lock us out.

        Raises:
            ArtifactPlaceTaken: another journal keeps its files there.
        """
        services = self.services
        if services.is_claimed:
            return
        await services.blobs.open()
        claims = await self._list_claims()
        if not claims:
            claims = [make_random_token(16)]
            await self._journal.append(SYSTEM_SESSION, [ArtifactPlaceClaimed(mark=claims[0])])
        mark = await services.blobs.claim(claims[0])
        # Another process of ours may have been quicker, with a claim of its own.
        if mark not in claims and mark not in await self._list_claims():
            raise ArtifactPlaceTaken(place=services.place)
        services.is_claimed = True

    async def _list_claims(self) -> Sequence[str]:
        found = await self._journal.rows(RowQuery(projection=PLACES, limit=1_000))
        return [keyed.row.mark for keyed in found]

    # --- reading ----------------------------------------------------------------------

    async def get(self, artifact_id: str) -> Artifact:
        """Return what is known of an artifact; raises NotFound."""
        return (await self.find(artifact_id, "read", "see"))[1].artifact

    async def load(self, artifact_id: str) -> bytes:
        """Return the content of an artifact, checked.

        Raises:
            NotFound: there is none, or not for this actor.
            ArtifactDamaged: the content is missing, or is not what was saved.
            ArtifactKeyMissing: it is encrypted with a key that is not known.
            UsageError: it is too large for memory; use `stream`.
        """
        artifact = await self._find_opened(artifact_id)
        if artifact.size > LARGEST_LOAD:
            raise UsageError(
                detail=f"{artifact_id} has {artifact.size} bytes; stream it instead of loading it."
            )
        content = bytearray()
        async for piece in self.read_content(artifact.digest, artifact.size):
            content += piece
        return bytes(content)

    async def stream(self, artifact_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of an artifact in pieces of up to a megabyte, in bounded memory.

        The last piece comes only after everything was checked: who gets to the end has what was
        saved.

        Raises:
            NotFound: there is none, or not for this actor.
            ArtifactDamaged: the content is missing, or is not what was saved.
        """
        artifact = await self._find_opened(artifact_id)
        async with contextlib.aclosing(self.read_content(artifact.digest, artifact.size)) as pieces:
            async for piece in pieces:
                yield piece

    async def _find_opened(self, artifact_id: str) -> Artifact:
        """Return an artifact whose content is about to be read; notes it where others do."""
        session_id, row = await self.find(artifact_id, "read", "read")
        artifact, actor = row.artifact, self.actor
        is_own = actor.is_admin or artifact.owner == actor.subject
        if not is_own and find_access(artifact, _drop_subject(actor), (), 0.0) is None:
            fact = ArtifactAccessed(id=artifact.id, tenant=artifact.tenant, by=actor.subject)
            await self.append(session_id, fact)
        return artifact

    async def read_content(
        self, digest: str, size: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield a content of the tenant by its digest, for those who look after the store.

        The last piece comes only after everything was checked.

        Raises:
            ArtifactDamaged: it is missing, or is not what was saved.
            ArtifactKeyMissing: it is encrypted with a key that is not known.
        """
        tenant = self.actor.tenant
        unsealer = Unsealer(tenant, digest, size, self.services.keys)
        held: bytes | None = None
        sealed = self.services.blobs.read(make_blob_key(tenant, digest))
        async with contextlib.aclosing(sealed):
            async for data in sealed:
                for piece in await asyncio.to_thread(_unseal_pieces, unsealer, data):
                    if held is not None:
                        yield held
                    held = piece
        unsealer.finish()
        if held is not None:
            yield held

    async def list(
        self, wanted: ArtifactFilter = NO_FILTER, *, limit: int = 50, cursor: str = ""
    ) -> ArtifactPage:
        """Return the artifacts that this actor may reach and a filter wants, newest first.

        Raises:
            InvalidCursor: the cursor is not one that a page gave.
        """
        after = read_cursor(cursor)
        found: list[Artifact] = []
        now = self._journal.clock.now()
        while True:
            query = filter_query(wanted, self.actor.tenant, after=after, limit=_PAGE)
            page = await self._journal.rows(query)
            for keyed in page:
                after = (keyed.row.time, keyed.key)
                if await self._is_listed(keyed.session_id, keyed.row, wanted, now):
                    found.append(keyed.row.artifact)
                    if len(found) == limit:
                        return ArtifactPage(items=tuple(found), next_cursor=write_cursor(after))
            if len(page) < _PAGE:
                return ArtifactPage(items=tuple(found))

    async def _is_listed(
        self, session_id: str, row: ArtifactRow, wanted: ArtifactFilter, now: float
    ) -> bool:
        artifact = row.artifact
        if wanted.tag and wanted.tag not in artifact.tags:
            return False
        if 0 < artifact.expires_at <= now:
            return False
        grants = [] if self.actor.is_admin else await self.catalogue.grants(session_id, artifact.id)
        if find_access(artifact, self.actor, grants, now) is None:
            return False
        if wanted.has_old_versions:
            return True
        newest = await self.catalogue.versions(session_id, row.lineage, limit=1)
        return not newest or newest[0].artifact.id == artifact.id

    async def versions(self, artifact_id: str) -> Artifacts:
        """Return all versions of a file, newest first; each names the one before as `previous`."""
        session_id, row = await self.find(artifact_id, "read", "see")
        rows = await self.catalogue.versions(session_id, row.lineage, limit=10_000)
        return [one.artifact for one in rows]

    async def usage(self) -> ArtifactUsage:
        """Return how much the artifacts of the tenant take, the same content counted each time."""
        return await self.catalogue.usage()

    # --- deleting ---------------------------------------------------------

    async def delete(self, artifact_id: str, *, reason: str = "") -> None:
        """Delete one version for good; its content goes unless another artifact has the same.

        Raises:
            NotFound: there is none, or not for this actor.
            ArtifactDenied: the actor may only read it.
        """
        from holdfast.artifacts.upkeep import collect_deleted  # noqa: PLC0415 - needs this class

        session_id, row = await self.find(artifact_id, "write", "delete")
        await self.append(session_id, self.make_deletion(row, reason))
        await collect_deleted(self, session_id, row.artifact.id)

    def make_deletion(self, row: ArtifactRow, reason: str) -> ArtifactDeleted:
        """Return the fact that a version is deleted."""
        artifact = row.artifact
        return ArtifactDeleted(
            id=artifact.id,
            tenant=artifact.tenant,
            size=artifact.size,
            by=self.actor.subject,
            reason=reason,
        )

    # --- finding ----------------------------------------------------------------------

    async def find(self, artifact_id: str, wanted: Access, action: str) -> tuple[str, ArtifactRow]:
        """Return the chain and the row of an artifact that the actor may do something to."""
        now = self._journal.clock.now()
        best: tuple[Access, str, ArtifactRow] | None = None
        for session_id, row in await self.catalogue.rows(artifact_id):
            if 0 < row.expires_at <= now:
                continue
            grants = (
                [] if self.actor.is_admin else await self.catalogue.grants(session_id, artifact_id)
            )
            given = find_access(row.artifact, self.actor, grants, now)
            # A fork has the same ones; that of the actor's own session comes first.
            is_nearer = best is None or session_id == self.actor.session_id
            if given is not None and is_nearer:
                best = (given, session_id, row)
        if best is None:
            raise NotFound(kind="artifact", value=artifact_id)
        if not allows(best[0], wanted):
            raise ArtifactDenied(
                subject=self.actor.subject, action=action, artifact_id=artifact_id, access=wanted
            )
        return best[1], best[2]

    async def append(self, session_id: str, fact: Payload) -> Event:
        """Write a fact: by the run that saves it where there is one, or else by anyone.

        Raises:
            LeaseLost: that run has lost its session; nothing was written.
        """
        recorder = self._recorder
        if recorder is not None and session_id == self.actor.session_id:
            [event] = await recorder.append(fact)
        else:
            held = None if recorder is None else HeldSession(recorder.session_id, recorder.epoch)
            [event] = await self._journal.append(session_id, [fact], held=held)
        return event


def _check_limit(what: str, size: int, used: int, limit: int) -> None:
    if used + size > limit:
        raise ArtifactQuotaExceeded(what=what, size=size, used=used, limit=limit)


def _unseal_pieces(unsealer: Unsealer, data: bytes) -> list[bytes]:
    return list(unsealer.add(data))


def _drop_subject(actor: ArtifactActor) -> ArtifactActor:
    return msgspec.structs.replace(actor, subject="")


async def _split_pieces(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a content in pieces of at most a megabyte or so.

    Raises:
        UsageError: it is none.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        whole = bytes(data)
        for start in range(0, len(whole), _WHOLE_BYTES):
            yield whole[start : start + _WHOLE_BYTES]
        return
    if not isinstance(data, AsyncIterable):
        raise UsageError(
            detail="The content of an artifact is bytes, or an async iterable of them."
        )
    async for piece in data:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise UsageError(detail="The content of an artifact comes in pieces of bytes.")
        for start in range(0, len(piece), _PIECE_BYTES):
            yield bytes(piece[start : start + _PIECE_BYTES])


__all__ = [
    "ArtifactRecorder",
    "ArtifactRules",
    "ArtifactServices",
    "ArtifactStore",
]
