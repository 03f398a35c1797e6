"""Files of messages: kept as artifacts, and read back for the model.

A message in the journal names its files (`artifact:ID`); their contents are in the one store of
blobs, once per content. They are read in the name of the session, so that a message can show a
model nothing that a tool of the same session could not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import ArtifactDamaged, ArtifactKeyMissing, NotFound, UsageError
from holdfast.messages import (
    ARTIFACT_SCHEME,
    FilePart,
    Message,
    Part,
    TextPart,
    ToolPart,
    has_file,
)
from holdfast.sessions import Session
from holdfast.tools import LABELS_KEY, redact_text

if TYPE_CHECKING:
    from holdfast.artifacts import ArtifactActor, ArtifactStore

LOCAL_USER: Final = "local"
"""A state directory belongs to one person."""
LARGEST_SHOWN: Final = 32 * 1024 * 1024
"""What is larger is named to the model, not shown: no provider takes it."""


class OpensArtifacts(Protocol):
    """Where the store of artifacts comes from; opened when first used."""

    @property
    def tenant(self) -> str:
        """On whose account artifacts are kept."""
        ...

    async def opened(self) -> ArtifactStore:
        """Return the store."""
        ...


def make_session_actor(
    session: Session, tenant: str, *, user: str = "", run_id: str = ""
) -> ArtifactActor:
    """Return in whose name a session works on artifacts: with its own rights only."""
    from holdfast.artifacts import ArtifactActor  # noqa: PLC0415 - a room of its own

    return ArtifactActor(
        tenant=tenant,
        subject=f"session:{session.id}",
        owner=user or session.owner or "owner",
        user=session.owner or LOCAL_USER,
        session_id=session.id,
        project_id=session.project_id,
        run_id=run_id,
    )


class MessageFiles(msgspec.Struct, frozen=True, eq=False):
    """Keeps the files of messages, and opens them for the requests of a turn."""

    artifacts: OpensArtifacts

    def open_for(self, session: Session) -> SessionFiles:
        """Return what reads the files of a session's messages."""
        return SessionFiles(self.artifacts, session)

    async def keep(self, session: Session, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return parts whose files are kept as artifacts of the session, what is inline first.

        Raises:
            ArtifactQuotaExceeded: a file does not fit.
            StorageError: there is no space, or the place cannot be written or reached.
        """
        kept: list[Part] = []
        for number, part in enumerate(parts, 1):
            if isinstance(part, FilePart) and part.data is not None:
                part = await self._save(session, part, number)
            elif isinstance(part, ToolPart) and part.attachments:
                files = [
                    await self._save(session, file, at) if file.data is not None else file
                    for at, file in enumerate(part.attachments, 1)
                ]
                part = replace(part, attachments=tuple(files))
            kept.append(part)
        return tuple(kept)

    async def _save(self, session: Session, part: FilePart, number: int) -> FilePart:
        from holdfast.artifacts import ArtifactOptions  # noqa: PLC0415 - when used

        actor = make_session_actor(session, self.artifacts.tenant)
        store = (await self.artifacts.opened()).act_for(actor)
        data, unnamed = part.data or b"", f"file-{number}"
        redactor = store.services.journal.redactor
        if redactor is not None:
            data = redact_text(data, redactor)
        plain = ArtifactOptions(kind="user_input", scope="session")
        try:
            typed = replace(plain, media_type=part.media_type)
            saved = await store.save(part.name or unnamed, data, options=typed)
        except UsageError:
            # A name or a type that is none is the message's own affair.
            saved = await store.save(unnamed, data, options=plain)
        return replace(part, data=None, url=f"{ARTIFACT_SCHEME}{saved.id}")


class SessionFiles:
    """Reads the files of one session's messages, each once."""

    def __init__(self, artifacts: OpensArtifacts, session: Session) -> None:
        """Read in the name of this session."""
        self._artifacts = artifacts
        self._session = session
        self._loaded: dict[int, tuple[Message, Message]] = {}
        """By the identity of a message, which the first of the two keeps alive."""

    async def load(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with the contents of their files; the same objects each time.

        A file that is gone, too large or damaged is named in words: the conversation goes on.
        """
        filled = []
        for message in messages:
            if any(map(has_file, message.parts)):
                known = self._loaded.get(id(message))
                if known is None:
                    known = self._loaded[id(message)] = (message, await self._fill(message))
                message = known[1]
            filled.append(message)
        return tuple(filled)

    async def _fill(self, message: Message) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, FilePart):
                parts.append(await self._read(part))
            elif isinstance(part, ToolPart) and part.attachments:
                parts.append(await self._fill_result(part))
            else:
                parts.append(part)
        return replace(message, parts=tuple(parts))

    async def _fill_result(self, part: ToolPart) -> ToolPart:
        files: list[FilePart] = []
        notes: list[str] = []
        for file in part.attachments:
            found = await self._read(file)
            if isinstance(found, FilePart):
                files.append(found)
            else:
                notes.append(found.text)
        if notes:
            part = replace(part, output="\n".join([part.output, *notes]))
        return replace(part, attachments=tuple(files))

    async def _read(self, part: FilePart) -> FilePart | TextPart:
        if not part.artifact_id:
            return part
        actor = make_session_actor(self._session, self._artifacts.tenant)
        store = (await self._artifacts.opened()).act_for(actor)
        name = part.name or part.media_type
        try:
            artifact = await store.get(part.artifact_id)
            if artifact.size > LARGEST_SHOWN:
                return _say(f"(The file {name}, {part.url}, is too large to be shown.)")
            if artifact.session_id != self._session.id and LABELS_KEY in artifact.metadata:
                # Only a call tells the session what it has read by this: taint must not get lost.
                return _say(f"(The file {name} has labels; read it with `read` as {part.url}.)")
            data = await store.load(part.artifact_id)
        except (NotFound, ArtifactDamaged, ArtifactKeyMissing) as error:
            return _say(f"(The file {name} cannot be shown: {error})")
        return replace(part, data=data, url="")


def _say(text: str) -> TextPart:
    return TextPart(text=text, is_synthetic=True)


__all__ = ["LOCAL_USER", "MessageFiles", "OpensArtifacts", "SessionFiles", "make_session_actor"]
