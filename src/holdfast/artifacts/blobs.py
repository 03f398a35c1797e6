"""What a store of blobs must do: keep bytes under a key, whole or not at all.

A store knows nothing of names, versions, rights or keys to decrypt; the journal does. The
conformance suite `holdfast.testing.ArtifactBackendConformance` says precisely what is expected.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from holdfast.artifacts.artifact import check_digest
from holdfast.errors import UsageError


class BlobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A blob that is there, and how many bytes it takes."""

    key: str
    size: int


class BlobUpload(Protocol):
    """Bytes on their way into a store, not published yet."""

    async def write(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises:
            StorageError: they could not be kept; what was there before is as it was.
        """
        ...

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the bytes be the blob of this key: whole, durable, in one step.

        A blob that is there already stays, unless it `replaces` it; can be repeated, and the
        bytes stay at hand until `discard`.

        Raises:
            StorageError: it could not; what was there before is as it was.
        """
        ...

    async def discard(self) -> None:
        """Let go of the bytes; what was published stays."""
        ...


class BlobStore(Protocol):
    """The narrow waist between artifacts and whatever keeps their bytes."""

    async def open(self) -> None:
        """Prepare the store; can be repeated."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...

    async def claim(self, mark: str) -> str:
        """Mark the place, if it has no mark yet, and return the mark that it has."""
        ...

    def begin(self, name: str) -> BlobUpload:
        """Return an upload; its name tells who made it, for those who clean up."""
        ...

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        ...

    def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob in pieces of a megabyte or so.

        Raises:
            BlobMissing: there is none.
        """
        ...

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs; those that are not there are left out."""
        ...

    def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once, in any order."""
        ...

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that were begun and not let go of."""
        ...

    async def remove_upload(self, name: str) -> None:
        """Let go of an upload whose process is gone."""
        ...


def make_blob_key(tenant: str, digest: str) -> str:
    """Return the key of a content: what is the same is kept once, for each tenant."""
    return f"{tenant}/{digest}"


def split_key(key: str) -> tuple[str, str] | None:
    """Return tenant and digest of a key, `None` for one that is none of ours."""
    tenant, mark, digest = key.partition("/")
    try:
        return (tenant, check_digest(digest)) if mark and tenant else None
    except UsageError:
        return None


__all__ = ["BlobInfo", "BlobStore", "BlobUpload", "make_blob_key", "split_key"]
