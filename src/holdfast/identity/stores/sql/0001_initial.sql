CREATE TABLE tenants (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    created_at REAL NOT NULL,
    note TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    prefix TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    revoked_at REAL NOT NULL DEFAULT 0,
    last_used_at REAL NOT NULL DEFAULT 0,
    expires_at REAL NOT NULL DEFAULT 0,
    record TEXT NOT NULL
) STRICT;

CREATE INDEX keys_by_prefix ON keys (prefix);
CREATE INDEX keys_by_tenant ON keys (tenant, id);
