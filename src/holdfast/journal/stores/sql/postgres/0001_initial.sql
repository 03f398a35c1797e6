-- compatible from: 1
-- All of it lies in a schema of its own, beside whatever else the database holds.
-- Every row belongs to a tenant. Texts that may hold anything are bytea: a text of Postgres
-- cannot hold a NUL, and bytes are compared byte by byte, as the journal promises.

-- The clock that judges leases: the server's, which all writers share.
CREATE FUNCTION holdfast.lease_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp()';

-- Numbers of events are given under the lock of a tenant's row, which is held until the
-- transaction has ended: a lower number never appears after a higher one, and none is left out.
CREATE TABLE holdfast.counters (
    tenant text PRIMARY KEY,
    last bigint NOT NULL DEFAULT 0
);

-- One row per session: its short number, the end of its chain, and its lease.
-- The epoch fences every append. Up to `unproved_epoch` a former holder may still be alive.
CREATE TABLE holdfast.streams (
    stream bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    session_id text NOT NULL COLLATE "C",
    session_seq bigint NOT NULL DEFAULT 0,
    hash bytea,
    epoch bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    unproved_epoch bigint NOT NULL DEFAULT 0,
    UNIQUE (tenant, session_id)
) WITH (fillfactor = 70);
CREATE INDEX streams_held ON holdfast.streams (tenant, owner) WHERE owner <> '';

-- The log. placement: 0 payload in this row, 1 payload in blobs, 2 payload redacted.
-- `place` binds the number to the event: the first four bytes of its hash, plus `seq`.
CREATE TABLE holdfast.events (
    tenant text NOT NULL,
    seq bigint NOT NULL,
    stream bigint NOT NULL,
    session_seq bigint NOT NULL,
    kind text NOT NULL,
    version integer NOT NULL,
    time double precision NOT NULL,
    run_id text NOT NULL,
    agent_path text NOT NULL,
    correlation_id text NOT NULL,
    causation_id text NOT NULL,
    epoch bigint NOT NULL,
    digest bytea NOT NULL,
    hash bytea NOT NULL,
    placement smallint NOT NULL,
    payload bytea,
    place bigint NOT NULL,
    PRIMARY KEY (tenant, seq),
    UNIQUE (stream, session_seq)
);
CREATE INDEX events_with_blob ON holdfast.events (tenant, digest) WHERE placement = 1;
-- Payloads are JSON of some hundred bytes; compressing them again costs more than it saves.
ALTER TABLE holdfast.events ALTER COLUMN payload SET STORAGE EXTERNAL;

-- Large payloads, once per content.
CREATE TABLE holdfast.blobs (
    tenant text NOT NULL,
    digest bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
);

-- Which processes are alive; each renews its row while it waits or works.
CREATE TABLE holdfast.owners (
    tenant text NOT NULL,
    owner text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (tenant, owner)
);

-- Which projection tables exist, and in which version.
CREATE TABLE holdfast.projections (
    name text PRIMARY KEY,
    version integer NOT NULL
);
