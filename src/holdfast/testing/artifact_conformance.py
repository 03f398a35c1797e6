"""The conformance suite for places of artifacts, as tests that you inherit.

Write a subclass in your tests, and pytest (with pytest-asyncio in auto mode) runs all of it::

    from holdfast.testing import ArtifactBackendConformance

    class TestMyPlace(ArtifactBackendConformance):
        def make_blobs(self, place):
            return MyBlobs(place / "data")

A place that forgets everything when its object goes sets `is_kept = False`.
"""

# ruff: noqa: D102 - the name of a test is its sentence
from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactKey,
    ArtifactServices,
    ArtifactStore,
    BlobStore,
    FileLocks,
    KeyRing,
    collect,
    make_blob_key,
    rekey,
    verify,
)
from holdfast.errors import ArtifactDamaged, ArtifactPlaceTaken, UsageError
from holdfast.journal import Journal, MemoryStore

TENANT = "acme"
LARGE = 9 * 1024 * 1024
"""Beyond what any place takes in one request or one row."""


def key_of(content: bytes, tenant: str = TENANT) -> str:
    """Return the key of a content."""
    return make_blob_key(tenant, hashlib.sha256(content).hexdigest())


def make_bytes(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not repeat, the same each time."""
    return hashlib.shake_256(seed.to_bytes(4)).digest(size)


async def read_all(blobs: BlobStore, key: str) -> bytes:
    """Return the bytes of a blob."""
    return b"".join([piece async for piece in blobs.read(key)])


async def put(blobs: BlobStore, data: bytes, *, name: str = "u1", replaces: bool = False) -> str:
    """Store bytes under the key of their content."""
    upload = blobs.begin(name)
    await upload.write(data)
    await upload.publish(key_of(data), replaces=replaces)
    await upload.discard()
    return key_of(data)


class ArtifactBackendConformance:
    """What every place of artifacts must do."""

    is_kept: ClassVar[bool] = True

    def make_blobs(self, place: Path) -> BlobStore:
        """Return a store of blobs that keeps its bytes in a place; the same place, the same."""
        raise NotImplementedError

    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> AsyncIterator[BlobStore]:
        """An open, empty place."""
        blobs = self.make_blobs(tmp_path)
        await blobs.open()
        yield blobs
        await blobs.close()

    @contextlib.asynccontextmanager
    async def opened(self, place: Path, **fields: object) -> AsyncIterator[ArtifactStore]:
        """An ArtifactStore whose contents lie in the place, with a journal in memory."""
        blobs = self.make_blobs(place)
        journal = Journal(MemoryStore(projections=ARTIFACT_PROJECTIONS))
        await journal.open()
        services = ArtifactServices(
            journal=journal, blobs=blobs, locks=FileLocks(place / "locks"), place="here"
        )
        for name, value in fields.items():
            setattr(services, name, value)
        actor = ArtifactActor(tenant=TENANT, subject="owner", user="local", is_admin=True)
        try:
            yield ArtifactStore(services, actor)
        finally:
            await services.locks.close()
            await blobs.close()
            await journal.close()

    # --- the protocol -----------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 1024 * 1024 + 1, LARGE])
    async def test_what_was_published_is_read_to_the_byte(
        self, blobs: BlobStore, size: int
    ) -> None:
        data = make_bytes(size)
        key = await put(blobs, data)
        assert await read_all(blobs, key) == data
        assert await blobs.size(key) == size

    async def test_nothing_is_seen_before_it_is_published(self, blobs: BlobStore) -> None:
        for size in (5, LARGE):
            data = make_bytes(size)
            upload = blobs.begin(f"u{size}")
            await upload.write(data)
            assert await blobs.size(key_of(data)) is None
            assert [info async for info in blobs.scan()] == []
            await upload.discard()
            assert list(await blobs.uploads()) == []
            assert await blobs.size(key_of(data)) is None

    async def test_publishing_can_be_repeated_and_a_removed_blob_comes_back(
        self, blobs: BlobStore
    ) -> None:
        for size in (5, LARGE):
            data = make_bytes(size, 7)
            upload = blobs.begin(f"u{size}")
            await upload.write(data)
            await upload.publish(key_of(data))
            await upload.publish(key_of(data))
            await blobs.remove([key_of(data)])
            assert await blobs.size(key_of(data)) is None
            await upload.publish(key_of(data))
            await upload.discard()
            assert await read_all(blobs, key_of(data)) == data

    async def test_a_blob_that_is_there_stays_unless_it_is_replaced(self, blobs: BlobStore) -> None:
        for size in (5, LARGE):
            key = key_of(make_bytes(size))
            for number, replaces in enumerate((False, False, True)):
                upload = blobs.begin(f"u{size}x{number}")
                await upload.write(bytes([number]) * (size + number))
                await upload.publish(key, replaces=replaces)
                await upload.discard()
                expected = number if replaces else 0
                assert await read_all(blobs, key) == bytes([expected]) * (size + expected)

    async def test_a_blob_that_is_not_there_is_said_to_be_missing(self, blobs: BlobStore) -> None:
        with pytest.raises(ArtifactDamaged):
            await read_all(blobs, key_of(b"never"))
        assert await blobs.size(key_of(b"never")) is None
        await blobs.remove([key_of(b"never")])

    async def test_tenants_share_nothing(self, blobs: BlobStore) -> None:
        await put(blobs, b"same")
        assert await blobs.size(key_of(b"same", "other")) is None
        with pytest.raises(ArtifactDamaged):
            await read_all(blobs, key_of(b"same", "other"))

    @pytest.mark.parametrize(
        "key",
        ["", "acme", "acme/x", "../x/" + "0" * 64, "/" + "0" * 64, "acme/" + "0" * 63 + "G",
         "acme/../" + "0" * 61, "acme\0/" + "0" * 64, "acme/" + "0" * 64 + "/.."],
    )  # fmt: skip
    async def test_a_key_that_is_none_reaches_nothing(self, blobs: BlobStore, key: str) -> None:
        for ask in (blobs.size(key), read_all(blobs, key), blobs.remove([key])):
            with pytest.raises(UsageError):
                await ask

    @pytest.mark.parametrize("name", ["", "../x", "a/b", "a\0b", "x" * 100])
    async def test_an_upload_has_a_safe_name(self, blobs: BlobStore, name: str) -> None:
        with pytest.raises(UsageError):
            blobs.begin(name)

    async def test_every_blob_is_listed_once(self, blobs: BlobStore) -> None:
        keys = {await put(blobs, make_bytes(10, n), name=f"u{n}"): 10 for n in range(30)}
        found = [(info.key, info.size) async for info in blobs.scan()]
        assert len(found) == len(keys)
        assert dict(found) == keys

    async def test_the_first_mark_of_a_place_stays(self, blobs: BlobStore) -> None:
        assert await blobs.claim("one") == "one"
        assert await blobs.claim("two") == "one"

    async def test_what_was_stored_is_there_after_opening_again(self, tmp_path: Path) -> None:
        if not self.is_kept:
            return
        first = self.make_blobs(tmp_path)
        await first.open()
        key = await put(first, b"kept")
        await first.claim("mark")
        await first.close()
        second = self.make_blobs(tmp_path)
        await second.open()
        assert await read_all(second, key) == b"kept"
        assert await second.claim("other") == "mark"
        await second.close()

    async def test_many_at_once_do_not_disturb_each_other(self, blobs: BlobStore) -> None:
        contents = [make_bytes(300_000, n % 4) for n in range(12)]
        await asyncio.gather(
            *[put(blobs, data, name=f"u{number}") for number, data in enumerate(contents)]
        )
        for data in contents:
            assert await read_all(blobs, key_of(data)) == data
        assert list(await blobs.uploads()) == []

    async def test_a_blob_that_is_replaced_while_it_is_read_is_read_whole(
        self, blobs: BlobStore
    ) -> None:
        data = make_bytes(3 * 1024 * 1024)
        key = await put(blobs, data)
        reading = blobs.read(key)
        found = [await anext(reading)]
        upload = blobs.begin("u2")
        await upload.write(bytes(len(data)))
        await upload.publish(key, replaces=True)
        await upload.discard()
        found += [piece async for piece in reading]
        assert b"".join(found) == data

    # --- the store above it -----------------------------------------------------------

    @pytest.mark.parametrize("is_encrypted", [False, True])
    async def test_a_large_artifact_is_saved_streamed_and_moved_to_another_key(
        self, tmp_path: Path, is_encrypted: bool
    ) -> None:
        first, second = ArtifactKey(b"a" * 32), ArtifactKey(b"b" * 32)
        keys = KeyRing(active=first) if is_encrypted else KeyRing()
        data = make_bytes(LARGE) + bytes(LARGE)
        async with self.opened(tmp_path, keys=keys) as store:
            saved = await store.save("large.bin", data)
            assert saved.digest == hashlib.sha256(data).hexdigest()
            assert await store.load(saved.id) == data
            store.services.keys = KeyRing(active=second, former=first if is_encrypted else None)
            assert (await rekey(store)).rekeyed == 1
            store.services.keys = KeyRing(active=second)
            assert b"".join([piece async for piece in store.stream(saved.id)]) == data
            assert await verify(store) == []
            assert (await rekey(store)).unchanged == 1
            await store.delete(saved.id)
            assert [info async for info in store.services.blobs.scan()] == []
            assert list(await store.services.blobs.uploads()) == []

    async def test_the_same_content_is_kept_once_and_goes_with_the_last(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            one = await store.save("one", b"same content")
            two = await store.save("two", b"same content")
            blobs = store.services.blobs
            assert len([info async for info in blobs.scan()]) == 1
            await store.delete(one.id)
            assert await store.load(two.id) == b"same content"
            await store.delete(two.id)
            assert [info async for info in blobs.scan()] == []

    async def test_an_interrupted_save_leaves_nothing(self, tmp_path: Path) -> None:
        async def broken(size: int) -> AsyncIterator[bytes]:
            yield make_bytes(size)
            raise RuntimeError("the source broke")

        async with self.opened(tmp_path) as store:
            kept = await store.save("x", b"the first")
            for size in (10, LARGE):
                with pytest.raises(RuntimeError):
                    await store.save("x", broken(size))
            assert list(await store.services.blobs.uploads()) == []
            assert [one.id for one in await store.versions(kept.id)] == [kept.id]
            assert (await collect(store)).blobs_removed == 0

    async def test_another_journal_is_kept_out_of_the_place(self, tmp_path: Path) -> None:
        if not self.is_kept:
            return
        async with self.opened(tmp_path) as store:
            saved = await store.save("mine", b"mine")
            async with self.opened(tmp_path) as other:
                with pytest.raises(ArtifactPlaceTaken):
                    await other.save("theirs", b"theirs")
                with pytest.raises(ArtifactPlaceTaken):
                    await collect(other)
            assert await store.load(saved.id) == b"mine"


__all__ = ["ArtifactBackendConformance"]
