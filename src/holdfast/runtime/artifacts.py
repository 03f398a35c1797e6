"""Artifacts: the store, made when first used, in the name of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.journal import Journal, SchemaStatus, SharedStore, list_store_places
from holdfast.runs import LOCAL_USER
from holdfast.settings import Settings, list_secret_values

if TYPE_CHECKING:
    from holdfast.artifacts import (
        ArtifactActor,
        ArtifactLocks,
        ArtifactServices,
        ArtifactStore,
        BlobStoreOptions,
        KeyRing,
    )

_LOCKS = "artifact-locks"
_LEAST_LINK_KEY = 32


class ArtifactService:
    """The artifacts of one runtime; the room behind it is loaded with the first use."""

    def __init__(
        self,
        settings: Settings,
        base_dir: Path,
        journal: Journal,
        tenant: str,
        show_presence: Callable[[], Awaitable[str]],
        *,
        is_apart: bool = False,
    ) -> None:
        """Keep artifacts where the settings say, on this tenant's account.

        A tenant that `is_apart` from the operator's has a part of that place of its own.
        """
        self._is_apart = is_apart
        self._show_presence = show_presence
        self._settings = settings
        self._base_dir = base_dir
        self._journal = journal
        self.tenant = tenant
        self._services: ArtifactServices | None = None
        self._once = asyncio.Lock()

    @property
    def places(self) -> tuple[Path, ...]:
        """Where on this machine the contents are, other tenants' too, which no tool may see."""
        from holdfast.artifacts import list_blob_places  # noqa: PLC0415 - a room of its own

        shared = self._settings.artifacts.url
        return list_blob_places(shared or self._url, base_dir=self._base_dir)

    async def opened(self) -> ArtifactStore:
        """Return the store, in the name of the owner of the state directory."""
        from holdfast.artifacts import ArtifactActor  # noqa: PLC0415 - a room of its own

        actor = ArtifactActor(tenant=self.tenant, subject="owner", user=LOCAL_USER, is_admin=True)
        return await self.act_for(actor)

    async def act_for(self, actor: ArtifactActor) -> ArtifactStore:
        """Return the store in the name of an actor.

        Raises:
            ConfigError: a key in the settings is none.
            UsageError: the address of the place means nothing.
            MissingExtra: the place needs a package that is not installed.
        """
        from holdfast.artifacts import ArtifactStore  # noqa: PLC0415 - a room of its own

        async with self._once:
            if self._services is None:
                self._services = self._build()
        return ArtifactStore(self._services, actor)

    async def close(self) -> None:
        """Give the place back."""
        services, self._services = self._services, None
        if services is not None:
            await services.locks.close()
            await services.blobs.close()

    @property
    def _url(self) -> str:
        from holdfast.artifacts import (  # noqa: PLC0415 - a room of its own
            choose_blob_url,
            find_tenant_blob_url,
        )

        chosen = self._settings.artifacts.url
        if chosen and self._is_apart:
            return find_tenant_blob_url(chosen, self.tenant)
        return choose_blob_url(chosen, beside=self._settings.storage.url)

    async def erase_tenant(self, tenant: str, directory: Path) -> None:
        """Remove all contents of another tenant, whose records are in this directory."""
        from holdfast.artifacts import erase_blobs  # noqa: PLC0415 - a room of its own

        await erase_blobs(self._url, tenant, self._make_options(directory))

    async def grant_role(self, role: str) -> None:
        """Let a role of the database use the contents, where they are in one."""
        from holdfast.artifacts import grant_blob_role  # noqa: PLC0415 - a room of its own

        await grant_blob_role(self._url, role)

    async def migrate_store(self, *, is_dry: bool) -> SchemaStatus | None:
        """Bring the schema of the place up to date, or say what that would change."""
        from holdfast.artifacts import migrate_blob_store  # noqa: PLC0415 - a room of its own

        return await migrate_blob_store(self._url, base_dir=self._base_dir, is_dry=is_dry)

    def _build(self) -> ArtifactServices:
        from holdfast.artifacts import (  # noqa: PLC0415 - a room of its own
            ArtifactRules,
            ArtifactServices,
            FileLocks,
            ProcessLocks,
            StoreLocks,
            open_blob_store,
        )

        wanted = self._settings.artifacts
        # All writers of the same journal must find the same locks.
        places = list_store_places(self._settings.storage.url, base_dir=self._base_dir)
        store = self._journal.store
        locks: ArtifactLocks = FileLocks(places[0] / _LOCKS) if places else ProcessLocks()
        if isinstance(store, SharedStore):
            locks = StoreLocks(self._journal, store, self._show_presence)
        link_key = self._settings.secrets.link_key
        return ArtifactServices(
            journal=self._journal,
            blobs=open_blob_store(self._url, self._make_options(self._base_dir)),
            locks=locks,
            place=self._url or str(self._base_dir / "artifacts"),
            keys=self._load_keys(),
            rules=ArtifactRules(
                session_bytes=wanted.session_bytes,
                tenant_bytes=wanted.tenant_bytes,
                largest_bytes=wanted.largest_bytes,
                ttl_s=wanted.ttl_s,
                keep_versions=wanted.keep_versions,
                compresses=wanted.compress,
            ),
            link_key=_link_key(link_key.get_secret_value()) if link_key else b"",
        )

    def _make_options(self, base_dir: Path) -> BlobStoreOptions:
        from holdfast.artifacts import BlobStoreOptions  # noqa: PLC0415 - a room of its own

        wanted = self._settings.artifacts
        return BlobStoreOptions(
            base_dir=base_dir,
            endpoint=wanted.endpoint_url or "",
            region=wanted.region or "",
            variables=list_secret_values(self._settings),
        )

    def _load_keys(self) -> KeyRing:
        from holdfast.artifacts import KeyRing, parse_key  # noqa: PLC0415 - a room of its own

        secrets = self._settings.secrets
        active, former = secrets.artifact_key, secrets.artifact_former_key
        return KeyRing(
            active=parse_key(active.get_secret_value(), "HOLDFAST_ARTIFACT_KEY")
            if active
            else None,
            former=parse_key(former.get_secret_value(), "HOLDFAST_ARTIFACT_FORMER_KEY")
            if former
            else None,
        )


def _link_key(text: str) -> bytes:
    if len(text) < _LEAST_LINK_KEY:
        raise ConfigError(
            detail="HOLDFAST_LINK_KEY is too short to sign with; `openssl rand -base64 32` prints "
            "a good one."
        )
    return text.encode()


__all__ = ["LOCAL_USER", "ArtifactService"]
