"""Every place of artifacts keeps every promise of the protocol."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from holdfast.artifacts import (
    BlobStore,
    BlobStoreOptions,
    FileBlobs,
    MemoryBlobs,
    SqliteBlobs,
    open_blob_store,
)
from holdfast.errors import ArtifactDamaged, ConfigError, StorageUnavailable
from holdfast.testing import ArtifactBackendConformance
from holdfast.testing.artifact_conformance import LARGE, key_of, make_bytes, read_all

sys.path.insert(0, str(Path(__file__).parent))
from s3_server import google_bucket, serve_503, serve_cutting, serve_google, serve_s3

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def bucket(address: str, prefix: str) -> BlobStore:
    options = BlobStoreOptions(
        base_dir=Path("/"), endpoint=address, region="us-east-1", variables=CREDENTIALS
    )
    return open_blob_store(f"s3://holdfast/{prefix}", options)


def ask(address: str) -> bytes:
    with urllib.request.urlopen(address) as answer:
        return answer.read()


@pytest.fixture(scope="module")
def s3():
    with serve_s3() as address:
        yield address


class TestFiles(ArtifactBackendConformance):
    def make_blobs(self, place):
        return FileBlobs(place / "artifacts")


class TestSqlite(ArtifactBackendConformance):
    def make_blobs(self, place):
        return SqliteBlobs(place / "artifacts.db")


class TestPostgres(ArtifactBackendConformance):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def make_blobs(self, place):
        url = self.postgres.url(self.postgres.find_database(place))
        return open_blob_store(url, BlobStoreOptions(base_dir=place))


class TestMemory(ArtifactBackendConformance):
    is_kept = False

    def make_blobs(self, place):
        return MemoryBlobs()


class TestS3(ArtifactBackendConformance):
    @pytest.fixture(autouse=True)
    def server(self, s3):
        self.address = s3

    def make_blobs(self, place):
        return bucket(self.address, f"tests/{place.name}/{hash(str(place)) & 0xFFFF}")


async def test_a_bucket_of_google_takes_parts_lists_and_removes(s3):
    # All of the conformance suite: scripts/test-buckets.
    with serve_google(s3) as address:
        blobs = google_bucket(address, "google")
        data = make_bytes(LARGE)
        for number, content in enumerate((data, b"small")):
            upload = blobs.begin(f"u{number}")
            await upload.write(content)
            await upload.publish(key_of(content))
            await upload.discard()
            assert await read_all(blobs, key_of(content)) == content
        assert {one.key async for one in blobs.scan()} == {key_of(data), key_of(b"small")}
        assert list(await blobs.uploads()) == []
        assert await blobs.claim("first") == await blobs.claim("second") == "first"
        await blobs.remove([key_of(data)])
        assert await blobs.size(key_of(data)) is None


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        ("az://container/x", {}),
        ("az://container/x", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "!"}),
        ("gs://bucket/x", {"GOOGLE_SERVICE_ACCOUNT_KEY": "this is no key"}),
    ],
)
def test_credentials_that_cannot_be_ones_are_refused_by_name_and_not_repeated(url, variables):
    with pytest.raises(ConfigError) as refused:
        open_blob_store(url, BlobStoreOptions(base_dir=Path("/"), variables=variables))
    assert url in str(refused.value)
    assert "no key" not in str(refused.value)


async def test_what_is_large_goes_up_in_parts_and_what_was_given_up_leaves_none(s3):
    blobs = bucket(s3, "parts")
    data = make_bytes(LARGE)
    upload = blobs.begin("u1")
    await upload.write(data)
    await upload.publish(key_of(data))
    await upload.discard()
    assert await read_all(blobs, key_of(data)) == data
    abandoned = blobs.begin("u2")
    await abandoned.write(data)
    await abandoned.discard()
    assert b"<Upload>" not in await asyncio.to_thread(ask, f"{s3}/holdfast?uploads")


async def test_a_bucket_that_answers_503_gives_a_clear_error_and_loses_nothing(s3):
    with serve_503() as address:
        busy = bucket(address, "x")
        for size in (5, LARGE):
            upload = busy.begin(f"u{size}")
            with pytest.raises(StorageUnavailable) as failed:
                await upload.write(make_bytes(size))
                await upload.publish(key_of(make_bytes(size)))
            assert failed.value.is_retryable
            assert "s3://holdfast/x" in str(failed.value)
            with pytest.raises(StorageUnavailable):
                await busy.size(key_of(b""))


async def test_an_upload_that_breaks_in_its_midst_publishes_nothing_and_can_be_repeated(s3):
    data = make_bytes(LARGE)
    with serve_cutting(s3) as address:
        broken = bucket(address, "cut").begin("u1")
        with pytest.raises(StorageUnavailable) as failed:
            await broken.write(data)
            await broken.publish(key_of(data))
        assert failed.value.is_retryable
        await broken.discard()
    whole = bucket(s3, "cut")
    with pytest.raises(ArtifactDamaged):
        await read_all(whole, key_of(data))
    assert b"<Upload>" not in await asyncio.to_thread(ask, f"{s3}/holdfast?uploads")
    again = whole.begin("u2")
    await again.write(data)
    await again.publish(key_of(data))
    await again.discard()
    assert await read_all(whole, key_of(data)) == data


async def test_an_object_that_was_cut_short_in_the_bucket_is_noticed(s3, tmp_path):
    suite = TestS3()
    suite.address = s3
    async with suite.opened(tmp_path) as store:
        saved = await store.save("x.bin", make_bytes(3_000_000))
        key = f"acme/{saved.digest}"
        whole = await read_all(store.services.blobs, key)
        for damaged in (whole[:-1], whole[:40], b"", whole + b"x", b"x" + whole[1:]):
            upload = store.services.blobs.begin("evil")
            await upload.write(damaged)
            await upload.publish(key, replaces=True)
            await upload.discard()
            with pytest.raises(ArtifactDamaged):
                await store.load(saved.id)
