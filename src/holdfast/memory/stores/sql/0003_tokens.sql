-- Tokens of a memory for late interaction, quantized as its embedder does it. A table with
-- row numbers of its own: there a few kilobytes still lie in the leaves, without overflow.
CREATE TABLE tokens (
    row INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    tokens BLOB NOT NULL
);
CREATE INDEX tokens_by_model ON tokens (model, row);

-- Who says a plain line `Name: text`; NULL as long as nobody has looked, empty if no one.
ALTER TABLE memories ADD COLUMN inferred_speaker TEXT;
CREATE INDEX memories_not_inferred ON memories (row)
    WHERE inferred_speaker IS NULL AND forgotten IS NULL;
CREATE INDEX memories_by_session ON memories (tenant, scope, owner, session_id);
