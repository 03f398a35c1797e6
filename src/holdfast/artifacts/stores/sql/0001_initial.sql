-- Blobs in pieces, so that none has to fit into memory. An upload has a number; a blob is
-- an upload that was given a key. What has no key is on its way, or was left behind.
CREATE TABLE uploads (
    upload INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE blobs (
    key TEXT PRIMARY KEY,
    upload INTEGER NOT NULL,
    size INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX blobs_by_upload ON blobs (upload);

CREATE TABLE pieces (
    upload INTEGER NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (upload, number)
);

CREATE TABLE place (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    mark TEXT NOT NULL
);
