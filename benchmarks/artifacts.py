"""What saving and reading a file costs beside doing it by hand, and how much memory it takes.

python benchmarks/artifacts.py [--quick] [--json]

By hand is: hash 10 MB (SHA-256), compress it (zstd, level 3, in blocks of a megabyte), write it
to a file, sync the file, rename it, sync the directory. The store does all of that, and writes
the fact to the journal. Memory is the growth of the peak of a process that streams a file in
and out again, for files of two sizes; without `--quick` the larger one has 2 GB. The same file
goes to a bucket in parts (multipart) and back: a `moto_server` in a process of its own on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import zstandard
from _report import Result, arguments, interleave, report

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactServices,
    ArtifactStore,
    BlobStoreOptions,
    FileLocks,
    open_blob_store,
)
from holdfast.journal import Journal, SqliteStore

SIZE = 10_000_000
MB = 1024 * 1024
_STREAM = """
import asyncio, sys
sys.path[:0] = {path!r}
from pathlib import Path
from artifacts import open_store, closed, pieces
def peak():
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
async def main(place, megabytes, bucket):
    store = await open_store(Path(place), bucket)
    await store.save("warm", pieces(4))
    before = peak()
    saved = await store.save("file", pieces(megabytes))
    read = 0
    async for piece in store.stream(saved.id):
        read += len(piece)
    assert read == saved.size
    await closed(store)
    print(peak() - before)
asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


async def pieces(megabytes: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Yield a file that compresses by about half."""
    block = os.urandom(MB // 2) + bytes(MB // 2)
    for number in range(megabytes):
        yield number.to_bytes(8) + block[8:]


async def open_store(place: Path, bucket: str = "") -> ArtifactStore:
    """Return a store in a directory; with the address of an S3 server, contents in a bucket."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    options = BlobStoreOptions(base_dir=place, endpoint=bucket, region="us-east-1", variables=keys)
    journal = Journal(SqliteStore(place / "journal.db", projections=ARTIFACT_PROJECTIONS))
    await journal.open()
    services = ArtifactServices(
        journal=journal,
        blobs=open_blob_store("s3://bench/x" if bucket else "file://", options),
        locks=FileLocks(place / "locks"),
        place=str(place),
    )
    actor = ArtifactActor(tenant="bench", subject="owner", user="local", is_admin=True)
    return ArtifactStore(services, actor)


async def closed(store: ArtifactStore) -> None:
    """Close what a store works with."""
    await store.services.locks.close()
    await store.services.journal.close()


def save_by_hand(place: Path, data: bytes) -> None:
    """Hash, compress, write, sync, rename."""
    digest = hashlib.sha256(data).hexdigest()
    compress = zstandard.ZstdCompressor(level=3).compress
    part = place / f"{digest}.part"
    with part.open("wb") as file:
        for start in range(0, len(data), MB):
            file.write(compress(data[start : start + MB]))
        file.flush()
        os.fsync(file.fileno())
    part.replace(place / digest)
    descriptor = os.open(place, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def measure_saves(rounds: int) -> tuple[float, float]:
    """Return the median seconds of a save by hand and of one into the store."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        place = Path(folder)
        store = runner.run(open_store(place))
        half = os.urandom(SIZE // 2)
        count = 0

        def fresh() -> bytes:
            nonlocal count
            count += 1
            return count.to_bytes(8) + half + bytes(SIZE - len(half) - 8)

        def by_hand() -> float:
            data = fresh()
            begun = time.perf_counter()
            save_by_hand(place, data)
            return time.perf_counter() - begun

        def ours() -> float:
            data = fresh()
            begun = time.perf_counter()
            runner.run(store.save(f"file{count}", data))
            return time.perf_counter() - begun

        figures = interleave({"by hand": by_hand, "ours": ours}, rounds)
        runner.run(closed(store))
    return statistics.median(figures["by hand"]), statistics.median(figures["ours"])


@contextlib.contextmanager
def serve_bucket() -> Iterator[str]:
    """Run an S3 server with one bucket in a process of its own; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=quiet, stderr=quiet) as process:
        try:
            until = time.monotonic() + 60
            while True:
                request = urllib.request.Request(f"{address}/bench", method="PUT")
                try:
                    urllib.request.urlopen(request).close()
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
            yield address
        finally:
            process.terminate()


def measure_memory(megabytes: int, bucket: str = "") -> float:
    """Return by how many MB the peak of a process grows that streams a file in and out."""
    code = _STREAM.format(path=[str(Path(__file__).parent)])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, folder, str(megabytes), bucket],
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout)


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    by_hand, ours = measure_saves(7 if options.quick else 25)
    ratio = ours / by_hand
    sizes = (64, 256) if options.quick else (256, 2048)
    small, large = (measure_memory(size) for size in sizes)
    with serve_bucket() as address:
        bucket = measure_memory(sizes[1], address)
    return report(
        [
            Result(
                metric="save of 10 MB ÷ by hand",
                value=round(ratio, 2),
                goal="≤ 1.5",
                ok=ratio <= 1.5,
                note=f"{ours * 1000:.0f} ms and {by_hand * 1000:.0f} ms, interleaved, medians",
            ),
            Result(
                metric=f"memory of {sizes[1]} MB in and out, MB",
                value=round(large, 1),
                goal="≤ 64",
                ok=large <= 64,
                note=f"{small:.1f} MB for a file of {sizes[0]} MB",
            ),
            Result(
                metric=f"memory of {sizes[1]} MB to a bucket and back, MB",
                value=round(bucket, 1),
                goal="≤ 64",
                ok=bucket <= 64,
                note="multipart, moto_server on loopback",
            ),
        ],
        options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
