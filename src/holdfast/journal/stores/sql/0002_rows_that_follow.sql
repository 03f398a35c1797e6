-- Rows of lazy projections may follow the log later while a lease is held: from the event with
-- this number on they are not written yet; 0 says that all are.
ALTER TABLE streams ADD COLUMN rows_from INTEGER NOT NULL DEFAULT 0;
CREATE INDEX streams_behind ON streams (stream) WHERE rows_from > 0;
