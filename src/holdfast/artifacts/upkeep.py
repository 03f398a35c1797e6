"""Upkeep: collect what nothing refers to, check what is there, move to another key, expire.

Each can be killed at any moment and be repeated. What a journal refers to is never removed:
references are read, and blobs removed, under the lock that every save takes between publishing
a content and naming it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from holdfast.artifacts.blobs import BlobInfo, make_blob_key, split_key
from holdfast.artifacts.catalogue import ARTIFACTS, ArtifactRow
from holdfast.artifacts.sealing import HEADER_BYTES, Sealer, can_compress, parse_header
from holdfast.artifacts.store import ArtifactStore
from holdfast.errors import ArtifactDamaged, ArtifactKeyMissing, HoldfastError, NotFound
from holdfast.ids import make_random_token
from holdfast.journal import Condition, KeyedRow, RowQuery

_BATCH = 200
_PAGE = 500
Progress = Callable[[int, int], None]
"""Told how many are done, and of how many."""


def _report_nothing(done: int, total: int) -> None:
    pass


class CollectReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection removed."""

    artifacts_expired: int = 0
    blobs_removed: int = 0
    bytes_freed: int = 0
    uploads_removed: int = 0


class ArtifactFinding(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact whose content is missing or damaged."""

    artifact_id: str
    name: str
    digest: str
    problem: str


class RekeyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the blobs of a tenant."""

    rekeyed: int = 0
    unchanged: int = 0
    failed: tuple[str, ...] = ()
    """Digests of those that cannot be read: damaged, or encrypted with a key that is not known."""


# --- collecting -----------------------------------------------------------------------


async def collect(store: ArtifactStore, *, progress: Progress = _report_nothing) -> CollectReport:
    """Remove what nothing refers to: blobs, deleted versions, uploads of dead processes.

    Also expires what retention no longer wants. Saves meanwhile are not disturbed.

    Raises:
        ArtifactPlaceTaken: the place belongs to another journal; nothing was removed.
        StorageError: the place cannot be read or written; what was removed was not needed.
    """
    await store.claim_place()
    expired = await expire(store)
    for keyed in await _list_deleted_rows(store):
        await _redact(store, keyed)
    removed = freed = seen = 0
    batch: list[BlobInfo] = []
    async for info in _list_own_blobs(store):
        batch.append(info)
        seen += 1
        if len(batch) == _BATCH:
            count, size = await _remove_unused(store, batch)
            removed, freed, batch = removed + count, freed + size, []
            progress(seen, seen)
    count, size = await _remove_unused(store, batch)
    return CollectReport(
        artifacts_expired=expired,
        blobs_removed=removed + count,
        bytes_freed=freed + size,
        uploads_removed=await _remove_dead_uploads(store),
    )


async def collect_deleted(store: ArtifactStore, session_id: str, artifact_id: str) -> None:
    """Finish what a deletion began: its fact loses its content, then the blob goes."""
    row = await store.services.journal.row(ARTIFACTS, session_id, artifact_id)
    if row is None or row.is_live:
        return
    await _redact(store, KeyedRow(session_id, artifact_id, row))
    await collect_digests(store, [row.digest])


async def collect_digests(store: ArtifactStore, digests: Sequence[str]) -> int:
    """Remove those of some contents that nothing refers to any more; returns how many."""
    await store.claim_place()
    removed = 0
    for start in range(0, len(digests), _BATCH):
        keys = [make_blob_key(store.actor.tenant, one) for one in digests[start : start + _BATCH]]
        batch = [BlobInfo(key=key, size=0) for key in dict.fromkeys(keys)]
        removed += (await _remove_unused(store, batch))[0]
    return removed


async def forget_missing(store: ArtifactStore, session_id: str) -> int:
    """Delete the artifacts of a session that came without their contents; returns how many.

    For records of another machine: what is listed is there.
    """
    services, count = store.services, 0
    of_session = RowQuery(projection=ARTIFACTS, session_id=session_id, limit=10_000)
    for keyed in await services.journal.rows(of_session):
        key = make_blob_key(store.actor.tenant, keyed.row.digest)
        if keyed.row.is_live and await services.blobs.size(key) is None:
            fact = store.make_deletion(keyed.row, "its content was not brought along")
            [event] = await services.journal.append(session_id, [fact])
            row = msgspec.structs.replace(keyed.row, deleted_seq=event.session_seq)
            await _redact(store, KeyedRow(session_id, keyed.key, row))
            count += 1
    return count


async def _redact(store: ArtifactStore, keyed: KeyedRow[ArtifactRow]) -> None:
    """Take the content's address out of a deleted version's facts.

    Before the blob goes: a fork that is made of an earlier state of the session must not list
    what is no longer there.
    """
    numbers = [keyed.row.saved_seq, keyed.row.deleted_seq]
    await store.services.journal.redact(keyed.session_id, numbers, reason="artifact deleted")


async def _list_deleted_rows(store: ArtifactStore) -> list[KeyedRow[ArtifactRow]]:
    where = (
        Condition("tenant", "=", store.actor.tenant),
        Condition("is_live", "=", False),
    )
    return await _list_rows(store, where)


async def _list_rows(
    store: ArtifactStore, where: tuple[Condition, ...]
) -> list[KeyedRow[ArtifactRow]]:
    found: list[KeyedRow[ArtifactRow]] = []
    query = RowQuery(projection=ARTIFACTS, where=where, order="time", limit=_PAGE)
    while page := await store.services.journal.rows(query):
        found += page
        if len(page) < _PAGE:
            break
        query = msgspec.structs.replace(query, after=(page[-1].row.time, page[-1].key))
    return found


async def _list_own_blobs(store: ArtifactStore) -> AsyncGenerator[BlobInfo, None]:
    async for info in store.services.blobs.scan():
        found = split_key(info.key)
        if found is not None and found[0] == store.actor.tenant:
            yield info


async def _remove_unused(store: ArtifactStore, batch: Sequence[BlobInfo]) -> tuple[int, int]:
    if not batch:
        return 0, 0
    services = store.services
    async with services.locks.alone():
        digests = {info.key.rpartition("/")[2]: info for info in batch}
        query = RowQuery(
            projection=ARTIFACTS,
            where=(
                Condition("digest", "in", tuple(digests)),
                Condition("tenant", "=", store.actor.tenant),
            ),
            limit=10_000,
        )
        # Many rows may share a content: ask again until all that is referred to is known.
        while rows := await services.journal.rows(query):
            for keyed in rows:
                digests.pop(keyed.row.digest, None)
            if not digests or len(rows) < query.limit:
                break
            left = Condition("digest", "in", tuple(digests))
            query = msgspec.structs.replace(query, where=(left, query.where[1]))
        # Those that a bucket no longer has count as removed by another process.
        unused = list(digests.values())
        await services.blobs.remove([info.key for info in unused])
    return len(unused), sum(info.size for info in unused)


async def _remove_dead_uploads(store: ArtifactStore) -> int:
    services = store.services
    removed = 0
    is_alive: dict[str, bool] = {}
    for name in await services.blobs.uploads():
        owner = name.partition("-")[0]
        if owner not in is_alive:
            is_alive[owner] = await services.locks.is_alive(owner)
        if not is_alive[owner]:
            await services.blobs.remove_upload(name)
            removed += 1
    return removed


async def expire(store: ArtifactStore) -> int:
    """Delete versions whose time is over, and those beyond `keep_versions`; returns how many."""
    services, now = store.services, store.services.journal.clock.now()
    tenant = Condition("tenant", "=", store.actor.tenant)
    is_live = Condition("is_live", "=", True)
    over = (Condition("expires_at", ">", 0.0), Condition("expires_at", "<=", now))
    doomed = await _list_rows(store, (tenant, is_live, *over))
    if services.rules.keep_versions is not None:
        doomed += await _list_old_versions(store, services.rules.keep_versions, (tenant, is_live))
    unique = {(keyed.session_id, keyed.key): keyed for keyed in doomed}
    for keyed in unique.values():
        with contextlib.suppress(NotFound):
            fact = store.make_deletion(keyed.row, "retention")
            await services.journal.append(keyed.session_id, [fact])
    return len(unique)


async def _list_old_versions(
    store: ArtifactStore, kept: int, where: tuple[Condition, ...]
) -> list[KeyedRow[ArtifactRow]]:
    counted: dict[tuple[str, str], list[KeyedRow[ArtifactRow]]] = {}
    for keyed in await _list_rows(store, where):
        counted.setdefault((keyed.session_id, keyed.row.lineage), []).append(keyed)
    old: list[KeyedRow[ArtifactRow]] = []
    for versions in counted.values():
        versions.sort(key=lambda keyed: keyed.row.version)
        old += versions[: max(0, len(versions) - kept)]
    return old


# --- checking -------------------------------------------------------------------------


async def verify(
    store: ArtifactStore, *, progress: Progress = _report_nothing
) -> list[ArtifactFinding]:
    """Read every content once and return the artifacts whose content is missing or damaged."""
    live = (
        Condition("tenant", "=", store.actor.tenant),
        Condition("is_live", "=", True),
    )
    rows = [keyed.row for keyed in await _list_rows(store, live)]
    problems: dict[str, str] = {}
    contents = {row.digest: row for row in rows}
    for number, (digest, row) in enumerate(contents.items(), 1):
        try:
            await _read_through(store, digest, row.size)
        except HoldfastError as error:
            problems[digest] = str(error)
        progress(number, len(contents))
    return [
        ArtifactFinding(
            artifact_id=row.artifact.id,
            name=row.name,
            digest=row.digest,
            problem=problems[row.digest],
        )
        for row in rows
        if row.digest in problems
    ]


async def _read_through(store: ArtifactStore, digest: str, size: int | None) -> None:
    async with contextlib.aclosing(store.read_content(digest, size)) as pieces:
        async for _ in pieces:
            pass


# --- keys -----------------------------------------------------------------------------


async def rekey(store: ArtifactStore, *, progress: Progress = _report_nothing) -> RekeyReport:
    """Encrypt every content of the tenant with the active key; without one, decrypt it.

    Each content is there under its old or its new key at any moment, never damaged: keep the
    former key in the settings until nothing is left of it. Those that are under the right key
    already are left alone, so that what was interrupted goes on.

    Raises:
        ArtifactPlaceTaken: the place belongs to another journal.
        StorageError: the place cannot be read or written.
    """
    await store.claim_place()
    keys = [info.key async for info in _list_own_blobs(store)]
    rekeyed = unchanged = 0
    failed: list[str] = []
    for number, key in enumerate(keys, 1):
        digest = key.rpartition("/")[2]
        try:
            is_new = await _rekey_one(store, key, digest)
        except (ArtifactDamaged, ArtifactKeyMissing):
            if await store.services.blobs.size(key) is not None:
                failed.append(digest)
        else:
            rekeyed, unchanged = rekeyed + is_new, unchanged + (not is_new)
        progress(number, len(keys))
    return RekeyReport(rekeyed=rekeyed, unchanged=unchanged, failed=tuple(failed))


async def _rekey_one(store: ArtifactStore, key: str, digest: str) -> bool:
    services = store.services
    active = services.keys.active
    if await _find_key_id(store, key) == (active.id if active else bytes(8)):
        return False
    owner = await services.locks.owner()
    upload = services.blobs.begin(f"{owner}-{make_random_token(8)}")
    try:
        compresses = services.rules.compresses and can_compress()
        sealer = Sealer(store.actor.tenant, active, compresses=compresses)
        async with contextlib.aclosing(store.read_content(digest)) as pieces:
            async for piece in pieces:
                sealed = await asyncio.to_thread(sealer.add, piece)
                if sealed:
                    await upload.write(sealed)
        await upload.write(await asyncio.to_thread(sealer.finish))
        async with services.locks.alone():
            # Collected meanwhile: it must not come back.
            if await services.blobs.size(key) is None:
                return False
            await upload.publish(key, replaces=True)
    finally:
        await asyncio.shield(upload.discard())
    return True


async def _find_key_id(store: ArtifactStore, key: str) -> bytes:
    start = bytearray()
    sealed = store.services.blobs.read(key)
    async with contextlib.aclosing(sealed):
        async for data in sealed:
            start += data[:HEADER_BYTES]
            if len(start) >= HEADER_BYTES:
                break
    return parse_header(bytes(start[:HEADER_BYTES]), key.rpartition("/")[2]).key_id


__all__ = [
    "ArtifactFinding",
    "CollectReport",
    "RekeyReport",
    "collect",
    "collect_deleted",
    "collect_digests",
    "expire",
    "forget_missing",
    "rekey",
    "verify",
]
