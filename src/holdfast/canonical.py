"""Canonical JSON and digests: equal values give equal bytes, everywhere.

The journal's chain, sealed approvals and content addresses all rest on this file,
so its output may never change for a value that was ever stored.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it comes from outside; parse it before it travels further."""

JsonValue: TypeAlias = Any
"""A JSON value of any type, as it comes from outside."""

_encoder = msgspec.json.Encoder(order="deterministic")


def encode_canonical_json(value: object) -> bytes:
    """Encode to JSON with sorted keys and no spaces; structs keep their field order."""
    return _encoder.encode(value)


def hash_sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`."""
    return hash_sha256(encode_canonical_json(value))
