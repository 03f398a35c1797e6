"""The `read` tool: text with line numbers, images, notebooks."""

from __future__ import annotations

import codecs
import difflib
import posixpath
from collections.abc import Iterable, Iterator
from contextlib import aclosing, suppress
from typing import Annotated, BinaryIO

from pydantic import Field

from holdfast.errors import FileMissing, FileUnsuitable, HoldfastError, TellModel
from holdfast.messages import ARTIFACT_SCHEME, FilePart
from holdfast.sandbox import Workspace
from holdfast.tools.builtin.notebook import render_notebook
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.encoding import TextForm, decode_file, is_binary, sniff
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target

MAX_IMAGE_BYTES = 10 * 1024 * 1024
MAX_NOTEBOOK_BYTES = 32 * 1024 * 1024
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024
MAX_OUTPUT_CHARS = 256 * 1024
MAX_LINE_CHARS = 2_000
_SAMPLE = 64 * 1024
# More than a shown line can have, in the longest encoding of a character.
_LINE_BYTES = 4 * (MAX_LINE_CHARS + 2)
_SKIP_BYTES = 1024 * 1024
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@tool(
    effect="read",
    tags=("files",),
    labels=("private",),
    target=make_path_target("file_path"),
    timeout_s=60,
)
async def read(
    file_path: Annotated[str, Field(min_length=1, description="File to read")],
    context: ToolContext,
    offset: Annotated[int, Field(ge=1, description="First line to read, counted from 1")] = 1,
    limit: Annotated[int, Field(ge=1, le=20_000, description="Lines at most")] = 2_000,
) -> ToolResult:
    """Read a file of the workspace.

    Text comes with line numbers. Images are shown as images, notebooks as their cells
    with outputs. Use offset and limit for the rest of a long file. `artifact:ID` instead of a
    path reads an artifact, such as the whole of an output that was cut.
    """
    if file_path.startswith(ARTIFACT_SCHEME):
        return await _read_artifact(context, file_path, offset, limit)
    return await context.look(_read_with_note, context.workspace, file_path, offset, limit)


async def _read_artifact(context: ToolContext, address: str, offset: int, limit: int) -> ToolResult:
    """Read an artifact that the session may reach, by its address."""
    content = bytearray()
    pieces = context.artifacts.stream(address[len(ARTIFACT_SCHEME) :])
    async with aclosing(pieces):
        async for piece in pieces:
            content += piece
            if len(content) > MAX_ARTIFACT_BYTES:
                wanted = "one of at most 64 MB"
                raise FileUnsuitable(path=address, found="a larger artifact", wanted=wanted)
    return await context.look(_show_artifact, bytes(content), address, offset, limit)


def _show_artifact(data: bytes, address: str, offset: int, limit: int) -> ToolResult:
    media_type = _detect_image_type(data[:_SAMPLE])
    if media_type:
        return ToolResult(
            f"{media_type}, {len(data)} bytes",
            title=address,
            metadata={"media_type": media_type, "bytes": len(data)},
            attachments=(FilePart(media_type=media_type, url=address),),
        )
    if is_binary(data[:_SAMPLE]):
        raise FileUnsuitable(path=address, found="a binary file", wanted="text or an image")
    return _number(decode_file(data, address)[0].splitlines(), address, offset, limit)


def _read_with_note(workspace: Workspace, path: str, offset: int, limit: int) -> ToolResult:
    """Read, and name the instructions that hold for the file's own directory, if it has any.

    Those of the session's directory stand in the prompt. These are named and not shown: what
    lies in a subdirectory is a file like others, which the model reads as one.
    """
    result = _read(workspace, path, offset, limit)
    nearest = _find_nearest_instructions(workspace, path)
    if not nearest:
        return result
    note = f"({nearest} has instructions for this directory; read it before you change files here)"
    return ToolResult(
        f"{result.output}\n{note}",
        title=result.title,
        metadata={**result.metadata, "instructions": nearest},
        attachments=result.attachments,
    )


def _find_nearest_instructions(workspace: Workspace, path: str) -> str:
    """The nearest AGENTS.md, or CLAUDE.md, between a file and the top of the workspace."""
    with suppress(HoldfastError):
        found = workspace.stat(path).path
        folder = posixpath.dirname(found)
        while folder and not folder.startswith("/"):
            for name in _INSTRUCTIONS:
                candidate = f"{folder}/{name}"
                with suppress(HoldfastError):
                    if workspace.stat(candidate).kind == "file":
                        is_own = candidate == found or _is_written(workspace, candidate)
                        return "" if is_own else candidate
            folder = posixpath.dirname(folder)
    return ""


def _is_written(workspace: Workspace, path: str) -> bool:
    """Say whether a run has put a file there: it instructs no agent before a user says so."""
    writes = workspace.writes
    return writes is not None and writes.was_written(posixpath.join(workspace.root, path))


def _read(workspace: Workspace, path: str, offset: int, limit: int) -> ToolResult:
    try:
        stream = workspace.open(path)
    except FileMissing:
        near = _list_near(workspace, path)
        if near:
            names = ", ".join(near)
            raise TellModel(f"There is no file {path!r}. Did you mean: {names}?") from None
        raise
    with stream:
        sample = stream.read(_SAMPLE)
        media_type = _detect_image_type(sample)
        if media_type:
            return _read_image(stream, sample, path, media_type)
        if is_binary(sample):
            raise FileUnsuitable(path=path, found="a binary file", wanted="text or an image")
        stream.seek(0)
        if path.endswith(".ipynb"):
            return _render_notebook(stream, path, offset, limit)
        form = sniff(sample)
        if form.encoding.startswith("utf-16"):
            data = _read_whole(stream, MAX_NOTEBOOK_BYTES, path)
            return _number(decode_file(data, path)[0].splitlines(), path, offset, limit)
        return _number(_format_lines(stream, form), path, offset, limit)


def _format_lines(stream: BinaryIO, form: TextForm) -> Iterator[str]:
    """The lines of a file of any size; no line is ever held whole if it is too long."""
    stream.seek(len(form.mark))
    while line := stream.readline(_LINE_BYTES):
        rest = line
        while not rest.endswith(b"\n") and (rest := stream.readline(_SKIP_BYTES)):
            continue  # the end of a line that is too long to be shown whole
        try:
            # Not final: a character that was cut in two at the end is left out.
            text = codecs.getincrementaldecoder(form.encoding)().decode(line)
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        yield text.rstrip("\r\n")


def _number(lines: Iterable[str], path: str, offset: int, limit: int) -> ToolResult:
    shown: list[str] = []
    size = number = 0
    has_more = False
    for number, line in enumerate(lines, start=1):
        if number < offset:
            continue
        if len(shown) == limit or size > MAX_OUTPUT_CHARS:
            has_more = True
            break
        shown.append(f"{number:>6}\t{_cut(line)}")
        size += len(shown[-1])
    last = offset + len(shown) - 1
    if not shown and offset > 1:
        raise TellModel(f"{path!r} has only {number} lines; offset {offset} is behind its end.")
    if not shown:
        shown.append("(the file is empty)")
    elif has_more:
        shown.append(f"(more lines follow; go on with offset={last + 1})")
    return ToolResult(
        "\n".join(shown),
        title=path,
        metadata={"first_line": offset, "last_line": last, "is_truncated": has_more},
    )


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}… (line cut)"


def _detect_image_type(sample: bytes) -> str:
    if sample.startswith(b"RIFF") and sample[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if sample.startswith(magic)), "")


def _read_image(stream: BinaryIO, sample: bytes, path: str, media_type: str) -> ToolResult:
    data = sample + stream.read(MAX_IMAGE_BYTES)
    if len(data) > MAX_IMAGE_BYTES:
        raise FileUnsuitable(
            path=path, found="an image over 10 MB", wanted="a smaller one; scale it down"
        )
    name = posixpath.basename(path)
    return ToolResult(
        f"{media_type}, {len(data)} bytes",
        title=path,
        metadata={"media_type": media_type, "bytes": len(data)},
        attachments=(FilePart(media_type=media_type, name=name, data=data),),
    )


def _render_notebook(stream: BinaryIO, path: str, offset: int, limit: int) -> ToolResult:
    text, _ = decode_file(_read_whole(stream, MAX_NOTEBOOK_BYTES, path), path)
    rendered = render_notebook(text)
    if rendered is None:
        return _number(text.splitlines(), path, offset, limit)
    result = _number(rendered.text.splitlines(), path, offset, limit)
    return ToolResult(
        result.output, title=path, metadata=result.metadata, attachments=rendered.images
    )


def _read_whole(stream: BinaryIO, limit: int, path: str) -> bytes:
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise FileUnsuitable(path=path, found="too large", wanted=f"at most {limit} bytes")
    return data


def _list_near(workspace: Workspace, path: str) -> list[str]:
    """Files in the same directory with a similar name."""
    directory, name = posixpath.split(path)
    with suppress(HoldfastError):
        names = {entry.name.lower(): entry.path for entry in workspace.scandir(directory or ".")}
        return [names[one] for one in difflib.get_close_matches(name.lower(), names, n=3)]
    return []
