-- Rows are never reused: an index in memory may still know an old number.
CREATE TABLE memories (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    speaker TEXT NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    provenance TEXT NOT NULL,
    created REAL NOT NULL,
    valid_from REAL NOT NULL,
    valid_to REAL,
    expires REAL,
    importance REAL NOT NULL,
    is_pinned INTEGER NOT NULL,
    previous INTEGER,
    supersedes TEXT NOT NULL,
    superseded_by TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    forgotten REAL,
    forgotten_why TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX memories_by_place ON memories (tenant, scope, owner, revision);
CREATE INDEX memories_by_scope ON memories (tenant, scope, revision);
CREATE INDEX memories_by_time ON memories (tenant, scope, owner, created);
CREATE INDEX memories_by_previous ON memories (previous) WHERE previous IS NOT NULL;
CREATE INDEX memories_by_expiry ON memories (expires) WHERE expires IS NOT NULL AND forgotten IS NULL;

-- Revisions grow with every change, so that an index in memory reads only what is new.
CREATE TABLE revisions (only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL);
INSERT INTO revisions VALUES (1, 0);

CREATE TABLE vectors (
    tenant TEXT NOT NULL,
    row INTEGER NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (tenant, row, model)
) WITHOUT ROWID;
CREATE INDEX vectors_by_model ON vectors (model, row);

-- What could not be embedded, so that it is not tried for ever.
CREATE TABLE refusals (
    tenant TEXT NOT NULL,
    row INTEGER NOT NULL,
    model TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (tenant, row, model)
) WITHOUT ROWID;

CREATE TABLE links (
    tenant TEXT NOT NULL,
    row INTEGER NOT NULL,
    relation TEXT NOT NULL,
    other INTEGER NOT NULL,
    PRIMARY KEY (tenant, row, relation, other)
) WITHOUT ROWID;
CREATE INDEX links_by_other ON links (tenant, other, relation);

CREATE VIRTUAL TABLE words USING fts5 (
    place, own, before, tokenize = "porter unicode61 remove_diacritics 2"
);
