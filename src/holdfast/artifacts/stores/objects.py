"""Blobs in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure.

Up to six megabytes go up in one request. What is larger goes up in parts (multipart) under
`incoming/`, is complete there or not at all, and is then copied to its key by the bucket
itself, because the key is the hash of a content that is known only at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.artifacts.blobs import BlobInfo, split_key
from holdfast.artifacts.stores.files import check_blob_key, check_upload_name, make_missing
from holdfast.errors import MissingExtra, StorageError, StorageReadOnly, StorageUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PART_BYTES = 6 * 1024 * 1024
"""How much a part has, and how much goes up without parts. 10,000 parts are 60 GB."""
_PARTS_AT_ONCE = 2
_PIECES_WAITING = 2
_PIECE = 1024 * 1024
_MOST_RETRIES = 4
_RETRY_S = 30.0


class ObjectBlobs:
    """Keeps blobs below a prefix of a bucket."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        """Use this client of obstore; `place` is what errors call it."""
        self._store = store
        self.place = place

    async def open(self) -> None:
        """Nothing to prepare: the first request says what is wrong."""

    async def close(self) -> None:
        """Nothing is held."""

    async def claim(self, mark: str) -> str:
        """Mark the place, if it has no mark yet, and return the mark that it has."""
        import obstore  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        with self.translate_errors():
            with contextlib.suppress(FileNotFoundError):
                return await self._read_mark()
            with contextlib.suppress(AlreadyExistsError):
                await obstore.put_async(self._store, "PLACE", f"{mark}\n".encode(), mode="create")
            return await self._read_mark()

    def begin(self, name: str) -> ObjectUpload:
        """Return an upload."""
        return ObjectUpload(self, self._store, f"incoming/{check_upload_name(name)}")

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        import obstore  # noqa: PLC0415 - an extra

        with self.translate_errors():
            try:
                return (await obstore.head_async(self._store, make_object_path(key)))["size"]
            except FileNotFoundError:
                return None

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob."""
        import obstore  # noqa: PLC0415 - an extra

        with self.translate_errors():
            try:
                found = await obstore.get_async(self._store, make_object_path(key))
            except FileNotFoundError:
                raise make_missing(key) from None
            async for piece in found.stream(min_chunk_size=_PIECE):
                yield bytes(piece)

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs."""
        await self.remove_paths([make_object_path(key) for key in keys])

    async def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once."""
        import obstore  # noqa: PLC0415 - an extra

        with self.translate_errors():
            async for page in obstore.list(self._store, "blobs", chunk_size=500):
                for found in page:
                    key = _find_key(found["path"])
                    if key is not None:
                        yield BlobInfo(key=key, size=found["size"])

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that are complete, but not let go of."""
        import obstore  # noqa: PLC0415 - an extra

        names: list[str] = []
        with self.translate_errors():
            async for page in obstore.list(self._store, "incoming", chunk_size=500):
                names += [found["path"].rpartition("/")[2] for found in page]
        return names

    async def remove_upload(self, name: str) -> None:
        """Remove what an upload left."""
        await self.remove_paths([f"incoming/{name}"])

    async def remove_paths(self, paths: list[str]) -> None:
        """Remove objects; those that are not there are left out."""
        import obstore  # noqa: PLC0415 - an extra

        if paths:
            with self.translate_errors(), contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._store, paths)

    async def _read_mark(self) -> str:
        import obstore  # noqa: PLC0415 - an extra

        found = await obstore.get_async(self._store, "PLACE")
        return bytes(await found.bytes_async()).decode("ascii", "replace").strip()

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn what the bucket says into errors that say what to do."""
        from obstore.exceptions import (  # noqa: PLC0415 - an extra
            BaseError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            detail = f"the credentials do not allow it ({type(error).__name__})"
            raise StorageReadOnly(path=self.place, detail=detail) from error
        except (BaseError, FileNotFoundError, PermissionError) as error:
            raise StorageUnavailable(path=self.place, detail=_shorten_error(error)) from error


class _Abandoned(Exception):
    """What was going up is no longer wanted."""


class ObjectUpload:
    """Bytes on their way up: in memory while they are few, then in parts."""

    def __init__(self, blobs: ObjectBlobs, store: ObjectStore, path: str) -> None:
        """Go up to this path if there are many."""
        self._blobs = blobs
        self._store = store
        self._path = path
        self._start = bytearray()
        self._sending: asyncio.Task[None] | None = None
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_WAITING)
        self._is_sent = False
        self._is_over = False

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        if self._sending is None:
            self._start += data
            if len(self._start) <= PART_BYTES:
                return
            data = bytes(self._start)
            self._start.clear()
            self._sending = asyncio.create_task(self._send())
        for start in range(0, len(data), _PIECE):
            await self._hand_over(data[start : start + _PIECE])

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the bytes be the blob of this key."""
        import obstore  # noqa: PLC0415 - an extra

        if not replaces and await self._blobs.size(key) is not None:
            return
        if self._sending is None:
            with self._blobs.translate_errors():
                data = bytes(self._start)
                await obstore.put_async(
                    self._store, make_object_path(key), data, use_multipart=False
                )
            return
        await self._complete()
        with self._blobs.translate_errors():
            await obstore.copy_async(self._store, self._path, make_object_path(key))

    async def discard(self) -> None:
        """Let go of the bytes; parts that went up are taken back."""
        self._start.clear()
        if self._sending is None:
            return
        if not self._is_sent:
            self._is_over = True
            if self._pieces.full():
                self._pieces.get_nowait()
            self._pieces.put_nowait(b"")
            with contextlib.suppress(StorageError, _Abandoned):
                await self._sending
        await self._blobs.remove_paths([self._path])

    async def _hand_over(self, piece: bytes | None) -> None:
        assert self._sending is not None
        putting = asyncio.ensure_future(self._pieces.put(piece))
        # Sending may have failed, and then nothing is taken from the queue any more.
        await asyncio.wait((putting, self._sending), return_when=asyncio.FIRST_COMPLETED)
        if not putting.done():
            putting.cancel()
            await self._sending

    async def _complete(self) -> None:
        assert self._sending is not None
        if not self._is_sent:
            await self._hand_over(None)
            await self._sending
            self._is_sent = True

    async def _send(self) -> None:
        import obstore  # noqa: PLC0415 - an extra

        with self._blobs.translate_errors():
            await obstore.put_async(
                self._store,
                self._path,
                self._yield_waiting(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    async def _yield_waiting(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            if self._is_over:
                # obstore then aborts the upload, so that no parts stay in the bucket.
                raise _Abandoned
            yield piece


def make_object_path(key: str) -> str:
    """Return the path of a blob below the prefix."""
    tenant, digest = check_blob_key(key)
    return f"blobs/{tenant}/{digest}"


def _find_key(path: str) -> str | None:
    parts = path.split("/")
    key = f"{parts[-2]}/{parts[-1]}" if len(parts) == 3 else ""
    return key if split_key(key) is not None else None


def _shorten_error(error: Exception) -> str:
    """Return what a bucket said, in one line; the whole dump of obstore is of no use here."""
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__


def load_obstore(scheme: str) -> Any:  # noqa: ANN401 - a module
    """Return the package that speaks to buckets.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import obstore.store  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            what=f"Artifacts in {scheme}://", package="obstore", extra="s3"
        ) from error
    return obstore.store


def retry_options() -> Any:  # noqa: ANN401 - obstore's own mapping
    """Return how often and how long a request is repeated before it fails."""
    from datetime import timedelta  # noqa: PLC0415 - only here

    return {"max_retries": _MOST_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}


__all__ = ["PART_BYTES", "ObjectBlobs", "ObjectUpload", "load_obstore", "retry_options"]
