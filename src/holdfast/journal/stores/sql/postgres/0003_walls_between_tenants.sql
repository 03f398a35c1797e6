-- compatible from: 3
-- The server itself keeps tenants apart: a transaction sees and writes rows of the tenant that it
-- names (SET LOCAL holdfast.tenant), and none at all where it names none. FORCE holds the owner of
-- the tables to it as well; only roles with SUPERUSER or BYPASSRLS are not held.
DO $$
DECLARE named regclass;
BEGIN
    FOR named IN SELECT c.oid::regclass FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
        WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r'
            AND NOT a.attisdropped
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', named);
        EXECUTE format('CREATE POLICY tenants ON %s '
            'USING (tenant = current_setting(''holdfast.tenant'', true))', named);
    END LOOP;
END;
$$;

-- Which queues a worker serves; the empty name is that of all that is bound to none.
-- After so many seconds without a sign of life it counts as dead.
ALTER TABLE holdfast_jobs.worker_names
    ADD COLUMN queues text[] NOT NULL DEFAULT '{""}',
    ADD COLUMN lease_ttl double precision NOT NULL DEFAULT 30;

-- Wake-ups: the queue of a tenant is holdfast/TENANT, or holdfast/TENANT/NAME. No tenant's name
-- holds a slash.
ALTER TABLE holdfast_jobs.procrastinate_jobs
    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants ON holdfast_jobs.procrastinate_jobs
    USING (split_part(queue_name, '/', 2) = current_setting('holdfast.tenant', true));
ALTER TABLE holdfast_jobs.procrastinate_events
    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants ON holdfast_jobs.procrastinate_events
    USING (EXISTS (SELECT FROM holdfast_jobs.procrastinate_jobs j WHERE j.id = job_id));
ALTER TABLE holdfast_jobs.worker_names
    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants ON holdfast_jobs.worker_names
    USING (tenant = current_setting('holdfast.tenant', true));
