"""Keys of artifacts: the one that encrypts now, and the one before, while files move over."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec

from holdfast.errors import ConfigError

KEY_BYTES: Final = 32


class ArtifactKey(msgspec.Struct, frozen=True):
    """A key of 256 bits; `id` names it in blobs, and says nothing about it."""

    secret: bytes

    def __repr__(self) -> str:
        """Never show the key itself."""
        return f"ArtifactKey({self.id.hex()})"

    @property
    def id(self) -> bytes:
        """Eight bytes that name the key."""
        return hashlib.sha256(b"holdfast artifact key\0" + self.secret).digest()[:8]


class KeyRing(msgspec.Struct, frozen=True, kw_only=True):
    """What encrypts from now on (nothing, without `active`), and what can still be read."""

    active: ArtifactKey | None = None
    former: ArtifactKey | None = None

    def find(self, key_id: bytes) -> ArtifactKey | None:
        """Return the key that a blob names."""
        for key in (self.active, self.former):
            if key is not None and key.id == key_id:
                return key
        return None


no_keys: Final = KeyRing()


def parse_key(text: str, variable: str) -> ArtifactKey:
    """Read a key as it stands in the secrets file: 32 bytes in base64.

    Raises:
        ConfigError: it is none. The message does not repeat it.
    """
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ConfigError(
            detail=f"{variable} must be 32 random bytes in base64, "
            "such as `openssl rand -base64 32` prints."
        )
    return ArtifactKey(secret)


__all__ = ["ArtifactKey", "KeyRing", "no_keys", "parse_key"]
