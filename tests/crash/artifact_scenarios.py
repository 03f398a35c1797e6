"""What is killed: work on artifacts that can be taken up again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import postgres_boundaries

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactFilter,
    ArtifactKey,
    ArtifactServices,
    ArtifactStore,
    BlobStore,
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
from holdfast.testing.crash import cross_boundary

EVERYTHING = ArtifactFilter(has_old_versions=True)
OLD, NEW = ArtifactKey(b"o" * 32), ArtifactKey(b"n" * 32)
SMALL = b"a small one"
LARGE = bytes(range(256)) * 6_000
IN_PARTS = hashlib.shake_256(b"parts").digest(7 * 1024 * 1024)
"""More than a bucket takes in one request, and does not compress."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
OTHER = b"the second version of it " * 1_000


def keep_files(directory: str) -> None:
    asyncio.run(_work(directory, _open_place(directory, "file://")))


def keep_rows(directory: str) -> None:
    asyncio.run(_work(directory, _open_place(directory, "sqlite://")))


def keep_objects(directory: str) -> None:
    """Use a bucket; each request that changes it is a boundary, before it and after its effect."""
    with serve_boundaries(os.environ["TEST_S3"]) as address:
        asyncio.run(_work(directory, _open_bucket(directory, address), large=IN_PARTS))


def keep_shared_rows(directory: str) -> None:
    """Use a database; each exchange that changes it is a boundary, before and after its effect."""
    with postgres_boundaries.serve_boundaries(os.environ["TEST_POSTGRES"]) as address:
        asyncio.run(_work(directory, _open_database(directory, address)))


def _open_database(directory: str | Path, address: str) -> BlobStore:
    return _open_place(directory, postgres_boundaries.name_tenant(address, directory))


def _open_place(directory: str | Path, url: str) -> BlobStore:
    return open_blob_store(url, BlobStoreOptions(base_dir=Path(directory)))


def _open_bucket(directory: str | Path, address: str) -> BlobStore:
    place = Path(directory)
    options = BlobStoreOptions(
        base_dir=place, endpoint=address, region="us-east-1", variables=CREDENTIALS
    )
    return open_blob_store(f"s3://holdfast/{place.parent.name}/{place.name}", options)


class _Boundaries(http.server.BaseHTTPRequestHandler):
    """Hands requests on to a server; this process may be killed around those that change it."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        method, (path, _, query) = self.command, self.path.partition("?")
        if method in ("GET", "HEAD"):
            status, headers, data = self._forward(body)
        else:
            what = "/".join(path.split("/")[4:5]) or "objects"
            asked = query.partition("=")[0]
            status, headers, data = cross_boundary(
                f"{method} {what} {asked}".strip(), lambda: self._forward(body)
            )
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = dict(headers).get("Content-Length") if method == "HEAD" else None
        self.send_header("content-length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.behind)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve_boundaries(address: str) -> Iterator[str]:
    """Stand before an S3 server in this process; yields the address."""
    handler = type("Before", (_Boundaries,), {"behind": address.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def note(directory: str, text: str) -> None:
    """Say that something has returned, in a way that survives this process."""
    handle = os.open(f"{directory}/noted", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def noted(directory: str) -> list[str]:
    path = Path(directory) / "noted"
    return path.read_text().splitlines() if path.exists() else []


async def _work(directory: str, blobs: BlobStore, large: bytes = LARGE) -> None:
    """Save, save again, delete, move to another key, collect; first look at what was left."""
    base = Path(directory)
    journal = Journal(SqliteStore(base / "journal.db", projections=ARTIFACT_PROJECTIONS))
    locks = FileLocks(base / "locks")
    services = ArtifactServices(
        journal=journal, blobs=blobs, locks=locks, place="x", keys=KeyRing(active=OLD, former=NEW)
    )
    actor = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
    async with journal:
        store = ArtifactStore(services, actor)
        await check_left(store, directory)
        for name, data in (("small", SMALL), ("large", large), ("copy", large), ("small", OTHER)):
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
        assert await store.load(one.id) in (SMALL, LARGE, IN_PARTS, OTHER)


async def check(directory: Path) -> None:
    """In the end there is what an undisturbed life leaves."""
    journal = Journal(SqliteStore(directory / "journal.db", projections=ARTIFACT_PROJECTIONS))
    url = "sqlite://" if (directory / "artifacts.db").exists() else "file://"
    if is_bucket := "TEST_S3" in os.environ:
        blobs = _open_bucket(directory, os.environ["TEST_S3"])
    elif "TEST_POSTGRES" in os.environ:
        blobs = _open_database(directory, os.environ["TEST_POSTGRES"])
    else:
        blobs = _open_place(directory, url)
    services = ArtifactServices(
        journal=journal,
        blobs=blobs,
        locks=FileLocks(directory / "locks"),
        place="x",
        keys=KeyRing(active=NEW),
    )
    actor = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
    async with journal:
        store = ArtifactStore(services, actor)
        found = {one.name: one for one in (await store.list()).items}
        # The version before the deleted one is the newest again.
        assert {"copy"} <= set(found) <= {"copy", "small", "large"}
        assert await store.load(found["copy"].id) == (IN_PARTS if is_bucket else LARGE)
        assert await verify(store) == []
        await blobs.close()
