"""Images, files and audio in a message: by path, bytes or address.

agent.run_sync(["What is on this picture?", Image("cat.png")])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

from holdfast.errors import UsageError
from holdfast.messages.parts import FilePart, TextPart

LARGEST_MEDIA: Final = 50 * 1024 * 1024
"""No provider takes more in one request."""
InputKind: TypeAlias = Literal["text", "image", "audio", "file"]
_ADDRESSES: Final = ("https://", "http://", "data:", "artifact:")
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)


class MediaContent:
    """Something in a message that is no text: `Image`, `Audio` or `File`.

    `source` is a path, the bytes, or an address (`https:`, `data:`, `artifact:ID`). An address is
    fetched by the provider, so the machine that asks never opens it. The media type follows from
    the content or the name unless given.
    """

    kind: ClassVar[str] = "file"
    """What the media type has to begin with, where it is not any."""

    def __init__(
        self, source: str | os.PathLike[str] | bytes, *, media_type: str = "", name: str = ""
    ) -> None:
        """Keep what was given; a path is read by `to_part`.

        Raises:
            UsageError: it is neither a path, nor bytes, nor an address.
        """
        given: object = source
        if not isinstance(given, str | bytes | os.PathLike) or not source:
            raise UsageError(
                detail=f"{type(self).__name__} takes a path, bytes or an address, not {given!r:.80}"
            )
        self.source = source
        self.media_type = media_type
        self.name = name

    def to_part(self) -> FilePart:
        """Return the part of a message; reads the file if it is a path.

        Raises:
            UsageError: there is no such file, it is empty or too large, or of another kind.
        """
        source, name = self.source, self.name
        if isinstance(source, str) and source.startswith(_ADDRESSES):
            media_type = self.media_type or _guess_by_address(source, self.kind)
            self._check_kind(media_type, source[:80])
            return FilePart(media_type=media_type, name=name, url=source)
        if isinstance(source, bytes):
            data = source
        else:
            path = Path(source).expanduser()
            data, name = _read(path), name or path.name
        if not data or len(data) > LARGEST_MEDIA:
            size = f"{len(data):,} bytes; it is 1 to {LARGEST_MEDIA:,}"
            raise UsageError(detail=f"{self._describe(name)} has {size}.")
        media_type = self.media_type or recognise_media_type(data, name)
        self._check_kind(media_type, name)
        return FilePart(media_type=media_type, name=name, data=data)

    def _check_kind(self, media_type: str, name: str) -> None:
        if self.kind != "file" and not media_type.startswith(f"{self.kind}/"):
            raise UsageError(
                detail=f"{self._describe(name)} is of the type {media_type}; write File(…) for it, "
                f"or give its media_type."
            )

    def _describe(self, name: str) -> str:
        return f"{type(self).__name__} {name!r}" if name else type(self).__name__

    def __repr__(self) -> str:
        """Show where it comes from, not what is in it."""
        shown = f"{len(self.source)} bytes" if isinstance(self.source, bytes) else self.source
        return f"{type(self).__name__}({str(shown)[:80]!r})"


class Image(MediaContent):
    """A picture: PNG, JPEG, GIF or WebP."""

    kind = "image"


class Audio(MediaContent):
    """Speech or sound: WAV or MP3 with most providers."""

    kind = "audio"


class File(MediaContent):
    """Any other file, such as a PDF; what is text is sent as text."""


UserContent: TypeAlias = str | Sequence[str | MediaContent | TextPart | FilePart]
"""What a run can be asked: a text, or texts and media in the order in which they are read."""


def make_user_content(content: UserContent) -> str | tuple[TextPart | FilePart, ...]:
    """Return what a user says as a text, or as parts where there is more than one; reads files.

    Raises:
        UsageError: there is nothing in it, or something that no message can hold.
    """
    if isinstance(content, str):
        return content
    given: object = content
    if isinstance(given, MediaContent | FilePart | TextPart):
        content = (given,)
    elif not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UsageError(detail=f"A message is a text, or a list of texts and media: {given!r:.80}")
    parts: list[TextPart | FilePart] = []
    for item in content:
        one: object = item
        if isinstance(one, str):
            parts.append(TextPart(text=one))
        elif isinstance(one, MediaContent):
            parts.append(one.to_part())
        elif isinstance(one, TextPart | FilePart):
            parts.append(one)
        else:
            raise UsageError(detail=f"{one!r:.80} is no text, Image, Audio or File.")
    if not parts:
        raise UsageError(detail="A message needs at least one part.")
    return tuple(parts)


def attach_file(path: str | os.PathLike[str], *, name: str = "") -> FilePart:
    """Return a file of this machine as the part of a message, of whatever type it is.

    Raises:
        UsageError: there is no such file, it is empty, or too large.
    """
    return File(os.fspath(path), name=name).to_part()


def find_input_kind(part: FilePart) -> InputKind:
    """Say which kind of input a file is to a model; text files are sent as text."""
    plain = part.media_type.split(";")[0].strip().lower()
    if part.data is not None and (plain.startswith("text/") or plain == "application/json"):
        return "text"
    if plain.startswith("image/"):
        return "image"
    return "audio" if plain.startswith("audio/") else "file"


def recognise_media_type(data: bytes, name: str = "") -> str:
    """Return the media type of a content: by its first bytes, else by its name, else by both."""
    for signature, found in _SIGNATURES:
        if data.startswith(signature):
            return found
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    import mimetypes  # noqa: PLC0415 - it reads files of the machine

    guessed, _ = mimetypes.guess_type(name)
    if guessed:
        return guessed
    try:
        data[:4096].decode()
    except UnicodeDecodeError as error:
        # A character that the cut goes through is no sign of anything.
        if error.start < len(data[:4096]) - 3:
            return "application/octet-stream"
    return "application/octet-stream" if b"\x00" in data[:4096] else "text/plain"


def _guess_by_address(address: str, kind: str) -> str:
    if address.startswith("data:"):
        return address[5:].partition(",")[0].partition(";")[0] or "text/plain"
    import mimetypes  # noqa: PLC0415 - it reads files of the machine

    guessed, _ = mimetypes.guess_type(address.partition("?")[0].partition("#")[0])
    return guessed or {"image": "image/png", "audio": "audio/mpeg"}.get(
        kind, "application/octet-stream"
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_MEDIA + 1)
    except OSError as error:
        raise UsageError(detail=f"{str(path)!r} cannot be read: {error.strerror}.") from error


__all__ = [
    "Audio",
    "File",
    "Image",
    "InputKind",
    "MediaContent",
    "UserContent",
    "attach_file",
    "find_input_kind",
    "make_user_content",
    "recognise_media_type",
]
