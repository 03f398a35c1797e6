-- How embedders on servers are made again while vectors of theirs are left; never a key.
CREATE TABLE spaces (
    model TEXT PRIMARY KEY,
    dimension INTEGER NOT NULL,
    provider TEXT NOT NULL,
    base_url TEXT NOT NULL,
    name TEXT NOT NULL
) WITHOUT ROWID;
