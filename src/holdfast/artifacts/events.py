"""Facts about artifacts."""

from __future__ import annotations

import msgspec

from holdfast.artifacts.artifact import Access, ArtifactKind, ArtifactScope
from holdfast.journal import Payload, payload


@payload("artifact.saved", is_open=True, has_content=True)
class ArtifactSaved(Payload, frozen=True, kw_only=True):
    """A version of a file is kept; its content lies in the store of blobs by its digest.

    As long as this stands, unredacted and without an `artifact.deleted`, the content is kept.
    """

    id: str
    tenant: str
    name: str
    digest: str
    size: int
    media_type: str
    artifact_kind: ArtifactKind
    scope: ArtifactScope
    scope_id: str = ""
    owner: str = ""
    version: int = 1
    previous: str = ""
    tags: tuple[str, ...] = ()
    run_id: str = ""
    call_id: str = ""
    expires_at: float = 0.0
    metadata: dict[str, str] = msgspec.field(default_factory=dict)

    def redacted(self) -> ArtifactSaved:
        """Keep which one and how large; drop what it is called, holds, and where its bytes are."""
        return msgspec.structs.replace(self, name="", digest="", tags=(), metadata={})


@payload("artifact.deleted", is_open=True, has_content=True, is_synced=True)
class ArtifactDeleted(Payload, frozen=True, kw_only=True):
    """A version was deleted, by a person, a tool or retention; its content goes with it."""

    id: str
    tenant: str
    size: int
    by: str = ""
    reason: str = ""

    def redacted(self) -> ArtifactDeleted:
        """Keep which one; what is redacted of it counts nowhere."""
        return msgspec.structs.replace(self, size=0, reason="")


@payload("artifact.shared", is_open=True, is_inherited=False, is_synced=True)
class ArtifactShared(Payload, frozen=True, kw_only=True):
    """A subject was given access to an artifact, or a signed link to it was made."""

    id: str
    tenant: str
    access: Access
    expires_at: float
    by: str
    subject: str = ""
    link_id: str = ""


@payload("artifact.unshared", is_open=True, is_inherited=False, is_synced=True)
class ArtifactUnshared(Payload, frozen=True, kw_only=True):
    """Access that was given, or a link, no longer holds."""

    id: str
    tenant: str
    by: str
    subject: str = ""
    link_id: str = ""


@payload("artifact.accessed", is_open=True, is_inherited=False)
class ArtifactAccessed(Payload, frozen=True, kw_only=True):
    """Content was read by another one than its owner: through given access, or a link."""

    id: str
    tenant: str
    by: str
    link_id: str = ""


@payload(
    "artifact.place_claimed", is_open=True, is_inherited=False, is_synced=True, is_of_store=True
)
class ArtifactPlaceClaimed(Payload, frozen=True, kw_only=True):
    """This journal keeps its files in a place that carries this mark.

    A place with a mark that no such fact names belongs to another journal: nothing is saved
    there, and above all nothing is removed.
    """

    mark: str


__all__ = [
    "ArtifactAccessed",
    "ArtifactDeleted",
    "ArtifactPlaceClaimed",
    "ArtifactSaved",
    "ArtifactShared",
    "ArtifactUnshared",
]
