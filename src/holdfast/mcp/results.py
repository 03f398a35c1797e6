"""What a server answers to a call, as a result of ours."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.mcp.text import make_readable, strip_deceiving
from holdfast.messages import FilePart
from holdfast.tools import ToolContext, ToolResult

_MOST_BLOCKS: Final = 256
_MOST_IMAGES: Final = 8
_MOST_IMAGE_BYTES: Final = 5 * 1024 * 1024
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MOST_WORD: Final = 500


async def to_result(answer: JsonObject, context: ToolContext) -> ToolResult:
    """Return an answer as text for the model, with its images; other data is kept beside it.

    Links are named, never followed. Whatever the answer holds, this gives a result.
    """
    blocks = answer.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    taken = _Taken(context)
    for block in blocks[:_MOST_BLOCKS]:
        await taken.add(block if isinstance(block, dict) else {})
    if len(blocks) > _MOST_BLOCKS:
        taken.texts.append(f"[{len(blocks) - _MOST_BLOCKS} more parts left out]")
    structured = answer.get("structuredContent")
    if structured is not None and not any(_is_text(block) for block in blocks):
        taken.texts.append(
            strip_deceiving(msgspec.json.encode(structured).decode(errors="replace"))
        )
    return ToolResult(
        "\n\n".join(taken.texts),
        metadata={"structured": structured} if structured is not None else {},
        attachments=tuple(taken.images),
        is_error=answer.get("isError") is True,
    )


class _Taken:
    """What was taken from an answer so far."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self.texts: list[str] = []
        self.images: list[FilePart] = []

    async def add(self, block: JsonObject) -> None:
        kind = block.get("type")
        if kind == "text":
            self.texts.append(strip_deceiving(_clean_word(block.get("text"), limit=None)))
        elif kind == "image":
            await self._add_data("image", block.get("mimeType"), block.get("data"))
        elif kind == "audio":
            await self._add_data("audio", block.get("mimeType"), block.get("data"))
        elif kind == "resource":
            resource = block.get("resource")
            await self._add_resource(resource if isinstance(resource, dict) else {})
        elif kind == "resource_link":
            self.texts.append(
                f"[link to {_clean_word(block.get('uri'))}: {_clean_word(block.get('name'))}]"
            )
        else:
            self.texts.append(f"[a part of an unknown kind, {_clean_word(kind)!r}, left out]")

    async def _add_resource(self, resource: JsonObject) -> None:
        uri = _clean_word(resource.get("uri"))
        if isinstance(resource.get("text"), str):
            self.texts.append(f"[{uri}]\n{strip_deceiving(resource['text'])}")
        else:
            await self._add_data(uri, resource.get("mimeType"), resource.get("blob"))

    async def _add_data(self, what: str, media_type: object, data: object) -> None:
        kind = _clean_word(media_type, limit=100).lower() or "application/octet-stream"
        try:
            raw = base64.b64decode(data if isinstance(data, str) else "", validate=True)
        except (binascii.Error, ValueError):
            self.texts.append(f"[{what}, {kind}: its data cannot be read]")
            return
        is_shown = kind in _IMAGES and len(raw) <= _MOST_IMAGE_BYTES
        if is_shown and len(self.images) < _MOST_IMAGES and raw:
            self.images.append(FilePart(media_type=kind, data=raw))
            self.texts.append(f"[{what}, {kind}, {len(raw)} bytes]")
            return
        handle = await self._context.artifacts.save("part", raw, media_type=kind)
        self.texts.append(f"[{what}, {kind}, {len(raw)} bytes: artifact {handle}]")


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and bool(block.get("text"))


def _clean_word(value: object, limit: int | None = _MOST_WORD) -> str:
    if not isinstance(value, str):
        return ""
    return value if limit is None else make_readable(value, limit)


def render_error(text: str, secrets: Iterable[str] = ()) -> str:
    """Return what a server says went wrong, short enough to be shown, without our token."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[token]")
    return " ".join(make_readable(text, 2_000).split())


__all__ = ["render_error", "to_result"]
