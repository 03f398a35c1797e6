-- compatible from: 1
-- Tables named all_… hold the rows of every tenant of the database; the view of the same name
-- shows those of the tenant that the transaction names, and statements use nothing else. What
-- the views call `tenant` is the one that callers name, which lies inside (`account`).
CREATE EXTENSION IF NOT EXISTS vector;
SELECT set_config('search_path', 'holdfast_memory, ' || quote_ident(n.nspname) || ', pg_catalog', true)
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector';

-- Rows are never reused: an index in memory may still know an old number.
CREATE TABLE all_memories (
    row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    account text NOT NULL COLLATE "C",
    id text NOT NULL COLLATE "C",
    scope text NOT NULL COLLATE "C",
    owner text NOT NULL COLLATE "C",
    session_id text NOT NULL COLLATE "C",
    kind text NOT NULL COLLATE "C",
    speaker text NOT NULL COLLATE "C",
    inferred_speaker text COLLATE "C",
    content text NOT NULL,
    metadata text NOT NULL,
    provenance text NOT NULL,
    created double precision NOT NULL,
    valid_from double precision NOT NULL,
    valid_to double precision,
    expires double precision,
    importance double precision NOT NULL,
    is_pinned boolean NOT NULL,
    previous bigint,
    supersedes text NOT NULL COLLATE "C",
    superseded_by text NOT NULL COLLATE "C",
    bytes integer NOT NULL,
    forgotten double precision,
    forgotten_why text NOT NULL DEFAULT '',
    revision bigint NOT NULL,
    UNIQUE (tenant, account, id)
);
CREATE INDEX memories_by_place ON all_memories (tenant, account, scope, owner, revision);
CREATE INDEX memories_by_scope ON all_memories (tenant, account, scope, revision);
CREATE INDEX memories_by_time ON all_memories (tenant, account, scope, owner, created);
CREATE INDEX memories_by_session ON all_memories (tenant, account, scope, owner, session_id, row);
CREATE INDEX memories_by_previous ON all_memories (previous) WHERE previous IS NOT NULL;
CREATE INDEX memories_by_expiry ON all_memories (tenant, expires)
    WHERE expires IS NOT NULL AND forgotten IS NULL;
CREATE INDEX memories_not_inferred ON all_memories (tenant, row)
    WHERE inferred_speaker IS NULL AND forgotten IS NULL;

-- Revisions grow with every change, so that an index in memory reads only what is new. Its row is
-- locked by whoever writes for the tenant: what has a lower revision is never seen later. Beside
-- it, how many memories the index of words holds, and how many words, which rank them (BM25).
CREATE TABLE all_revisions (
    tenant text PRIMARY KEY COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    last bigint NOT NULL DEFAULT 0,
    indexed bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0
);

-- Vectors of any length; how they are read and compared is pgvector's.
CREATE TABLE all_vectors (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    account text NOT NULL COLLATE "C",
    row bigint NOT NULL,
    model text NOT NULL COLLATE "C",
    dimension integer NOT NULL,
    embedding halfvec NOT NULL,
    PRIMARY KEY (row, model)
);
CREATE INDEX vectors_by_model ON all_vectors (tenant, model, row);

-- The nearest vectors (HNSW): one index for each usual length; others are compared one by one.
DO $$
DECLARE length integer;
BEGIN
    FOREACH length IN ARRAY ARRAY[256, 384, 512, 768, 1024, 1536, 2048, 3072] LOOP
        EXECUTE format('CREATE INDEX vectors_near_%s ON all_vectors USING hnsw '
            '((embedding::halfvec(%s)) halfvec_cosine_ops) WHERE dimension = %s',
            length, length, length);
    END LOOP;
END;
$$;

-- What could not be embedded, so that it is not tried for ever.
CREATE TABLE all_refusals (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    account text NOT NULL COLLATE "C",
    row bigint NOT NULL,
    model text NOT NULL COLLATE "C",
    attempts integer NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (row, model)
);

CREATE TABLE all_links (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    account text NOT NULL COLLATE "C",
    row bigint NOT NULL,
    relation text NOT NULL COLLATE "C",
    other bigint NOT NULL,
    PRIMARY KEY (row, relation, other)
);
CREATE INDEX links_by_other ON all_links (other, relation);

-- How embedders on servers are made again while vectors of theirs are left; never a key.
CREATE TABLE all_spaces (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    model text NOT NULL COLLATE "C",
    dimension integer NOT NULL,
    provider text NOT NULL,
    base_url text NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (tenant, model)
);

-- Tokens of a memory for late interaction, quantized as its embedder does it.
CREATE TABLE all_tokens (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    account text NOT NULL COLLATE "C",
    row bigint PRIMARY KEY,
    model text NOT NULL COLLATE "C",
    tokens bytea NOT NULL
);
CREATE INDEX tokens_by_model ON all_tokens (tenant, model, row);

-- The highest fencing token seen of each session whose runs have written here: a write with a
-- lower one comes from a process that has lost its session.
CREATE TABLE all_fences (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    session_id text NOT NULL COLLATE "C",
    fence bigint NOT NULL,
    PRIMARY KEY (tenant, session_id)
);

-- Words of memories: A of its own, B of the turn before, D the marks of its tenant and places,
-- so that one index serves all of them.
CREATE TABLE all_words (
    tenant text NOT NULL COLLATE "C" DEFAULT current_setting('holdfast.tenant'),
    row bigint PRIMARY KEY,
    own integer NOT NULL,
    before integer NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX words_found ON all_words USING gin (words);

-- Words are stemmed as in SQLite; nothing is left out, since queries leave out what says little.
CREATE TEXT SEARCH DICTIONARY stem (TEMPLATE = pg_catalog.snowball, LANGUAGE = porter);

DO $$
DECLARE named text; listed text;
BEGIN
    FOREACH named IN ARRAY ARRAY['memories', 'revisions', 'vectors', 'refusals', 'links',
        'spaces', 'tokens', 'fences', 'words']
    LOOP
        SELECT string_agg(CASE a.attname
            WHEN 'account' THEN 'account AS tenant'
            WHEN 'embedding' THEN 'embedding, halfvec_send(embedding) AS vector'
            ELSE quote_ident(a.attname) END, ', ' ORDER BY a.attnum) INTO listed
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = ('holdfast_memory.all_' || named)::regclass AND a.attnum > 0
            AND NOT a.attisdropped AND a.attname <> 'tenant';
        EXECUTE format('CREATE VIEW holdfast_memory.%I AS SELECT %s FROM holdfast_memory.%I '
            'WHERE tenant = current_setting(''holdfast.tenant'', true)', named, listed,
            'all_' || named);
        EXECUTE format('ALTER TABLE holdfast_memory.%I '
            'ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', 'all_' || named);
        EXECUTE format('CREATE POLICY tenants ON holdfast_memory.%I '
            'USING (tenant = current_setting(''holdfast.tenant'', true))', 'all_' || named);
    END LOOP;
END;
$$;
-- Under a policy the index of words could not be used: the operator that asks it (@@) might tell
-- what the policy hides. So it binds all roles but the owner, in whose name the view asks, and
-- the view names the tenant itself. Roles that serve requests are granted views, not tables.
ALTER TABLE all_words NO FORCE ROW LEVEL SECURITY;
SELECT set_config('search_path', 'pg_catalog', true);
