-- compatible from: 1
-- Blobs in pieces, so that none has to fit into memory. An upload has a number; a blob is an
-- upload that was given a key. What has no key is on its way, or was left behind. Every row
-- belongs to a tenant of the database; the first part of a key is one of Holdfast.
CREATE TABLE holdfast_artifacts.uploads (
    upload bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    name text NOT NULL COLLATE "C",
    UNIQUE (tenant, name)
);

CREATE TABLE holdfast_artifacts.blobs (
    tenant text NOT NULL,
    key text NOT NULL COLLATE "C",
    upload bigint NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX blobs_by_upload ON holdfast_artifacts.blobs (upload);

CREATE TABLE holdfast_artifacts.pieces (
    tenant text NOT NULL,
    upload bigint NOT NULL,
    number integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (upload, number)
);
-- What could be compressed already is.
ALTER TABLE holdfast_artifacts.pieces ALTER COLUMN data SET STORAGE EXTERNAL;

-- Which journal the place belongs to.
CREATE TABLE holdfast_artifacts.places (
    tenant text PRIMARY KEY,
    mark text NOT NULL
);

-- The server itself keeps tenants apart, as it does in the journal's schema.
DO $$
DECLARE named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['uploads', 'blobs', 'pieces', 'places'] LOOP
        EXECUTE format('ALTER TABLE holdfast_artifacts.%s '
            'ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', named);
        EXECUTE format('CREATE POLICY tenants ON holdfast_artifacts.%s '
            'USING (tenant = current_setting(''holdfast.tenant'', true))', named);
    END LOOP;
END;
$$;
