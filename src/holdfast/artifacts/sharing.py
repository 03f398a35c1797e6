"""Sharing: access that is given to a subject, and signed links; both expire, both are kept."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from holdfast.artifacts.artifact import Access, Artifact
from holdfast.artifacts.catalogue import GRANTS, GrantRow
from holdfast.artifacts.events import ArtifactAccessed, ArtifactShared, ArtifactUnshared
from holdfast.artifacts.links import LinkClaim, sign_link, verify_link
from holdfast.artifacts.store import ArtifactStore
from holdfast.errors import ConfigError, LinkRefused, UsageError
from holdfast.ids import make_id

_MOST_SHARED_S: Final = 10 * 366 * 86_400.0


class SharedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A signed link: a bearer token that lets its holder read this artifact until it expires."""

    token: str
    link_id: str
    artifact_id: str
    expires_at: float


class ArtifactSharing:
    """Gives and takes access to artifacts, in the name of whom a store acts for."""

    def __init__(self, store: ArtifactStore) -> None:
        """Share what is in this store."""
        self._store = store

    async def grant(
        self, artifact_id: str, subject: str, access: Access = "read", *, expires_in_s: float
    ) -> GrantRow:
        """Give a subject access to an artifact until it expires; the last word holds.

        Raises:
            NotFound: there is no such artifact, or not for this actor.
            ArtifactDenied: only its owner and admins share it.
        """
        session_id, row = await self._store.find(artifact_id, "admin", "share")
        if not subject or len(subject) > 200:
            raise UsageError(detail="Say with whom the artifact is shared.")
        fact = ArtifactShared(
            id=row.artifact.id,
            tenant=self._store.actor.tenant,
            access=access,
            expires_at=self._compute_expiry(expires_in_s),
            by=self._store.actor.subject,
            subject=subject,
        )
        event = await self._store.append(session_id, fact)
        grant = GRANTS.apply(None, event, fact)
        assert grant is not None
        return grant

    async def revoke(self, artifact_id: str, *, subject: str = "", link_id: str = "") -> None:
        """Take access back from a subject, or withdraw a link; safe to repeat.

        Raises:
            NotFound: there is no such artifact, or not for this actor.
            ArtifactDenied: only its owner and admins do that.
        """
        session_id, row = await self._store.find(artifact_id, "admin", "stop sharing")
        if bool(subject) == bool(link_id):
            raise UsageError(detail="Name a subject, or the id of a link.")
        fact = ArtifactUnshared(
            id=row.artifact.id,
            tenant=self._store.actor.tenant,
            by=self._store.actor.subject,
            subject=subject,
            link_id=link_id,
        )
        await self._store.append(session_id, fact)

    async def grants(self, artifact_id: str) -> list[GrantRow]:
        """Return who was given access, and which links there are; expired ones are left out."""
        session_id, row = await self._store.find(artifact_id, "admin", "see who shares")
        now = self._store.services.journal.clock.now()
        return [
            one
            for one in await self._store.catalogue.grants(session_id, row.artifact.id)
            if one.expires_at > now
        ]

    async def share(self, artifact_id: str, *, expires_in_s: float) -> SharedLink:
        """Make a signed link by which anyone may read this version until it expires.

        Raises:
            ConfigError: the settings have no key to sign with.
            NotFound: there is no such artifact, or not for this actor.
            ArtifactDenied: only its owner and admins share it.
        """
        session_id, row = await self._store.find(artifact_id, "admin", "share")
        key = self._link_key()
        claim = LinkClaim(
            link_id=make_id("lnk"),
            tenant=self._store.actor.tenant,
            artifact_id=row.artifact.id,
            digest=row.digest,
            expires_at=self._compute_expiry(expires_in_s),
        )
        fact = ArtifactShared(
            id=row.artifact.id,
            tenant=self._store.actor.tenant,
            access="read",
            expires_at=claim.expires_at,
            by=self._store.actor.subject,
            link_id=claim.link_id,
        )
        await self._store.append(session_id, fact)
        return SharedLink(
            token=sign_link(claim, key),
            link_id=claim.link_id,
            artifact_id=claim.artifact_id,
            expires_at=claim.expires_at,
        )

    async def find_shared(self, token: str) -> Artifact:
        """Return what a link leads to; raises LinkRefused if it leads nowhere any more."""
        return (await self._follow(token))[1]

    async def stream_shared(self, token: str) -> AsyncGenerator[bytes, None]:
        """Yield the content that a link leads to, checked; who asks needs nothing but the link.

        Raises:
            LinkRefused: it is none of ours, has expired, was withdrawn, or its artifact is gone.
        """
        session_id, artifact, link_id = await self._follow(token)
        fact = ArtifactAccessed(
            id=artifact.id, tenant=artifact.tenant, by=self._store.actor.subject, link_id=link_id
        )
        await self._store.append(session_id, fact)
        async with contextlib.aclosing(
            self._store.read_content(artifact.digest, artifact.size)
        ) as pieces:
            async for piece in pieces:
                yield piece

    async def _follow(self, token: str) -> tuple[str, Artifact, str]:
        claim = verify_link(token, self._link_key(), now=self._store.services.journal.clock.now())
        if claim.tenant != self._store.actor.tenant:
            raise LinkRefused(detail="it belongs to another tenant")
        for session_id, row in await self._store.catalogue.rows(claim.artifact_id):
            links = await self._store.catalogue.grants(session_id, claim.artifact_id)
            if row.digest == claim.digest and claim.link_id in [one.link_id for one in links]:
                return session_id, row.artifact, claim.link_id
        raise LinkRefused(detail="it was withdrawn, or what it leads to is gone")

    def _link_key(self) -> bytes:
        if not self._store.services.link_key:
            raise ConfigError(
                detail="There is no key to sign links with: put HOLDFAST_LINK_KEY into the secrets "
                "file, such as `openssl rand -base64 32` prints it."
            )
        return self._store.services.link_key

    def _compute_expiry(self, seconds: float) -> float:
        if not 0 < seconds <= _MOST_SHARED_S:
            raise UsageError(detail="Access is given for at least a moment and at most ten years.")
        return self._store.services.journal.clock.now() + seconds


__all__ = ["ArtifactSharing", "SharedLink"]
