-- The highest fencing token seen of each session whose runs have written here: a write with a lower
-- one comes from a process that has lost its session.
CREATE TABLE IF NOT EXISTS fences (
    session_id TEXT PRIMARY KEY,
    fence INTEGER NOT NULL
) WITHOUT ROWID;
