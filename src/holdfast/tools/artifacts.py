"""Artifacts in the journal: durable, and gone when their session is."""

from __future__ import annotations

import functools
import re

import msgspec

from holdfast.canonical import sha256_hex
from holdfast.errors import NotFound
from holdfast.journal import Journal
from holdfast.tools.events import ToolOutputKept
from holdfast.tools.recording import Recorder


@functools.cache
def _handle() -> re.Pattern[str]:
    return re.compile(r"out_(\d{1,18})_([0-9a-f]{16})")


class JournalArtifacts(msgspec.Struct, frozen=True, eq=False):
    """Keeps what tools save as facts of the session.

    The journal puts large payloads into content-addressed blobs of their own. A handle holds
    in its session and in forks made later; deleting or redacting the session removes the
    content.
    """

    recorder: Recorder
    journal: Journal
    session_id: str

    async def save(self, name: str, data: bytes, *, media_type: str) -> str:
        """Keep the data and return its handle."""
        fact = ToolOutputKept(name=name, media_type=media_type, data=data)
        [event] = await self.recorder.append(fact)
        return f"out_{event.session_seq}_{sha256_hex(data)[:16]}"

    async def load(self, handle: str) -> bytes:
        """Return what was saved, or raise NotFound."""
        return await load_artifact(self.journal, self.session_id, handle)


async def load_artifact(journal: Journal, session_id: str, handle: str) -> bytes:
    """Return what a tool saved in a session.

    Raises:
        NotFound: there is no such handle, or its content was removed.
    """
    named = _handle().fullmatch(handle)
    if named is not None:
        for event in await journal.store.read(session_id, seqs=[int(named[1])]):
            fact = event.decode() if event.kind == ToolOutputKept.kind else None
            if isinstance(fact, ToolOutputKept) and sha256_hex(fact.data)[:16] == named[2]:
                return fact.data
    raise NotFound(kind="artifact", value=handle)
