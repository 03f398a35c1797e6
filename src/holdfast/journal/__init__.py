"""The journal: one append-only event log, the only truth.

Envelope, append, read, upcast, project, verify. Every other room keeps its facts here and
owns the payload types of its kinds; tables are projections that can be rebuilt.
"""

from holdfast.journal.audit import Finding, export_heads, parse_heads, verify
from holdfast.journal.envelope import (
    GENESIS,
    NO_ORIGIN,
    SYSTEM_SESSION,
    Batch,
    Draft,
    Encoded,
    Event,
    Origin,
)
from holdfast.journal.events import EventsRedacted, SessionDeleted
from holdfast.journal.journal import Journal
from holdfast.journal.payloads import (
    Payload,
    decode_payload,
    encode_payload,
    known_kinds,
    payload,
    upcaster,
)
from holdfast.journal.projection import Condition, KeyedRow, Projection, RowQuery
from holdfast.journal.store import BLOB_THRESHOLD, AppendRequest, Head, Store
from holdfast.journal.stores import MemoryStore, SqliteStore

__all__ = [
    "BLOB_THRESHOLD",
    "GENESIS",
    "NO_ORIGIN",
    "SYSTEM_SESSION",
    "AppendRequest",
    "Batch",
    "Condition",
    "Draft",
    "Encoded",
    "Event",
    "EventsRedacted",
    "Finding",
    "Head",
    "Journal",
    "KeyedRow",
    "MemoryStore",
    "Origin",
    "Payload",
    "Projection",
    "RowQuery",
    "SessionDeleted",
    "SqliteStore",
    "Store",
    "decode_payload",
    "encode_payload",
    "export_heads",
    "known_kinds",
    "parse_heads",
    "payload",
    "upcaster",
    "verify",
]
