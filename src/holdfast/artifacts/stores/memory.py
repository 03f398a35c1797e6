"""Blobs that live as long as the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from holdfast.artifacts.blobs import BlobInfo
from holdfast.artifacts.stores.files import check_blob_key, check_upload_name, make_missing

_PIECE = 1024 * 1024


class MemoryBlobs:
    """Keeps blobs in memory."""

    def __init__(self) -> None:
        """Start empty."""
        self._blobs: dict[str, bytes] = {}
        self._uploads: dict[str, MemoryUpload] = {}
        self._mark = ""

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Keep what is there for the next that opens it."""

    async def claim(self, mark: str) -> str:
        """Mark the place, if it has no mark yet, and return the mark that it has."""
        self._mark = self._mark or mark
        return self._mark

    def begin(self, name: str) -> MemoryUpload:
        """Return an upload."""
        upload = MemoryUpload(check_upload_name(name), self._blobs, self._uploads)
        return upload

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        found = self._blobs.get("/".join(check_blob_key(key)))
        return None if found is None else len(found)

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob."""
        found = self._blobs.get("/".join(check_blob_key(key)))
        if found is None:
            raise make_missing(key)
        for start in range(0, len(found), _PIECE):
            yield found[start : start + _PIECE]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs."""
        for key in keys:
            self._blobs.pop("/".join(check_blob_key(key)), None)

    async def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once."""
        for key, data in tuple(self._blobs.items()):
            yield BlobInfo(key=key, size=len(data))

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that were begun."""
        return list(self._uploads)

    async def remove_upload(self, name: str) -> None:
        """Let go of an upload."""
        self._uploads.pop(name, None)


class MemoryUpload:
    """Bytes that are not published yet."""

    def __init__(
        self, name: str, blobs: dict[str, bytes], uploads: dict[str, MemoryUpload]
    ) -> None:
        """Become one of these blobs."""
        self._name = name
        self._blobs = blobs
        self._uploads = uploads
        self._data = bytearray()

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._uploads[self._name] = self
        self._data += data

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the bytes be the blob of this key."""
        key = "/".join(check_blob_key(key))
        if replaces or key not in self._blobs:
            self._blobs[key] = bytes(self._data)

    async def discard(self) -> None:
        """Let go of the bytes."""
        self._uploads.pop(self._name, None)
        self._data.clear()


__all__ = ["MemoryBlobs", "MemoryUpload"]
