"""The catalogue: which artifacts there are, who may reach them, how much they take.

All three tables follow from the journal. That is what makes the store safe to be killed: an
artifact exists exactly if its fact does, and the fact is written when the content is safe.
"""

from __future__ import annotations

import msgspec

from holdfast.artifacts.artifact import Access, Artifact
from holdfast.artifacts.events import (
    ArtifactDeleted,
    ArtifactPlaceClaimed,
    ArtifactSaved,
    ArtifactShared,
    ArtifactUnshared,
)
from holdfast.journal import SYSTEM_SESSION, Event, Payload, Projection


class ArtifactRow(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact as it is found; deleted ones stay until their content is gone."""

    artifact: Artifact
    saved_seq: int
    deleted_seq: int = 0

    @property
    def name(self) -> str:
        """What it is called."""
        return self.artifact.name

    @property
    def kind(self) -> str:
        """What kind it is of."""
        return self.artifact.kind

    @property
    def scope(self) -> str:
        """Whose it is."""
        return self.artifact.scope

    @property
    def tenant(self) -> str:
        """On whose account it is kept."""
        return self.artifact.tenant

    @property
    def digest(self) -> str:
        """Where its content is."""
        return self.artifact.digest

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.artifact.size

    @property
    def time(self) -> float:
        """When it was saved."""
        return self.artifact.time

    @property
    def version(self) -> int:
        """Which version it is."""
        return self.artifact.version

    @property
    def media_type(self) -> str:
        """What its content is."""
        return self.artifact.media_type

    @property
    def expires_at(self) -> float:
        """When retention takes it; 0 for never."""
        return self.artifact.expires_at

    @property
    def tag_lines(self) -> str:
        """Its tags, each between line ends, so that one can be searched for whole."""
        return "\n" + "".join(f"{tag}\n" for tag in self.artifact.tags)

    @property
    def lineage(self) -> str:
        """What all versions of one file share."""
        return make_lineage(self.artifact.scope, self.artifact.scope_id, self.artifact.name)

    @property
    def is_live(self) -> bool:
        """Whether it is listed."""
        return not self.deleted_seq


def make_lineage(scope: str, scope_id: str, name: str) -> str:
    """Return what all versions of one file share."""
    return f"{scope}\n{scope_id}\n{name}"


class ArtifactTable(Projection[ArtifactRow]):
    """One row per version."""

    name = "artifacts"
    version = 1
    row_type = ArtifactRow
    columns = (
        "name",
        "kind",
        "scope",
        "tenant",
        "digest",
        "size",
        "time",
        "version",
        "media_type",
        "expires_at",
        "tag_lines",
        "lineage",
        "is_live",
    )
    indexes = (("digest",), ("lineage", "version"), ("time",), ("session", "time"))
    kinds = frozenset({ArtifactSaved.kind, ArtifactDeleted.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """Each version has a row."""
        assert isinstance(payload, ArtifactSaved | ArtifactDeleted)
        return payload.id

    def apply(self, row: ArtifactRow | None, event: Event, payload: Payload) -> ArtifactRow | None:
        """A version is listed until it is deleted, and known until its content is redacted."""
        if isinstance(payload, ArtifactDeleted):
            return row and msgspec.structs.replace(row, deleted_seq=event.session_seq)
        assert isinstance(payload, ArtifactSaved)
        if not payload.digest:
            return None
        known = msgspec.structs.asdict(payload)
        known["kind"] = known.pop("artifact_kind")
        is_of_session = event.session_id != SYSTEM_SESSION
        return ArtifactRow(
            artifact=Artifact(
                **known, time=event.time, session_id=event.session_id if is_of_session else ""
            ),
            saved_seq=event.session_seq,
        )


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """Access that holds until it expires: of a subject, or of the holder of a link."""

    artifact_id: str
    access: Access
    expires_at: float
    by: str
    subject: str = ""
    link_id: str = ""


class GrantTable(Projection[GrantRow]):
    """One row per artifact and subject, or link."""

    name = "artifact_grants"
    version = 1
    row_type = GrantRow
    columns = ("artifact_id", "subject", "link_id", "expires_at")
    indexes = (("artifact_id",), ("subject",))
    kinds = frozenset({ArtifactShared.kind, ArtifactUnshared.kind, ArtifactDeleted.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """One per artifact and subject, or link."""
        if isinstance(payload, ArtifactDeleted):
            return ""
        assert isinstance(payload, ArtifactShared | ArtifactUnshared)
        return grant_key(payload.id, payload.subject, payload.link_id)

    def apply(self, row: GrantRow | None, event: Event, payload: Payload) -> GrantRow | None:
        """The last word holds."""
        if not isinstance(payload, ArtifactShared):
            return None
        return GrantRow(
            artifact_id=payload.id,
            access=payload.access,
            expires_at=payload.expires_at,
            by=payload.by,
            subject=payload.subject,
            link_id=payload.link_id,
        )


def grant_key(artifact_id: str, subject: str, link_id: str) -> str:
    """Return the key of a row of grants."""
    return f"{artifact_id}/{link_id or '-'}/{subject}"


class ArtifactUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the artifacts of one tenant take, in one session or beside all sessions.

    Bytes are those of the contents: what is kept once because it is the same counts each time.
    """

    tenant: str
    bytes: int
    count: int


class UsageTable(Projection[ArtifactUsage]):
    """One row per session and tenant."""

    name = "artifact_usage"
    version = 1
    row_type = ArtifactUsage
    columns = ("tenant",)
    indexes = (("tenant",),)
    kinds = frozenset({ArtifactSaved.kind, ArtifactDeleted.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """One per tenant."""
        assert isinstance(payload, ArtifactSaved | ArtifactDeleted)
        return payload.tenant

    def apply(
        self, row: ArtifactUsage | None, event: Event, payload: Payload
    ) -> ArtifactUsage | None:
        """Saved ones count until they are deleted; what was redacted counts nothing."""
        bytes_, count = (row.bytes, row.count) if row else (0, 0)
        if isinstance(payload, ArtifactSaved):
            is_there = bool(payload.digest)
            bytes_, count = bytes_ + payload.size * is_there, count + is_there
        else:
            assert isinstance(payload, ArtifactDeleted)
            is_counted = not event.is_redacted
            bytes_, count = bytes_ - payload.size * is_counted, count - is_counted
        return ArtifactUsage(tenant=payload.tenant, bytes=max(0, bytes_), count=max(0, count))


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A place of blobs that this journal uses."""

    mark: str


class ClaimTable(Projection[ClaimRow]):
    """One row per place."""

    name = "artifact_places"
    version = 1
    row_type = ClaimRow
    columns = ("mark",)
    kinds = frozenset({ArtifactPlaceClaimed.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """One per place."""
        assert isinstance(payload, ArtifactPlaceClaimed)
        return payload.mark

    def apply(self, row: ClaimRow | None, event: Event, payload: Payload) -> ClaimRow | None:
        """Once claimed, always claimed."""
        assert isinstance(payload, ArtifactPlaceClaimed)
        return ClaimRow(mark=payload.mark)


ARTIFACTS = ArtifactTable()
GRANTS = GrantTable()
USAGE = UsageTable()
PLACES = ClaimTable()
ARTIFACT_PROJECTIONS = (ARTIFACTS, GRANTS, USAGE, PLACES)
"""The tables that follow from the facts of this room."""
