"""Sessions with their artifacts, out to one file and in again.

An export is what `holdfast.sessions` writes (a header, then one line per event), followed by the
contents of the session's artifacts in lines of up to a megabyte. One without artifacts has no
such lines. An import is checked as a whole before anything is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from typing import IO, Final

import msgspec

from holdfast.artifacts import (
    ArtifactDeleted,
    ArtifactSaved,
    ArtifactStore,
    BlobUpload,
    Sealer,
    make_blob_key,
)
from holdfast.errors import InvalidImport
from holdfast.ids import make_random_token
from holdfast.journal import Event, Journal
from holdfast.runtime.import_rights import list_import_facts
from holdfast.sessions import Session, SessionManager, export_lines, parse_export

_KINDS: Final = frozenset({ArtifactSaved.kind, ArtifactDeleted.kind})
_PAGE: Final = 500
_LARGEST_LINE: Final = 4 * 1024 * 1024
_LARGEST_HEADER: Final = 4096
_IN_MEMORY: Final = 8 * 1024 * 1024


class ContentLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of the content of an artifact; the last one of each content says so."""

    content: str
    part: int
    data: bytes
    is_last: bool = False


class _Counted(msgspec.Struct, frozen=True):
    events: int


_decoder = msgspec.json.Decoder(ContentLine)


async def export_session(
    journal: Journal, artifacts: ArtifactStore, session_id: str
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of an export, contents of artifacts included, in bounded memory."""
    last = 0
    async for line in export_lines(journal, session_id):
        if not last:
            last = msgspec.json.decode(line, type=_Counted).events
        yield line
    for digest in sorted(_list_contents(await _list_artifact_events(journal, session_id, last))):
        async for line in _read_content_lines(artifacts, digest):
            yield line


async def import_session(
    sessions: SessionManager,
    artifacts: ArtifactStore,
    source: str | os.PathLike[str] | IO[bytes],
    *,
    workspace: str | os.PathLike[str],
    as_new: bool,
    trusts_rules: bool = False,
) -> Session:
    """Bring in an export with its artifacts; nothing is changed unless all of it is sound.

    Rights that it brings are inert unless the caller trusts them: rules that allow are set aside,
    directories that were granted elsewhere are not granted here, and a request for consent that was
    made there counts as used up, answered or not: the call is asked for anew, in the words of this
    machine. What holds back stays. It works in the workspace, or below it. Calls that had begun are
    given up, runs that had not ended go on only when they are asked to, and what was said there
    counts as words of strangers (`untrusted`).

    Raises:
        InvalidImport: the file is no export, is damaged, cut short or was changed.
        AlreadyExists: the session is already here.
    """
    with contextlib.ExitStack() as stack:
        file = await asyncio.to_thread(_opened, source, stack)
        events, contents = await asyncio.to_thread(_split, file, stack)
        wanted = _list_contents(events)
        _check_tenant(events, artifacts.actor.tenant)
        further = []
        if not trusts_rules:
            place = os.fspath(workspace)
            further = list_import_facts(events, workspace=place, as_new=as_new)
        if not wanted and not contents:
            return await sessions.import_events(events, as_new=as_new, further=further)
        if set(contents) != wanted:
            raise InvalidImport(detail="the contents of its artifacts are not all there")
        await artifacts.claim_place()
        uploads: dict[str, BlobUpload] = {}
        try:
            for digest, packed in contents.items():
                uploads[digest] = await _receive(artifacts, digest, packed)
            # Named by the journal before anybody could collect them.
            async with artifacts.services.locks.alone():
                for digest, upload in uploads.items():
                    await upload.publish(make_blob_key(artifacts.actor.tenant, digest))
                return await sessions.import_events(events, as_new=as_new, further=further)
        finally:
            for upload in uploads.values():
                await upload.discard()


def _list_contents(events: list[Event]) -> set[str]:
    """Return the digests of the artifacts that events leave."""
    found: dict[str, str] = {}
    for event in events:
        if event.kind not in _KINDS or event.is_redacted:
            continue
        fact = event.decode()
        if isinstance(fact, ArtifactSaved):
            found[fact.id] = fact.digest
        elif isinstance(fact, ArtifactDeleted):
            found.pop(fact.id, None)
    return set(found.values())


def _check_tenant(events: list[Event], tenant: str) -> None:
    for event in events:
        fact = event.decode() if event.kind == ArtifactSaved.kind else None
        if isinstance(fact, ArtifactSaved) and fact.tenant != tenant:
            raise InvalidImport(detail=f"its artifacts belong to the tenant {fact.tenant!r}")
        if isinstance(fact, ArtifactSaved) and fact.scope != "session":
            # Those of everybody stand in a chain of their own: none comes with a conversation.
            raise InvalidImport(detail=f"an artifact of it belongs to a {fact.scope}")


async def _list_artifact_events(journal: Journal, session_id: str, last: int) -> list[Event]:
    found: list[Event] = []
    after = 0
    while page := await journal.read(session_id, after=after, limit=_PAGE, kinds=_KINDS):
        after = page[-1].session_seq
        found += [event for event in page if event.session_seq <= last]
    return found


async def _read_content_lines(artifacts: ArtifactStore, digest: str) -> AsyncGenerator[bytes, None]:
    number = 0
    async with contextlib.aclosing(artifacts.read_content(digest)) as pieces:
        async for piece in pieces:
            yield _encode_line(ContentLine(content=digest, part=number, data=piece))
            number += 1
    yield _encode_line(ContentLine(content=digest, part=number, data=b"", is_last=True))


def _encode_line(line: ContentLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


async def _receive(artifacts: ArtifactStore, digest: str, packed: IO[bytes]) -> BlobUpload:
    services = artifacts.services
    upload = services.blobs.begin(f"{await services.locks.owner()}-{make_random_token(8)}")
    sealer = Sealer(artifacts.actor.tenant, services.keys.active, compresses=False)
    try:
        while piece := await asyncio.to_thread(packed.read, 1024 * 1024):
            sealed = await asyncio.to_thread(sealer.add, piece)
            if sealed:
                await upload.write(sealed)
        await upload.write(sealer.finish())
        if sealer.digest != digest:
            raise InvalidImport(detail=f"the content {digest} of an artifact was changed")
    except BaseException:
        await upload.discard()
        raise
    return upload


# --- reading the file -----------------------------------------------------------------


def _opened(source: str | os.PathLike[str] | IO[bytes], stack: contextlib.ExitStack) -> IO[bytes]:
    if not isinstance(source, str | os.PathLike):
        return source
    try:
        return stack.enter_context(open(source, "rb"))
    except (OSError, ValueError) as error:
        # ValueError: a path with a null byte.
        detail = getattr(error, "strerror", None) or str(error)
        raise InvalidImport(detail=f"it cannot be read: {detail}") from error


def _split(
    file: IO[bytes], stack: contextlib.ExitStack
) -> tuple[list[Event], dict[str, IO[bytes]]]:
    try:
        lines = _EventLines(file)
        # What only looks like a file of bytes is enough for the parser.
        events = parse_export(lines)  # type: ignore[arg-type]
        return events, dict(_read_contents(file, stack))
    except (OSError, ValueError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InvalidImport(detail=f"it cannot be read: {detail}") from error


class _EventLines:
    """The part of an export that holds its events."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = -1

    def readline(self, size: int = -1) -> bytes:
        """Return the next line of the header and the events; nothing behind them."""
        if self._left == 0:
            return b""
        line = self._file.readline(_LARGEST_HEADER if self._left < 0 else size)
        if self._left < 0:
            try:
                self._left = msgspec.json.decode(line, type=_Counted).events + 1
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                self._left = 1
        self._left -= 1
        return line


def _read_contents(file: IO[bytes], stack: contextlib.ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield each content of an export, unpacked into a file that nobody sees."""
    while line := file.readline(_LARGEST_LINE + 1):
        packed: IO[bytes] = stack.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))
        first = found = _make_content_line(line, "", 0)
        while not found.is_last:
            packed.write(found.data)
            line = file.readline(_LARGEST_LINE + 1)
            found = _make_content_line(line, first.content, found.part + 1)
        packed.seek(0, io.SEEK_SET)
        yield first.content, packed


def _make_content_line(line: bytes, content: str, part: int) -> ContentLine:
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidImport(detail="behind its events is no content of an artifact") from error
    if found.part != part or content not in ("", found.content) or _encode_line(found) != line:
        raise InvalidImport(detail="the content of an artifact is cut short or out of order")
    return found


__all__ = ["export_session", "import_session"]
