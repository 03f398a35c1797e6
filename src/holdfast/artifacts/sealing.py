"""How a content becomes the bytes of a blob: in blocks, compressed and encrypted.

A blob is a header of 32 bytes and frames. The header has a magic number, flags, the id of the
key and a random salt. A frame is four bytes (the highest bit: compressed; the rest: how many
bytes follow) and a block of at most one megabyte of content; a frame without content is the
last one, so that a blob that was cut short is noticed. Every block is bounded, so memory is.

Encryption is AES-256-GCM with a key of its own for each blob, derived (HKDF-SHA256) from the
key of the settings, the salt and the tenant. Header, tenant, number and kind of each frame are
additional data: frames cannot be changed, exchanged, left out, or read as another tenant's.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.artifacts.keys import ArtifactKey, KeyRing, no_keys
from holdfast.errors import ArtifactDamaged, ArtifactKeyMissing, MissingExtra, SchemaTooNew
from holdfast.ids import make_random_token

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC: Final = b"HFB1"
HEADER_BYTES: Final = 32
BLOCK_BYTES: Final = 1024 * 1024
COMPRESS_ABOVE: Final = 4 * 1024
_MOST_FRAME_BYTES: Final = BLOCK_BYTES + 64 * 1024
_LEVEL: Final = 3
_ENCRYPTED: Final = 1
_PLAIN_KEY: Final = bytes(8)
_COMPRESSED: Final = 1 << 31


class BlobHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first bytes of a blob."""

    flags: int
    key_id: bytes
    salt: bytes

    @property
    def is_encrypted(self) -> bool:
        """Whether a key is needed."""
        return bool(self.flags & _ENCRYPTED)

    def pack(self) -> bytes:
        """Return the header as it is stored."""
        return MAGIC + bytes([self.flags, 0, 0, 0]) + self.key_id + self.salt


def parse_header(data: bytes, what: str) -> BlobHeader:
    """Read the header of a blob.

    Raises:
        ArtifactDamaged: it is none.
        SchemaTooNew: a newer Holdfast wrote it.
    """
    if len(data) < HEADER_BYTES or data[:3] != MAGIC[:3]:
        raise ArtifactDamaged(what=what, detail="its first bytes are not those of a blob")
    if data[:4] != MAGIC or data[4] & ~_ENCRYPTED or data[5:8] != bytes(3):
        raise SchemaTooNew(what=f"the blob {what}", found=data[3:8].hex(), known=MAGIC[3:].hex())
    return BlobHeader(flags=data[4], key_id=data[8:16], salt=data[16:HEADER_BYTES])


class Sealer:
    """Turns a content into the bytes of a blob, piece by piece; counts and hashes it."""

    def __init__(self, tenant: str, key: ArtifactKey | None, *, compresses: bool) -> None:
        """Seal for a tenant, with a key if given.

        Raises:
            MissingExtra: the package that encrypts is not installed.
        """
        header = BlobHeader(
            flags=_ENCRYPTED if key else 0,
            key_id=key.id if key else _PLAIN_KEY,
            salt=bytes.fromhex(make_random_token(16)),
        )
        self._head = header.pack()
        self._cipher = make_cipher(key, header, tenant) if key else None
        self._tenant = tenant
        self._compress = _make_compressor() if compresses else None
        self._hash = hashlib.sha256()
        self._rest = bytearray()
        self._frames = 0
        self.size = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of what was added so far."""
        return self._hash.hexdigest()

    def add(self, data: bytes) -> bytes:
        """Take bytes of the content; return bytes of the blob, perhaps none yet."""
        self.hash(data)
        return self.seal(data)

    def hash(self, data: bytes) -> None:
        """Do the one half of `add`; a second thread may do the other."""
        self._hash.update(data)

    def seal(self, data: bytes) -> bytes:
        """Do the other half of `add`: return bytes of the blob, perhaps none yet."""
        self.size += len(data)
        rest = self._rest
        if len(rest) + len(data) < BLOCK_BYTES:
            rest += data
            return b""
        view, sealed = memoryview(data), []
        if rest:
            missing = BLOCK_BYTES - len(rest)
            rest += view[:missing]
            view = view[missing:]
            sealed.append(self._frame(bytes(rest)))
            rest.clear()
        while len(view) >= BLOCK_BYTES:
            sealed.append(self._frame(view[:BLOCK_BYTES]))
            view = view[BLOCK_BYTES:]
        rest += view
        return b"".join(sealed)

    def finish(self) -> bytes:
        """Return the last bytes of the blob."""
        last = self._frame(bytes(self._rest)) if self._rest else b""
        self._rest.clear()
        return last + self._seal(b"", 0, is_last=True)

    def _frame(self, block: bytes | memoryview) -> bytes:
        if self._compress is not None and self.size > COMPRESS_ABOVE:
            smaller = self._compress(block)
            # A block that hardly shrinks is quicker to read as it is.
            if len(smaller) < len(block) * 0.95:
                return self._seal(smaller, _COMPRESSED)
        return self._seal(bytes(block), 0)

    def _seal(self, block: bytes, kind: int, *, is_last: bool = False) -> bytes:
        start = self._head if self._frames == 0 else b""
        if self._cipher is not None:
            extra = frame_data(self._head, self._tenant, kind)
            block = self._cipher.encrypt(frame_nonce(self._frames, is_last), block, extra)
        self._frames += 1
        return start + (kind | len(block)).to_bytes(4) + block


class Unsealer:
    """Turns the bytes of a blob back into its content, piece by piece, and checks it.

    `finish` returns only if the content is whole, of the size and digest that it must have.
    """

    def __init__(self, tenant: str, digest: str, size: int | None, keys: KeyRing = no_keys) -> None:
        """Expect this content; a `size` of `None` is not checked."""
        self._tenant = tenant
        self._digest = digest
        self._wanted = size
        self._keys = keys
        self._hash = hashlib.sha256()
        self._input = bytearray()
        self._head = b""
        self._cipher: AESGCM | None = None
        self._frames = 0
        self._is_over = False
        self.size = 0

    def add(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the blob; yield the blocks of content that they complete.

        Raises:
            ArtifactDamaged: the bytes are not what was stored.
            ArtifactKeyMissing: they are encrypted with a key that is not in the settings.
            MissingExtra: the package that decrypts or decompresses is not installed.
        """
        self._input += data
        place = 0
        if not self._head:
            if len(self._input) < HEADER_BYTES:
                return
            self._begin(bytes(self._input[:HEADER_BYTES]))
            place = HEADER_BYTES
        while len(self._input) - place >= 4:
            head = int.from_bytes(self._input[place : place + 4])
            length = head & ~_COMPRESSED
            if self._is_over or length > _MOST_FRAME_BYTES:
                raise self._make_damage("it holds bytes that were not written with it")
            if len(self._input) - place - 4 < length:
                break
            frame = bytes(self._input[place + 4 : place + 4 + length])
            place += 4 + length
            block = self._open(frame, head & _COMPRESSED)
            if block:
                self._count(block)
                yield block
        del self._input[:place]

    def finish(self) -> None:
        """Return if everything is there.

        Raises:
            ArtifactDamaged: something is missing, or it is not the content that was asked for.
        """
        if not self._is_over or self._input:
            raise self._make_damage("it was cut short")
        if self._wanted not in (None, self.size):
            raise self._make_damage(f"it has {self.size} bytes, not {self._wanted}")
        if self._hash.hexdigest() != self._digest:
            raise self._make_damage("its SHA-256 is another one")

    def _begin(self, head: bytes) -> None:
        header = parse_header(head, self._digest)
        self._head = head
        if header.is_encrypted:
            key = self._keys.find(header.key_id)
            if key is None:
                raise ArtifactKeyMissing(what=self._digest, key_id=header.key_id.hex())
            self._cipher = make_cipher(key, header, self._tenant)

    def _open(self, frame: bytes, kind: int) -> bytes:
        if self._cipher is None:
            is_last = not frame
        else:
            is_last = len(frame) == _TAG_BYTES
            frame = self._decrypt(frame, kind, is_last=is_last)
        self._frames += 1
        self._is_over = is_last
        return self._decompress(frame) if kind else frame

    def _decrypt(self, frame: bytes, kind: int, *, is_last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded by the cipher

        assert self._cipher is not None
        extra = frame_data(self._head, self._tenant, kind)
        try:
            return self._cipher.decrypt(frame_nonce(self._frames, is_last), frame, extra)
        except InvalidTag:
            raise self._make_damage("it was changed, or belongs to another tenant") from None

    def _decompress(self, frame: bytes) -> bytes:
        zstd = load_zstandard()
        try:
            block: bytes = zstd.ZstdDecompressor().decompress(frame, max_output_size=BLOCK_BYTES)
        except zstd.ZstdError:
            raise self._make_damage("a block cannot be decompressed") from None
        if not 0 < len(block) <= BLOCK_BYTES:
            raise self._make_damage("a block has a size that none has")
        return block

    def _count(self, block: bytes) -> None:
        self._hash.update(block)
        self.size += len(block)
        if self._wanted is not None and self.size > self._wanted:
            raise self._make_damage(f"it has more than {self._wanted} bytes")

    def _make_damage(self, detail: str) -> ArtifactDamaged:
        return ArtifactDamaged(what=self._digest, detail=detail)


_TAG_BYTES: Final = 16


def frame_nonce(number: int, is_last: bool) -> bytes:
    """Return the nonce of a frame: its number, and whether it is the last."""
    return number.to_bytes(11) + bytes([is_last])


def frame_data(head: bytes, tenant: str, kind: int) -> bytes:
    """Return the additional data of a frame."""
    return head + tenant.encode() + b"\0" + bytes([bool(kind)])


def make_cipher(key: ArtifactKey, header: BlobHeader, tenant: str) -> AESGCM:
    """Return the cipher of one blob.

    Raises:
        MissingExtra: the package that encrypts is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            what="Encryption of artifacts", package="cryptography", extra="artifacts"
        ) from error
    info = b"holdfast artifact\0" + tenant.encode()
    derived = HKDF(algorithm=SHA256(), length=32, salt=header.salt, info=info).derive(key.secret)
    return AESGCM(derived)


def load_zstandard() -> ModuleType:
    """Return the package that compresses.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            what="Compression of artifacts", package="zstandard", extra="artifacts"
        ) from error
    return zstandard


@functools.cache
def can_compress() -> bool:
    """Say whether contents can be compressed here; without it they are kept as they are."""
    try:
        load_zstandard()
    except MissingExtra:
        return False
    return True


def _make_compressor() -> Callable[[bytes | memoryview], bytes]:
    compress: Callable[[bytes | memoryview], bytes] = (
        load_zstandard().ZstdCompressor(level=_LEVEL).compress
    )
    return compress


__all__ = [
    "BLOCK_BYTES",
    "COMPRESS_ABOVE",
    "HEADER_BYTES",
    "BlobHeader",
    "Sealer",
    "Unsealer",
    "can_compress",
    "parse_header",
]
