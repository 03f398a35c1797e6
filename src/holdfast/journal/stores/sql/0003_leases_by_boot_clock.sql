-- A lease ends when the boot clock named by `lease_clock` reaches `lease_until`. `lease_expires`
-- stays what it was, the end by the wall clock, for programs of an older version; they change it
-- alone, and `lease_seen` is its value for which the other columns were written. Up to
-- `unproved_epoch` a former holder may still be alive: it neither gave its lease back nor was
-- proved dead.
ALTER TABLE streams ADD COLUMN lease_seen REAL NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN lease_clock TEXT NOT NULL DEFAULT '';
ALTER TABLE streams ADD COLUMN lease_until REAL NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN lease_ttl REAL NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN unproved_epoch INTEGER NOT NULL DEFAULT 0;

-- The same for the processes that are alive. `lock` names the file in which one holds a lock that
-- the kernel releases with its end; empty where it could not get one.
CREATE TABLE presences (
    owner TEXT PRIMARY KEY,
    seen REAL NOT NULL,
    clock TEXT NOT NULL,
    until REAL NOT NULL,
    ttl REAL NOT NULL,
    lock TEXT NOT NULL
) WITHOUT ROWID;
