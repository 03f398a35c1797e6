CREATE TABLE logins (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    sealed BLOB NOT NULL
) STRICT;

CREATE INDEX logins_by_tenant ON logins (tenant, id);
CREATE INDEX logins_by_expiry ON logins (expires_at);
