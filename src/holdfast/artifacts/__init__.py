"""Artifacts: the files that agents, tools and people leave, with versions, owners and rights.

Contents are blobs, addressed by their SHA-256 and kept once; everything else about them is facts
in the journal. This is the one store of blobs: cut-off outputs, files of messages, reports and
exports lie here too.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.artifacts.access import ArtifactActor as ArtifactActor
    from holdfast.artifacts.access import allows as allows
    from holdfast.artifacts.access import find_access as find_access
    from holdfast.artifacts.artifact import Access as Access
    from holdfast.artifacts.artifact import Artifact as Artifact
    from holdfast.artifacts.artifact import ArtifactFilter as ArtifactFilter
    from holdfast.artifacts.artifact import ArtifactKind as ArtifactKind
    from holdfast.artifacts.artifact import ArtifactOptions as ArtifactOptions
    from holdfast.artifacts.artifact import ArtifactPage as ArtifactPage
    from holdfast.artifacts.artifact import ArtifactScope as ArtifactScope
    from holdfast.artifacts.artifact import check_name as check_name
    from holdfast.artifacts.blobs import BlobInfo as BlobInfo
    from holdfast.artifacts.blobs import BlobStore as BlobStore
    from holdfast.artifacts.blobs import BlobUpload as BlobUpload
    from holdfast.artifacts.blobs import make_blob_key as make_blob_key
    from holdfast.artifacts.catalogue import ARTIFACT_PROJECTIONS as ARTIFACT_PROJECTIONS
    from holdfast.artifacts.catalogue import ARTIFACTS as ARTIFACTS
    from holdfast.artifacts.catalogue import ArtifactRow as ArtifactRow
    from holdfast.artifacts.catalogue import ArtifactUsage as ArtifactUsage
    from holdfast.artifacts.catalogue import GrantRow as GrantRow
    from holdfast.artifacts.events import ArtifactAccessed as ArtifactAccessed
    from holdfast.artifacts.events import ArtifactDeleted as ArtifactDeleted
    from holdfast.artifacts.events import ArtifactPlaceClaimed as ArtifactPlaceClaimed
    from holdfast.artifacts.events import ArtifactSaved as ArtifactSaved
    from holdfast.artifacts.events import ArtifactShared as ArtifactShared
    from holdfast.artifacts.events import ArtifactUnshared as ArtifactUnshared
    from holdfast.artifacts.keys import ArtifactKey as ArtifactKey
    from holdfast.artifacts.keys import KeyRing as KeyRing
    from holdfast.artifacts.keys import parse_key as parse_key
    from holdfast.artifacts.links import LinkClaim as LinkClaim
    from holdfast.artifacts.links import sign_link as sign_link
    from holdfast.artifacts.links import verify_link as verify_link
    from holdfast.artifacts.locks import ArtifactLocks as ArtifactLocks
    from holdfast.artifacts.locks import FileLocks as FileLocks
    from holdfast.artifacts.locks import ProcessLocks as ProcessLocks
    from holdfast.artifacts.locks import StoreLocks as StoreLocks
    from holdfast.artifacts.sealing import Sealer as Sealer
    from holdfast.artifacts.sealing import Unsealer as Unsealer
    from holdfast.artifacts.sharing import ArtifactSharing as ArtifactSharing
    from holdfast.artifacts.sharing import SharedLink as SharedLink
    from holdfast.artifacts.store import ArtifactRecorder as ArtifactRecorder
    from holdfast.artifacts.store import ArtifactRules as ArtifactRules
    from holdfast.artifacts.store import ArtifactServices as ArtifactServices
    from holdfast.artifacts.store import ArtifactStore as ArtifactStore
    from holdfast.artifacts.stores.files import FileBlobs as FileBlobs
    from holdfast.artifacts.stores.memory import MemoryBlobs as MemoryBlobs
    from holdfast.artifacts.stores.objects import ObjectBlobs as ObjectBlobs
    from holdfast.artifacts.stores.registry import BlobStoreKind as BlobStoreKind
    from holdfast.artifacts.stores.registry import BlobStoreOptions as BlobStoreOptions
    from holdfast.artifacts.stores.registry import choose_blob_url as choose_blob_url
    from holdfast.artifacts.stores.registry import erase_blobs as erase_blobs
    from holdfast.artifacts.stores.registry import find_tenant_blob_url as find_tenant_blob_url
    from holdfast.artifacts.stores.registry import grant_blob_role as grant_blob_role
    from holdfast.artifacts.stores.registry import list_blob_places as list_blob_places
    from holdfast.artifacts.stores.registry import migrate_blob_store as migrate_blob_store
    from holdfast.artifacts.stores.registry import open_blob_store as open_blob_store
    from holdfast.artifacts.stores.sqlite import SqliteBlobs as SqliteBlobs
    from holdfast.artifacts.upkeep import ArtifactFinding as ArtifactFinding
    from holdfast.artifacts.upkeep import CollectReport as CollectReport
    from holdfast.artifacts.upkeep import RekeyReport as RekeyReport
    from holdfast.artifacts.upkeep import collect as collect
    from holdfast.artifacts.upkeep import collect_digests as collect_digests
    from holdfast.artifacts.upkeep import expire as expire
    from holdfast.artifacts.upkeep import forget_missing as forget_missing
    from holdfast.artifacts.upkeep import rekey as rekey
    from holdfast.artifacts.upkeep import verify as verify
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "access": "ArtifactActor allows find_access",
            "artifact": "Access Artifact ArtifactFilter ArtifactKind ArtifactOptions ArtifactPage "
            "ArtifactScope check_name",
            "blobs": "BlobInfo BlobStore BlobUpload make_blob_key",
            "catalogue": "ARTIFACTS ARTIFACT_PROJECTIONS ArtifactRow ArtifactUsage GrantRow",
            "events": "ArtifactAccessed ArtifactDeleted ArtifactPlaceClaimed ArtifactSaved "
            "ArtifactShared ArtifactUnshared",
            "keys": "ArtifactKey KeyRing parse_key",
            "links": "LinkClaim sign_link verify_link",
            "locks": "ArtifactLocks FileLocks ProcessLocks StoreLocks",
            "sharing": "ArtifactSharing SharedLink",
            "sealing": "Sealer Unsealer",
            "store": "ArtifactRecorder ArtifactRules ArtifactServices ArtifactStore",
            "stores.files": "FileBlobs",
            "stores.memory": "MemoryBlobs",
            "stores.objects": "ObjectBlobs",
            "stores.registry": "BlobStoreKind BlobStoreOptions choose_blob_url erase_blobs find_tenant_blob_url grant_blob_role list_blob_places migrate_blob_store open_blob_store",
            "stores.sqlite": "SqliteBlobs",
            "upkeep": "ArtifactFinding CollectReport RekeyReport collect collect_digests expire forget_missing "
            "rekey verify",
        },
    )
