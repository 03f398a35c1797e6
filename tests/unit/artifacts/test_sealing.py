"""Contents as blobs: compressed, encrypted, bound to their tenant, never trusted."""

from __future__ import annotations

import hashlib
import sys

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.artifacts import ArtifactKey, KeyRing, Sealer, Unsealer, parse_key
from holdfast.artifacts.sealing import BLOCK_BYTES, can_compress
from holdfast.errors import (
    ArtifactDamaged,
    ArtifactKeyMissing,
    ConfigError,
    MissingExtra,
    SchemaTooNew,
)

KEY, OTHER = ArtifactKey(b"k" * 32), ArtifactKey(b"o" * 32)
RING = KeyRing(active=KEY)


def seal(data: bytes, key: ArtifactKey | None = None, *, tenant: str = "acme", step: int = 10**9):
    sealer = Sealer(tenant, key, compresses=True)
    parts = [sealer.add(data[at : at + step]) for at in range(0, len(data), step)]
    return b"".join([*parts, sealer.finish()])


def unseal(blob: bytes, data: bytes, *, tenant: str = "acme", keys: KeyRing = RING, step=10**9):
    unsealer = Unsealer(tenant, hashlib.sha256(data).hexdigest(), len(data), keys)
    found = [
        piece for at in range(0, len(blob), step) for piece in unsealer.add(blob[at : at + step])
    ]
    unsealer.finish()
    return b"".join(found)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 3 * BLOCK_BYTES),
    st.booleans(),
    st.integers(1, 2 * BLOCK_BYTES),
    st.integers(1, 2 * BLOCK_BYTES),
    st.booleans(),
)
def test_any_content_in_any_pieces_comes_back(size, is_secret, wide, narrow, is_random):
    data = hashlib.shake_256(b"x").digest(size) if is_random else bytes(size)
    blob = seal(data, KEY if is_secret else None, step=max(wide, 5_000))
    assert unseal(blob, data, step=max(narrow, 5_000)) == data


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_a_blob_that_was_changed_anywhere_is_refused(data, is_secret):
    content = b"some content " * 1_000
    blob = seal(content, KEY if is_secret else None)
    place = data.draw(st.integers(0, len(blob) - 1))
    changed = (
        blob[:place] + bytes([blob[place] ^ data.draw(st.integers(1, 255))]) + blob[place + 1 :]
    )
    # The salt of what is not encrypted and the id of no key mean nothing.
    if is_secret or not 8 <= place < 32:
        with pytest.raises((ArtifactDamaged, ArtifactKeyMissing, SchemaTooNew)):
            unseal(changed, content)
    for cut in (blob[:place], blob + blob[place:], blob + b"\0"):
        with pytest.raises(ArtifactDamaged):
            unseal(cut, content)


def test_the_blob_of_one_tenant_cannot_be_read_as_anothers():
    blob = seal(b"secret", KEY)
    assert b"secret" not in blob
    with pytest.raises(ArtifactDamaged):
        unseal(blob, b"secret", tenant="other")


def test_frames_cannot_be_exchanged_or_left_out():
    data = hashlib.shake_256(b"x").digest(3 * BLOCK_BYTES)
    blob = seal(data, KEY)
    frame = 4 + BLOCK_BYTES + 16
    head, one, two = blob[:32], blob[32 : 32 + frame], blob[32 + frame : 32 + 2 * frame]
    rest = blob[32 + 2 * frame :]
    for forged in (head + two + one + rest, head + one + rest, head + one + one + two + rest):
        with pytest.raises(ArtifactDamaged):
            unseal(forged, data)


def test_a_key_that_is_not_known_is_named():
    blob = seal(b"secret", KEY)
    for keys in (KeyRing(), KeyRing(active=OTHER)):
        with pytest.raises(ArtifactKeyMissing) as missing:
            unseal(blob, b"secret", keys=keys)
        assert missing.value.context["key_id"] == KEY.id.hex()
    assert unseal(blob, b"secret", keys=KeyRing(active=OTHER, former=KEY)) == b"secret"


def test_the_same_content_is_never_sealed_alike_twice():
    assert seal(b"x", KEY) != seal(b"x", KEY)


def test_a_block_that_unpacks_to_more_than_a_block_is_refused():
    bomb = zstandard.ZstdCompressor().compress(bytes(100 * BLOCK_BYTES))
    blob = seal(b"")[:32] + (len(bomb) | 1 << 31).to_bytes(4) + bomb + bytes(4)
    with pytest.raises(ArtifactDamaged):
        unseal(blob, bytes(100 * BLOCK_BYTES))


@pytest.mark.parametrize("text", ["", "x", "AAAA", "!" * 44, "A" * 44])
def test_what_is_no_key_is_refused_without_repeating_it(text):
    with pytest.raises(ConfigError) as refused:
        parse_key(text, "HOLDFAST_ARTIFACT_KEY")
    assert not text or f" {text} " not in f" {refused.value} "
    assert "k" * 32 not in repr(KEY)


def test_without_the_extra_contents_are_kept_as_they_are_and_keys_say_what_is_missing(monkeypatch):
    packed = seal(b"text " * 10_000)
    for name in [
        one for one in sys.modules if one.partition(".")[0] in ("zstandard", "cryptography")
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    can_compress.cache_clear()
    try:
        assert not can_compress()
        sealer = Sealer("acme", None, compresses=False)
        plain = sealer.add(b"text " * 10_000) + sealer.finish()
        assert unseal(plain, b"text " * 10_000) == b"text " * 10_000
        for broken in (lambda: Sealer("acme", KEY, compresses=False), lambda: unseal(packed, b"")):
            with pytest.raises(MissingExtra) as missing:
                broken()
            assert missing.value.context["extra"] == "artifacts"
    finally:
        can_compress.cache_clear()
