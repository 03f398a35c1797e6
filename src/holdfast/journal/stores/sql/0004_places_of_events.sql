-- The store-wide number of an event is given by the database, so no hash of its chain covers it.
-- `place` binds it to the event: the first four bytes of its hash, as a number, plus `seq`. What
-- older versions wrote has none, and nothing written after an event that has one may lack it.
ALTER TABLE events ADD COLUMN place INTEGER;
