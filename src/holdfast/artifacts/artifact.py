"""Artifacts as data: what is known of a file that an agent, a tool or a person left."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Literal, TypeAlias

import msgspec

from holdfast.errors import UsageError

ArtifactKind: TypeAlias = Literal["agent_output", "tool_result", "user_input", "system", "custom"]
ArtifactScope: TypeAlias = Literal["session", "user", "project", "tenant"]
Access: TypeAlias = Literal["read", "write", "admin"]

LONGEST_NAME = 255
MOST_TAGS = 64
LONGEST_TAG = 100
MOST_METADATA_BYTES = 16 * 1024
LONGEST_MEDIA_TYPE = 127
_DIGEST_CHARS = 64


class ArtifactOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said about an artifact when it is saved.

    `scope` says whose it is and who finds it: the session, its user, its project, or everybody
    of the tenant. `ttl_s` removes it by retention after so many seconds; `None` leaves that to
    the settings. `sha256`, where given, is what the content must have.
    """

    media_type: str = ""
    kind: ArtifactKind = "custom"
    tags: tuple[str, ...] = ()
    scope: ArtifactScope | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    ttl_s: float | None = None
    sha256: str = ""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a file: what it is called, what it is, whose it is, where it came from.

    `digest` is the SHA-256 of the content, which is its address. `previous` is the id of the
    version before, "" for the first. `session_id` is "" unless it belongs to a session.
    """

    id: str
    name: str
    digest: str
    size: int
    media_type: str
    kind: ArtifactKind
    tags: tuple[str, ...]
    scope: ArtifactScope
    scope_id: str
    tenant: str
    owner: str
    version: int
    previous: str
    time: float
    session_id: str = ""
    run_id: str = ""
    call_id: str = ""
    expires_at: float = 0.0
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class ArtifactFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which artifacts: all that is given must hold.

    `name` is a part of the name, in any case; `since` and `until` are seconds since the epoch;
    sizes are bytes. Without `has_old_versions` only the newest version of each name counts.
    """

    name: str = ""
    tag: str = ""
    kind: ArtifactKind | None = None
    scope: ArtifactScope | None = None
    session_id: str = ""
    media_type: str = ""
    since: float | None = None
    until: float | None = None
    min_size: int | None = None
    max_size: int | None = None
    has_old_versions: bool = False


class ArtifactPage(msgspec.Struct, frozen=True, kw_only=True):
    """Artifacts, newest first; `next_cursor` continues, "" at the end."""

    items: tuple[Artifact, ...]
    next_cursor: str = ""


def check_name(name: object) -> str:
    """Return a name that is safe to show and to use as the last part of a path.

    A name is text of at most 255 bytes. It may look like a path inside a folder (`plots/a.png`),
    but never leaves it, and never holds what a terminal or a file system takes for something
    else.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(detail="An artifact needs a name.")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise UsageError(detail="The name of an artifact holds half a character.") from None
    if len(raw) > LONGEST_NAME:
        raise UsageError(detail=f"The name of an artifact has at most {LONGEST_NAME} bytes.")
    # Cc control, Cf invisible and direction marks, Zl/Zp line ends, Cs/Co/Cn no characters.
    if any(unicodedata.category(one) in _UNSEEN for one in name):
        raise UsageError(
            detail="The name of an artifact holds a character that cannot be seen, such as a line "
            "end or a mark of direction."
        )
    parts = name.replace("\\", "/").split("/")
    if any(part in ("", ".", "..") or part != part.strip() for part in parts):
        raise UsageError(
            detail=f"{name!r} cannot be the name of an artifact: it must not begin or end with a "
            "slash or a space, nor leave its folder with `..`."
        )
    if len(parts[0]) == 2 and parts[0][1] == ":":
        raise UsageError(detail=f"{name!r} names a drive, not an artifact.")
    return name


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def check_options(options: ArtifactOptions) -> ArtifactOptions:
    """Return options that can be kept: bounded, and of the right form.

    Raises:
        UsageError: a tag, the media type, the metadata or the digest is not.
    """
    try:
        options = msgspec.convert(msgspec.to_builtins(options), ArtifactOptions)
        data = msgspec.json.encode(options)
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(detail=f"The options of an artifact cannot be kept: {error}") from error
    if len(options.tags) > MOST_TAGS:
        raise UsageError(detail=f"An artifact has at most {MOST_TAGS} tags.")
    for tag in options.tags:
        if not 0 < len(tag) <= LONGEST_TAG or any(
            unicodedata.category(one) in _UNSEEN for one in tag
        ):
            raise UsageError(
                detail=f"A tag has 1 to {LONGEST_TAG} characters, all of which can be seen."
            )
    if len(msgspec.json.encode(options.metadata)) > MOST_METADATA_BYTES:
        raise UsageError(
            detail=f"The metadata of an artifact has at most {MOST_METADATA_BYTES >> 10} KB; save "
            "what is larger as an artifact of its own."
        )
    if options.media_type and not _compile_media_type().fullmatch(options.media_type):
        raise UsageError(detail=f"{options.media_type[:80]!r} is no media type such as text/plain.")
    if options.ttl_s is not None and not 0 < options.ttl_s < float("inf"):
        raise UsageError(detail="`ttl_s` is a number of seconds above zero.")
    if options.sha256:
        check_digest(options.sha256)
    return options


@functools.cache
def _compile_media_type() -> re.Pattern[str]:
    token = r"[A-Za-z0-9!#$&^_.+-]{1,63}"
    return re.compile(rf"{token}/{token}(?:; ?[A-Za-z0-9=\"._ -]{{1,100}})?")


def check_digest(digest: object) -> str:
    """Return a SHA-256 as 64 hexadecimal characters in lower case.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(digest, str) or not _compile_hex().fullmatch(digest):
        raise UsageError(detail="A digest is a SHA-256 as 64 hexadecimal characters.")
    return digest


@functools.cache
def _compile_hex() -> re.Pattern[str]:
    return re.compile(rf"[0-9a-f]{{{_DIGEST_CHARS}}}")


def guess_media_type(name: str, head: bytes) -> str:
    """Return what a file probably is, by its first bytes, then by the end of its name."""
    for start, kind in _MAGIC:
        if head.startswith(start):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    import mimetypes  # noqa: PLC0415 - reads files of the system; only where nothing was said

    guessed = mimetypes.guess_type(name, strict=True)[0]
    if guessed:
        return guessed
    if b"\0" in head:
        return "application/octet-stream"
    try:
        head[: -3 if len(head) > 3 else None].decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
