"""What tools save and load: artifacts in the name of a run."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.artifacts import ArtifactActor
from holdfast.canonical import hash_sha256
from holdfast.errors import NotFound
from holdfast.journal import Journal
from holdfast.state import NO_TAINT, Taint
from holdfast.tools.events import ToolOutputKept
from holdfast.tools.labels import LABELS
from holdfast.tools.recording import LeasedRecorder

if TYPE_CHECKING:
    from holdfast.artifacts import Artifact, ArtifactScope, ArtifactStore
    from holdfast.redaction import Redactor


LABELS_KEY = "holdfast.labels"
"""Under this an artifact keeps what the run that saved it had read: untrusted, private."""


@functools.cache
def _compile_former_handle() -> re.Pattern[str]:
    return re.compile(r"out_(\d{1,18})_([0-9a-f]{16})")


class OpensStore(Protocol):
    """Gives the store of artifacts, opened when it is first needed."""

    def __call__(self) -> Awaitable[ArtifactStore]:
        """Return the store."""
        ...


class RunArtifacts(msgspec.Struct, frozen=True, eq=False):
    """The artifacts of a run: what its tools save belongs to its session unless they say more.

    A handle is the id of an artifact. It holds in its session and in forks made later; deleting
    or redacting the session removes the content. Handles of earlier versions (`out_…`), whose
    content is in the journal itself, are read for ever.
    """

    opened: OpensStore
    make_actor: Callable[[], ArtifactActor]
    """Says in whose name they are used; made with the first use, which most runs never see."""
    recorder: LeasedRecorder
    journal: Journal
    taint: Taint = NO_TAINT
    call_id: str = ""

    async def save(
        self,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str = "",
        tags: tuple[str, ...] = (),
        scope: ArtifactScope | None = None,
    ) -> str:
        """Keep the data, without secrets if it is text, and return its handle."""
        from holdfast.artifacts import ArtifactOptions  # noqa: PLC0415 - with the first save

        if isinstance(data, bytes) and self.journal.redactor is not None:
            data = redact_text(data, self.journal.redactor)
        seen = ",".join(sorted(self.taint.seen))
        options = ArtifactOptions(
            media_type=media_type,
            kind="tool_result",
            tags=tags,
            scope=scope,
            metadata={LABELS_KEY: seen} if seen else {},
        )
        saved = await (await self._store()).save(name, data, options=options)
        return saved.id

    async def load(self, handle: str) -> bytes:
        """Return what was saved, or raise NotFound."""
        if _compile_former_handle().fullmatch(handle):
            return await load_kept_output(self.journal, self.make_actor().session_id, handle)
        store = await self._store()
        self._note_labels(await store.get(handle))
        return await store.load(handle)

    async def stream(self, handle: str) -> AsyncGenerator[bytes, None]:
        """Yield what was saved, or raise NotFound."""
        if _compile_former_handle().fullmatch(handle):
            yield await self.load(handle)
            return
        store = await self._store()
        self._note_labels(await store.get(handle))
        async for piece in store.stream(handle):
            yield piece

    async def list(self, name: str = "", *, limit: int = 50) -> tuple[Artifact, ...]:
        """Return what this session may read, newest first."""
        from holdfast.artifacts import ArtifactFilter  # noqa: PLC0415 - with the first use

        page = await (await self._store()).list(ArtifactFilter(name=name), limit=limit)
        return page.items

    async def delete(self, handle: str) -> None:
        """Delete what was saved, or raise NotFound."""
        await (await self._store()).delete(handle, reason="deleted by a tool")

    def _note_labels(self, artifact: Artifact) -> None:
        """Tell the caller's context what the writer had read: taint spreads with a file."""
        kept = artifact.metadata.get(LABELS_KEY, "").split(",")
        if labels := tuple([label for label in LABELS if label in kept]):
            self.taint.add(labels)

    async def _store(self) -> ArtifactStore:
        actor = msgspec.structs.replace(self.make_actor(), call_id=self.call_id)
        return (await self.opened()).act_for(actor, self.recorder)


def redact_text(data: bytes, redactor: Redactor) -> bytes:
    """Return text without the secrets that a redactor finds; what is no text stays as it is."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    clean = redactor.text(text)
    return data if clean == text else clean.encode()


async def load_kept_output(journal: Journal, session_id: str, handle: str) -> bytes:
    """Return what a tool saved in the journal itself, as earlier versions did.

    Raises:
        NotFound: there is no such handle, or its content was removed.
    """
    named = _compile_former_handle().fullmatch(handle)
    if named is not None:
        for event in await journal.store.read(session_id, seqs=[int(named[1])]):
            fact = event.decode() if event.kind == ToolOutputKept.kind else None
            if isinstance(fact, ToolOutputKept) and hash_sha256(fact.data)[:16] == named[2]:
                return fact.data
    raise NotFound(kind="artifact", value=handle)
