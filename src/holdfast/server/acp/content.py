"""What an editor sends with a prompt, as parts of a message of ours."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from acp import RequestError, schema

from holdfast.messages import FilePart, TextPart

_MOST_BLOCKS: Final = 200
_MOST_TEXT: Final = 1_000_000


def read_blocks(blocks: Sequence[Any]) -> list[TextPart | FilePart]:
    """Return the parts of a prompt: texts, images, sounds, files and names of files.

    Raises:
        RequestError: it is empty or too long, or its data cannot be read.
    """
    if not blocks or len(blocks) > _MOST_BLOCKS:
        raise _make_wrong(f"a prompt has 1 to {_MOST_BLOCKS} parts")
    parts = [_read_block(block) for block in blocks]
    if sum(len(part.text) for part in parts if isinstance(part, TextPart)) > _MOST_TEXT:
        raise _make_wrong(f"a prompt has at most {_MOST_TEXT} characters")
    return parts


def _read_block(block: Any) -> TextPart | FilePart:  # noqa: ANN401 - a union of the protocol
    if isinstance(block, schema.TextContentBlock):
        return TextPart(text=block.text)
    if isinstance(block, schema.ImageContentBlock | schema.AudioContentBlock):
        return FilePart(media_type=block.mime_type, data=_decode(block.data))
    if isinstance(block, schema.ResourceContentBlock):
        return TextPart(text=f"[{block.name}]({find_path(block.uri)})")
    resource = block.resource
    if isinstance(resource, schema.TextResourceContents):
        place = find_path(resource.uri)
        return TextPart(text=f'<file path="{place}">\n{resource.text}\n</file>')
    media = resource.mime_type or "application/octet-stream"
    name = find_path(resource.uri).rpartition("/")[2]
    return FilePart(media_type=media, name=name, data=_decode(resource.blob))


def find_path(uri: str) -> str:
    """Return the path of a `file:` address; other addresses stay as they are."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _make_wrong("the data of a part is no base64") from None


def _make_wrong(detail: str) -> RequestError:
    return RequestError.invalid_params({"detail": detail})


__all__ = ["find_path", "read_blocks"]
