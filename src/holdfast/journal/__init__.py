"""The journal: one append-only event log with a hash chain per session, the only truth.

Envelope, append, read, upcast, project, verify. Every other room keeps its facts here and
owns the payload types of its kinds; tables are projections that can be rebuilt. A session is
written under a lease whose epoch is a fencing token: the store refuses a stale writer.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.journal.audit import HeadsFile as HeadsFile
    from holdfast.journal.audit import check_chain as check_chain
    from holdfast.journal.audit import export_heads as export_heads
    from holdfast.journal.audit import make_anchor as make_anchor
    from holdfast.journal.audit import parse_heads as parse_heads
    from holdfast.journal.audit import verify as verify
    from holdfast.journal.copying import CopyReport as CopyReport
    from holdfast.journal.copying import copy_records as copy_records
    from holdfast.journal.envelope import GENESIS as GENESIS
    from holdfast.journal.envelope import NO_ORIGIN as NO_ORIGIN
    from holdfast.journal.envelope import SYSTEM_SESSION as SYSTEM_SESSION
    from holdfast.journal.envelope import Batch as Batch
    from holdfast.journal.envelope import Draft as Draft
    from holdfast.journal.envelope import Encoded as Encoded
    from holdfast.journal.envelope import Event as Event
    from holdfast.journal.envelope import Origin as Origin
    from holdfast.journal.envelope import Payload as Payload
    from holdfast.journal.envelope import chain_events as chain_events
    from holdfast.journal.envelope import declare_payload_modules as declare_payload_modules
    from holdfast.journal.envelope import decode_payload as decode_payload
    from holdfast.journal.envelope import digest_payload as digest_payload
    from holdfast.journal.envelope import encode_payload as encode_payload
    from holdfast.journal.envelope import encode_redacted as encode_redacted
    from holdfast.journal.envelope import hash_chain as hash_chain
    from holdfast.journal.envelope import list_known_kinds as list_known_kinds
    from holdfast.journal.envelope import make_header as make_header
    from holdfast.journal.envelope import payload as payload
    from holdfast.journal.envelope import upcaster as upcaster
    from holdfast.journal.events import EventsRedacted as EventsRedacted
    from holdfast.journal.events import HeadsAnchored as HeadsAnchored
    from holdfast.journal.events import SessionDeleted as SessionDeleted
    from holdfast.journal.journal import Journal as Journal
    from holdfast.journal.journal import check_patterns as check_patterns
    from holdfast.journal.projection import AnyProjection as AnyProjection
    from holdfast.journal.projection import Condition as Condition
    from holdfast.journal.projection import KeyedRow as KeyedRow
    from holdfast.journal.projection import Projection as Projection
    from holdfast.journal.projection import RowQuery as RowQuery
    from holdfast.journal.projection import Scalar as Scalar
    from holdfast.journal.projection import check_query as check_query
    from holdfast.journal.store import BLOB_THRESHOLD as BLOB_THRESHOLD
    from holdfast.journal.store import AppendRequest as AppendRequest
    from holdfast.journal.store import Chains as Chains
    from holdfast.journal.store import Durability as Durability
    from holdfast.journal.store import Finding as Finding
    from holdfast.journal.store import Head as Head
    from holdfast.journal.store import HeldSession as HeldSession
    from holdfast.journal.store import LeaseWish as LeaseWish
    from holdfast.journal.store import MendReport as MendReport
    from holdfast.journal.store import SharedStore as SharedStore
    from holdfast.journal.store import Store as Store
    from holdfast.journal.stores._postgres_connections import (
        parse_postgres_target as parse_postgres_target,
    )
    from holdfast.journal.stores._postgres_place import PostgresPlace as PostgresPlace
    from holdfast.journal.stores._postgres_schema import SchemaBook as SchemaBook
    from holdfast.journal.stores._sqlite_place import SqlitePlace as SqlitePlace
    from holdfast.journal.stores.memory import MemoryStore as MemoryStore
    from holdfast.journal.stores.registry import AddressRegistry as AddressRegistry
    from holdfast.journal.stores.registry import RoleKind as RoleKind
    from holdfast.journal.stores.registry import SchemaStatus as SchemaStatus
    from holdfast.journal.stores.registry import StoreKind as StoreKind
    from holdfast.journal.stores.registry import StoreOptions as StoreOptions
    from holdfast.journal.stores.registry import backup_files as backup_files
    from holdfast.journal.stores.registry import erase_tenant as erase_tenant
    from holdfast.journal.stores.registry import find_tenant_url as find_tenant_url
    from holdfast.journal.stores.registry import grant_role as grant_role
    from holdfast.journal.stores.registry import list_schemes as list_schemes
    from holdfast.journal.stores.registry import list_store_places as list_store_places
    from holdfast.journal.stores.registry import migrate_store as migrate_store
    from holdfast.journal.stores.registry import open_chains as open_chains
    from holdfast.journal.stores.registry import open_store as open_store
    from holdfast.journal.stores.registry import resolve_directory as resolve_directory
    from holdfast.journal.stores.sqlite import SqliteStore as SqliteStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "audit": "HeadsFile check_chain export_heads make_anchor parse_heads verify",
            "envelope": "chain_events GENESIS NO_ORIGIN SYSTEM_SESSION Batch Draft Encoded Event Origin Payload "
            "hash_chain declare_payload_modules decode_payload encode_payload encode_redacted make_header list_known_kinds payload "
            "digest_payload upcaster",
            "copying": "CopyReport copy_records",
            "events": "EventsRedacted HeadsAnchored SessionDeleted",
            "journal": "Journal check_patterns",
            "projection": "AnyProjection Condition KeyedRow Projection RowQuery Scalar check_query",
            "store": "BLOB_THRESHOLD AppendRequest Chains Durability Finding Head HeldSession LeaseWish "
            "MendReport SharedStore Store",
            "stores._postgres_connections": "parse_postgres_target",
            "stores._postgres_place": "PostgresPlace",
            "stores._postgres_schema": "SchemaBook",
            "stores._sqlite_place": "SqlitePlace",
            "stores.memory": "MemoryStore",
            "stores.registry": "AddressRegistry SchemaStatus StoreKind StoreOptions list_schemes open_chains "
            "resolve_directory open_store list_store_places migrate_store RoleKind find_tenant_url "
            "grant_role erase_tenant backup_files",
            "stores.sqlite": "SqliteStore",
        },
    )
