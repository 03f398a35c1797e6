"""What is killed: work on artifacts that can be taken up again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactFilter,
    ArtifactKey,
    ArtifactServices,
    ArtifactStore,
    BlobStoreOptions,
    FileLocks,
    KeyRing,
    collect,
    make_blob_key,
    open_blob_store,
    rekey,
    verify,
)
from holdfast.journal import Journal, SqliteStore

EVERYTHING = ArtifactFilter(has_old_versions=True)
OLD, NEW = ArtifactKey(b"o" * 32), ArtifactKey(b"n" * 32)
SMALL = b"a small one"
LARGE = bytes(range(256)) * 6_000
OTHER = b"the second version of it " * 1_000


def keep_files(directory: str) -> None:
    asyncio.run(_work(directory, "file://"))


def keep_rows(directory: str) -> None:
    asyncio.run(_work(directory, "sqlite://"))


def note(directory: str, text: str) -> None:
    """Say that something has returned, in a way that survives this process."""
    handle = os.open(f"{directory}/noted", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def noted(directory: str) -> list[str]:
    path = Path(directory) / "noted"
    return path.read_text().splitlines() if path.exists() else []


async def _work(directory: str, url: str) -> None:
    """Save, save again, delete, move to another key, collect; first look at what was left."""
    base = Path(directory)
    journal = Journal(SqliteStore(base / "journal.db", projections=ARTIFACT_PROJECTIONS))
    blobs = open_blob_store(url, BlobStoreOptions(base_dir=base))
    locks = FileLocks(base / "locks")
    services = ArtifactServices(
        journal=journal, blobs=blobs, locks=locks, place=url, keys=KeyRing(active=OLD, former=NEW)
    )
    actor = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
    async with journal:
        store = ArtifactStore(services, actor)
        await check_left(store, directory)
        for name, data in (("small", SMALL), ("large", LARGE), ("copy", LARGE), ("small", OTHER)):
            saved = await store.save(name, data)
            note(directory, f"saved {saved.id}")
        for name in ("large", "small"):
            for found in (await store.list(ArtifactFilter(name=name))).items:
                note(directory, f"gone {found.id}")
                await store.delete(found.id)
        services.keys = KeyRing(active=NEW, former=OLD)
        await rekey(store)
        await collect(store)
        await check_left(store, directory)
        await locks.close()
        await blobs.close()


async def check_left(store: ArtifactStore, directory: str) -> None:
    """Whatever was killed when: what is listed is whole, and a collection leaves no orphan."""
    services = store.services
    assert await verify(store) == []
    listed = {one.id: one for one in (await store.list(EVERYTHING, limit=1_000)).items}
    told = noted(directory)
    gone = {line.split()[1] for line in told if line.startswith("gone")}
    saved = {line.split()[1] for line in told if line.startswith("saved")}
    assert saved - gone <= set(listed), "what was acknowledged is gone"
    await collect(store)
    assert await verify(store) == []
    kept = {info.key async for info in services.blobs.scan()}
    assert kept == {make_blob_key("acme", one.digest) for one in listed.values()}, (
        "an orphan survived"
    )
    assert list(await services.blobs.uploads()) == []
    for one in listed.values():
        assert await store.load(one.id) in (SMALL, LARGE, OTHER)


async def check(directory: Path) -> None:
    """In the end there is what an undisturbed life leaves."""
    journal = Journal(SqliteStore(directory / "journal.db", projections=ARTIFACT_PROJECTIONS))
    url = "sqlite://" if (directory / "artifacts.db").exists() else "file://"
    blobs = open_blob_store(url, BlobStoreOptions(base_dir=directory))
    services = ArtifactServices(
        journal=journal,
        blobs=blobs,
        locks=FileLocks(directory / "locks"),
        place=url,
        keys=KeyRing(active=NEW),
    )
    actor = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
    async with journal:
        store = ArtifactStore(services, actor)
        found = {one.name: one for one in (await store.list()).items}
        # The version before the deleted one is the newest again.
        assert {"copy"} <= set(found) <= {"copy", "small", "large"}
        assert await store.load(found["copy"].id) == LARGE
        assert await verify(store) == []
        await blobs.close()
