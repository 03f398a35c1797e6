-- One row per session: its short number, which is never given twice, and its lease.
-- The lease's epoch fences every append.
CREATE TABLE streams (
    stream INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    lease_expires REAL NOT NULL DEFAULT 0
);

-- The log. `seq` is the rowid; it never goes back, because whatever removes events
-- appends a note about it first.
-- placement: 0 payload in this row, 1 payload in blobs, 2 payload redacted.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    session_seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    time REAL NOT NULL,
    run_id TEXT NOT NULL,
    agent_path TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    causation_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    digest BLOB NOT NULL,
    hash BLOB NOT NULL,
    placement INTEGER NOT NULL,
    payload BLOB
);
CREATE UNIQUE INDEX events_by_session ON events (stream, session_seq);
CREATE INDEX events_with_blob ON events (digest) WHERE placement = 1;

-- Large payloads, once per content.
CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
);

-- Which projection tables exist, and in which version.
CREATE TABLE projections (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

-- Which processes are alive; each renews its row while it waits or works.
CREATE TABLE owners (
    owner TEXT PRIMARY KEY,
    expires REAL NOT NULL
) WITHOUT ROWID;
