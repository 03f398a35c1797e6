-- compatible from: 1
-- Where workers find what to do. The tables of the job engine (procrastinate) lie in a schema of
-- their own, with the text that the installed engine brings; a job says "this session has
-- something in its inbox" and nothing else. It is put there by the statement that appends.
CREATE SCHEMA holdfast_jobs;
SELECT set_config('search_path', 'holdfast_jobs, pg_catalog', true);
-- include: the schema of procrastinate

-- Whoever appends has another search path than the engine: its functions bring their own.
DO $$
DECLARE found regprocedure;
BEGIN
    FOR found IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'holdfast_jobs'::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = holdfast_jobs, pg_catalog', found);
    END LOOP;
END;
$$;

-- Who the engine's numbered workers are.
CREATE TABLE holdfast_jobs.worker_names (
    worker_id bigint PRIMARY KEY
        REFERENCES holdfast_jobs.procrastinate_workers (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    process integer NOT NULL,
    concurrency integer NOT NULL,
    started timestamptz NOT NULL DEFAULT now()
);
SELECT set_config('search_path', 'pg_catalog', true);
